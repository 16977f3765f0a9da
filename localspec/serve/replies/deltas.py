"""The text of a reply as API clients get it: content, thinking and calls of tools.

`localspec.serve.routes.chat` feeds the events of each reply to one `PartDeltas`
(`localspec.grammar.reply_reader`).
"""

from __future__ import annotations

from msgspec import Struct


class CallDelta(Struct, frozen=True):
    """A part of a call of a tool."""

    index: int
    """Number of the call in its reply, from 0."""
    id: str = ""
    """With the first part only, as the name."""
    name: str = ""
    arguments: str = ""
    """The next characters of the arguments, a JSON object."""


class Delta(Struct, frozen=True):
    """The parts that some events add to a reply."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls)
