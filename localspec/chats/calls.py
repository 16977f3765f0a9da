"""Calls of tools in a chat, saved in the details of the reply that makes them, and what a model is
told of a chat.

A reply's text stays as the model wrote it, calls and their markers included; ``calls_at`` says
where they begin. The reply that follows the results is a message of its own, whose parent is this
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from localspec.chats import pictures
from localspec.core import codec, json_text
from localspec.core.errors import UsageError
from localspec.core.events import Message, MessageCall
from localspec.core.picture import Picture

CALLS, CALLS_AT = "calls", "calls_at"
"""Keys of a message's details."""

CallState = Literal["written", "waiting", "running", "done", "failed", "refused", "stopped"]
"""Being written by the model; not allowed yet; running; ended well, or not; the user did not allow
it; the user stopped it."""
NOT_RUN: Mapping[CallState, str] = {
    "written": "This call was not finished.",
    "waiting": "This call was not run.",
    "running": "This call did not end.",
    "refused": "The user did not allow this call.",
    "stopped": "The user stopped this call.",
}
"""What a model reads in place of a result."""


@dataclass(frozen=True, slots=True)
class SavedCall:
    """One call. The names of the fields are keys of the file."""

    id: str
    name: str
    """The name of the tool as the model wrote it."""
    arguments: str
    """A JSON object; its beginning while it is written."""
    place: str = ""
    """Server and tool, as the user sees them."""
    state: CallState = "written"
    result: str | None = None
    """None where it gave none."""
    seconds: float = 0.0
    allowed: str = ""
    """Why it ran: once, chat, always, folder."""

    @property
    def said(self) -> str:
        """Its result as the model reads it."""
        return self.result if self.result is not None else NOT_RUN.get(self.state, "")

    @property
    def whole(self) -> bool:
        """Whether its arguments are a JSON object, as a `MessageCall` has them."""
        try:
            return isinstance(json_text.read(self.arguments), dict)
        except (ValueError, UsageError):
            return False


def saved(details: Mapping[str, Any] | None) -> tuple[tuple[SavedCall, ...], int | None]:
    """The calls of a message, and where in its text they begin; those of an unknown shape are
    ignored, and nothing of them is shown.
    """
    found = details or {}
    at = found.get(CALLS_AT)
    try:
        calls = codec.decode(tuple[SavedCall, ...], found.get(CALLS, []), CALLS)
    except codec.CodecError:
        calls = ()
    return calls, at if type(at) is int and at >= 0 else None


def details(calls: Sequence[SavedCall], at: int | None) -> dict[str, Any]:
    """What is saved of calls; empty without any."""
    if at is None:
        return {}
    return {CALLS: [codec.encode(call) for call in calls], CALLS_AT: at}


def reply_messages(text: str, calls: Sequence[SavedCall], at: int | None) -> list[Message]:
    """A reply as the model is told of it: its text, its calls, and their results."""
    if at is None:
        return [Message("assistant", text)] if text else []
    made = [call for call in calls if call.whole]
    before = text[:at].rstrip()
    if not made:
        return [Message("assistant", before)] if before else []
    asked = tuple(MessageCall(call.id, call.name, call.arguments) for call in made)
    results = [Message("tool", call.said, call_id=call.id, name=call.name) for call in made]
    return [Message("assistant", before, calls=asked), *results]


class Said(NamedTuple):
    """One message of a branch."""

    role: Literal["user", "assistant"]
    text: str
    end: str | None
    """How a reply ended."""
    calls: Sequence[SavedCall]
    calls_at: int | None


def request_messages(system: str | None, branch: Iterable[Said]) -> tuple[Message, ...]:
    """What a model is told of a branch: its messages, calls and results.

    Chat templates require alternating roles, so a question without a reply is joined with the next
    one. A question whose reply failed is left out until it is asked again: one that is too long,
    for example, would fail every later request.
    """
    found = [Message("system", system)] if system else []
    said = list(branch)
    for one, answer in zip_longest(said, said[1:]):
        failed = answer is not None and answer.end == "failed" and not answer.text
        if not one.text or (failed and one.role == "user"):
            continue
        if one.role == "assistant" and one.calls_at is not None:
            found += reply_messages(one.text, one.calls, one.calls_at)
            continue
        told = pictures.message(one.role, one.text)
        found.append(_joined(found.pop(), told) if found and found[-1].role == one.role else told)
    return tuple(found)


def calls_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages without calls, for an engine that takes none: they are told in the text."""
    found: list[Message] = []
    for message in messages:
        if message.role == "tool":
            head = f"(result of {message.name})\n"
            moved = _moved(message.pictures, len(head))
            told = Message("user", f"{head}{message.content}", pictures=moved)
        elif message.calls:
            lines = [f"(call of {call.name}: {call.arguments})" for call in message.calls]
            said = "\n".join(filter(None, [message.content, *lines]))
            told = Message("assistant", said, message.reasoning)
        else:
            told = message
        if found and found[-1].role == told.role != "system":
            told = _joined(found.pop(), told)
        found.append(told)
    return tuple(found)


def _joined(first: Message, second: Message) -> Message:
    """Two messages of one role as one; pictures stay where they stand in the text."""
    before = f"{first.content}\n\n"
    return Message(
        first.role,
        before + second.content,
        "\n\n".join(filter(None, (first.reasoning, second.reasoning))),
        pictures=first.pictures + _moved(second.pictures, len(before)),
    )


def _moved(pictures: Sequence[Picture], by: int) -> tuple[Picture, ...]:
    """Pictures of a text that has so many more characters in front."""
    return tuple(replace(picture, at=picture.at + by) for picture in pictures)


def as_markdown(text: str, calls: Sequence[SavedCall], at: int | None) -> str:
    """A reply to be read: its text, then each call with its result in fences."""
    parts = [text if at is None else text[:at].strip("\n")]
    for call in calls:
        note = f" ({call.state})" if call.state in NOT_RUN or call.state == "failed" else ""
        parts.append(f"**Call of `{call.place or call.name}`**{note}")
        parts.append(_fenced(call.arguments))
        if call.result is not None:
            parts.append(_fenced(call.result))
    return "\n\n".join(part for part in parts if part)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
