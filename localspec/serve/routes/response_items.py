"""The output of a response: its items, and the events that tell of them as they come."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from localspec.core.events import ReplyEvent, Token
from localspec.grammar.reply_parts import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Part,
    Reasoning,
)
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.replies.answer_fields import new_id
from localspec.serve.replies.logprob_shapes import chat_logprobs

_KINDS = {
    "reasoning": ("rs", "reasoning_text"),
    "message": ("msg", "output_text"),
    "function_call": ("fc", ""),
}
"""Beginning of the id of an item, and type of its content, by the type of the item."""


class Item(Struct):
    """One item, with the text so far."""

    kind: str
    id: str
    index: int
    said: list[str] = []
    """The parts of its text."""
    call_id: str = ""
    name: str = ""
    logprobs: list[dict[str, Any]] = []
    status: str = "in_progress"

    @property
    def text(self) -> str:
        """All that was said of it."""
        return "".join(self.said)

    @property
    def part(self) -> dict[str, Any]:
        """The content."""
        kind = _KINDS[self.kind][1]
        more = {"annotations": [], "logprobs": [*self.logprobs]} if kind == "output_text" else {}
        return {"type": kind, "text": self.text} | more

    def as_dict(self, *, empty: bool = False) -> dict[str, Any]:
        """The item; ``empty``: as it is announced."""
        head = {"id": self.id, "type": self.kind, "status": self.status}
        content = [] if empty else [self.part]
        match self.kind:
            case "reasoning":
                return head | {"summary": [], "content": content}
            case "message":
                return head | {"role": "assistant", "content": content}
        text = "" if empty else self.text
        return head | {"call_id": self.call_id, "name": self.name, "arguments": text}


class ResponseItems:
    """Takes the events of a reply."""

    def __init__(self, reader: ReplyReader, *, logprobs: bool) -> None:
        self._reader = reader
        self._logprobs = logprobs
        self._open: Item | None = None
        self._early: list[dict[str, Any]] = []
        """Log-probabilities of tokens before the answer's first text."""
        self.items: list[Item] = []

    @property
    def output(self) -> list[dict[str, Any]]:
        """All items."""
        return [item.as_dict() for item in self.items]

    def forget_logprobs(self) -> None:
        """Leave them out from now on: there may be more than is made in one step."""
        for item in self.items:
            item.logprobs = []

    def feed(self, events: Sequence[ReplyEvent]) -> list[dict[str, Any]]:
        """Events of a stream for the next events, without their numbers."""
        found: list[dict[str, Any]] = []
        for event in events:
            for part in self._reader.parts([event]):
                found += self._part(part)
            if self._logprobs and isinstance(event, Token) and event.logprobs is not None:
                found += self._scored(event)
        return _merged(found)

    def finish(self, *, complete: bool) -> list[dict[str, Any]]:
        """The reply is over; an item that is open ends with it."""
        return self._close("completed" if complete else "incomplete")

    def drop_last(self) -> None:
        """Leave out the last item: a call that was cut, in an answer of which nothing is sent."""
        self.items.pop()

    def _scored(self, token: Token) -> list[dict[str, Any]]:
        """Log-probabilities of a token of the answer; those of thinking and calls have no place."""
        if self._reader.thinking or self._reader.called:
            return []
        entries, item = [*self._early, *chat_logprobs([token])["content"]], self._open
        self._early = []
        if item is None or item.kind != "message":
            self._early = entries
            return []
        item.logprobs += entries
        return [self._delta(item, "", entries)]

    def _part(self, part: Part) -> list[dict[str, Any]]:
        match part:
            case Reasoning(text):
                return self._say("reasoning", text)
            case Content(text):
                return self._say("message", text)
            case CallBegin(_, id_of_call, name):
                return self._begin("function_call", call_id=id_of_call, name=name)
            case CallArguments(_, text):
                return self._say("function_call", text)
            case CallEnd(_, complete):
                return self._close("completed" if complete else "incomplete")

    def _say(self, kind: str, text: str) -> list[dict[str, Any]]:
        found = [] if self._open is not None and self._open.kind == kind else self._begin(kind)
        item = self._open
        assert item is not None
        item.said.append(text)
        return [*found, self._delta(item, text, [])]

    def _delta(self, item: Item, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        event = self._about(item, _event_type(item, "delta")) | {"delta": text}
        return event | ({"logprobs": logprobs} if item.kind == "message" else {})

    def _begin(self, kind: str, call_id: str = "", name: str = "") -> list[dict[str, Any]]:
        found = self._close("completed")
        item_id = new_id(_KINDS[kind][0], "_")
        item = Item(kind, item_id, len(self.items), call_id=call_id, name=name)
        self.items.append(item)
        self._open = item
        added = {"type": "response.output_item.added", "output_index": item.index}
        found.append(added | {"item": item.as_dict(empty=True)})
        if kind != "function_call":
            part = self._about(item, "response.content_part.added")
            found.append(part | {"part": item.part})
        return found

    def _close(self, status: str) -> list[dict[str, Any]]:
        item, self._open = self._open, None
        if item is None:
            return []
        item.status = status
        done = self._about(item, _event_type(item, "done"))
        found = []
        if item.kind == "function_call":
            found.append(done | {"arguments": item.text, "name": item.name})
        else:
            more = {"logprobs": [*item.logprobs]} if item.kind == "message" else {}
            found.append(done | {"text": item.text} | more)
            part = self._about(item, "response.content_part.done")
            found.append(part | {"part": item.part})
        last = {"type": "response.output_item.done", "output_index": item.index}
        return [*found, last | {"item": item.as_dict()}]

    @staticmethod
    def _about(item: Item, kind: str) -> dict[str, Any]:
        found = {"type": kind, "item_id": item.id, "output_index": item.index}
        return found if item.kind == "function_call" else found | {"content_index": 0}


def _event_type(item: Item, what: str) -> str:
    kind = _KINDS[item.kind][1] or "function_call_arguments"
    return f"response.{kind}.{what}"


def _merged(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, neighbouring deltas of one item as one."""
    found: list[dict[str, Any]] = []
    for _, several in itertools.groupby(events, _delta_of):
        first, *others = several
        if others:
            first["delta"] += "".join(one["delta"] for one in others)
            if "logprobs" in first:
                first["logprobs"] += [entry for one in others for entry in one["logprobs"]]
        found.append(first)
    return found


def _delta_of(event: dict[str, Any]) -> object:
    """What deltas of one item have in common; other events have nothing in common."""
    return (event["type"], event["item_id"]) if "delta" in event else object()
