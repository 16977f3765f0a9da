"""Divides the events of a reply into its parts: thinking, answer and calls of tools."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import Finished, ReplyEvent, ReplyFormat, Token
from localspec.grammar.tool_families import Tool
from localspec.serve.replies.deltas import CallDelta, Delta
from localspec.serve.replies.reply_parser import ReplyParser
from localspec.serve.replies.reply_parts import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Part,
    Reasoning,
)


class ReplyReader:
    """Reads one reply."""

    def __init__(
        self, tools: Sequence[Tool] = (), *, prefix: str = "call_", reasoning: bool = True
    ) -> None:
        """The arguments of `ReplyParser`."""
        self._tools = tuple(tools)
        self._prefix = prefix
        self._reasoning = reasoning
        self._parser = self._parser_of(ReplyFormat())
        self._shown = 0
        self.called = False
        """Whether the reply calls tools."""
        self.cut = False
        """Whether it ends inside of a call."""
        self.reasoning_tokens = 0
        """Tokens of the thinking so far; those of its markers count where they end."""

    def _parser_of(self, form: ReplyFormat) -> ReplyParser:
        return ReplyParser(form, self._tools, prefix=self._prefix, reasoning=self._reasoning)

    @property
    def thinking(self) -> bool:
        """Whether the reply so far ends inside the thinking."""
        return self._parser.thinking

    def parts(self, events: Sequence[ReplyEvent]) -> list[Part]:
        """The parts that the next events add."""
        found: list[Part] = []
        for event in events:
            match event:
                case ReplyFormat():
                    self._parser = self._parser_of(event)
                case Token():
                    self._shown += len(event.text)
                    parts = self._parser.feed(event.text)
                    self.reasoning_tokens += self._parser.thinking
                    found += parts
                case Finished(reply):
                    found += self._parser.feed(reply.text[self._shown :])
                    found += self._parser.finish(cut=reply.finish_reason != "stop")
                case _:
                    pass
        self.called = self.called or any(isinstance(part, CallBegin) for part in found)
        self.cut = any(isinstance(part, CallEnd) and not part.complete for part in found)
        return found


class PartDeltas:
    """Turns the events of one reply into the deltas of `localspec.serve.routes.chat`."""

    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader

    @property
    def called(self) -> bool:
        """Whether the reply calls tools."""
        return self._reader.called

    @property
    def cut(self) -> bool:
        """Whether it ends inside of a call."""
        return self._reader.cut

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the thinking."""
        return self._reader.reasoning_tokens

    def feed(self, events: Sequence[ReplyEvent]) -> Delta:
        """The delta of the next events; the last ones end with `Finished`."""
        content, reasoning = "", ""
        calls: dict[int, CallDelta] = {}
        for part in self._reader.parts(events):
            match part:
                case Content(text):
                    content += text
                case Reasoning(text):
                    reasoning += text
                case CallBegin(index, id_of_call, name):
                    calls[index] = CallDelta(index, id_of_call, name)
                case CallArguments(index, text):
                    call = calls.get(index) or CallDelta(index)
                    more = call.arguments + text
                    calls[index] = CallDelta(index, call.id, call.name, more)
                case _:
                    pass
        return Delta(content, reasoning, tuple(calls.values()))
