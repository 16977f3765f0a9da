"""The parts of a reply: thinking, text and calls of tools."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from msgspec import Struct


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
    found: list[Part] = []
    for part in parts:
        match (found[-1] if found else None), part:
            case Reasoning(before), Reasoning(text):
                found[-1] = Reasoning(before + text)
            case Content(before), Content(text):
                found[-1] = Content(before + text)
            case CallArguments(index, before), CallArguments(same, text) if index == same:
                found[-1] = CallArguments(index, before + text)
            case _:
                found.append(part)
    return found


class WholeCall(Struct):
    """A call of a tool."""

    id: str
    name: str
    arguments: str = ""
    """A JSON object; its beginning, where the reply was cut."""
    complete: bool = False

    def value(self) -> dict[str, Any]:
        """The arguments of a whole call, for answers that hold them as JSON. Where Python has no
        value for them (a number of thousands of digits, or beyond floating point; a thousand
        brackets), their text is under "arguments".
        """
        try:
            found = json.loads(self.arguments or "{}", parse_float=_finite)
        except (ValueError, RecursionError):
            return {"arguments": self.arguments}
        return found if isinstance(found, dict) else {"arguments": self.arguments}


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text} is beyond floating point")
    return found


class WholeReply(Struct):
    """All parts of a reply."""

    reasoning: str = ""
    content: str = ""
    calls: list[WholeCall] = []

    @classmethod
    def of(cls, parts: Iterable[Part]) -> WholeReply:
        """The parts put together."""
        found = cls()
        for part in parts:
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
