"""The parts of a reply: thinking, text and calls of tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from localspec.core.json_text import object_or_text


class Reasoning(Struct, frozen=True):
    """More of the thinking."""

    text: str


class Content(Struct, frozen=True):
    """More of the answer."""

    text: str


class CallBegin(Struct, frozen=True):
    """A call of a tool begins; its arguments follow."""

    index: int
    """0 for the first call of the reply."""
    id: str
    name: str


class CallArguments(Struct, frozen=True):
    """More of the JSON object of a call's arguments."""

    index: int
    text: str


class CallEnd(Struct, frozen=True):
    """The arguments of a call end."""

    index: int
    complete: bool = True
    """Whether they are whole; else the reply was cut inside of them."""


Part = Reasoning | Content | CallBegin | CallArguments | CallEnd


def merged(parts: Iterable[Part]) -> list[Part]:
    """The parts, neighbours that continue each other as one."""
    return [_joined([*several]) for _, several in itertools.groupby(parts, _continued)]


def _continued(part: Part) -> object:
    """What a part has in common with those that continue it; others have nothing in common."""
    match part:
        case Reasoning() | Content():
            return type(part)
        case CallArguments(index):
            return index
    return object()


def _joined(parts: Sequence[Part]) -> Part:
    match parts[0]:
        case (Reasoning() | Content() | CallArguments()) as first if len(parts) > 1:
            return replace(first, text="".join(getattr(part, "text", "") for part in parts))
        case first:
            return first


class WholeCall(Struct):
    """A call of a tool."""

    id: str
    name: str
    arguments: str = ""
    """A JSON object; its beginning, where the reply was cut."""
    complete: bool = False

    def value(self) -> dict[str, Any]:
        """The arguments of a whole call, for answers that hold them as JSON."""
        return object_or_text(self.arguments)


class WholeReply(Struct):
    """All parts of a reply."""

    reasoning: str = ""
    content: str = ""
    calls: list[WholeCall] = []

    @classmethod
    def of(cls, parts: Iterable[Part]) -> WholeReply:
        """The parts put together."""
        found = cls()
        for part in merged(parts):
            match part:
                case Reasoning(text):
                    found.reasoning += text
                case Content(text):
                    found.content += text
                case CallBegin(_, name_of_call, name):
                    found.calls.append(WholeCall(name_of_call, name))
                case CallArguments(index, text):
                    found.calls[index].arguments += text
                case CallEnd(index, complete):
                    found.calls[index].complete = complete
        return found
