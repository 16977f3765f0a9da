"""The text of a reply as API clients get it: what is said, what is thought, which tools are called.

`localspec.serve.routes.chat` feeds the events of each reply to one `Deltas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core.events import Finished, ReplyEvent, Token


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A part of a call of a tool."""

    index: int
    """Of the call in its reply, from 0."""
    id: str = ""
    """With the first part only, as the name."""
    name: str = ""
    arguments: str = ""
    """The next characters of the arguments, a JSON object."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What events add to a reply."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls)


class Deltas(Protocol):
    """Divides one reply."""

    def feed(self, events: Sequence[ReplyEvent]) -> Delta:
        """What the next events add; the last ones end with `Finished`."""
        ...

    @property
    def called(self) -> bool:
        """Whether the reply calls tools."""
        ...

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the thinking."""
        ...


class PlainDeltas:
    """All text is content."""

    called = False
    reasoning_tokens = 0

    def __init__(self) -> None:
        self._shown = 0

    def feed(self, events: Sequence[ReplyEvent]) -> Delta:
        """What the next events add."""
        parts = []
        for event in events:
            if isinstance(event, Token):
                parts.append(event.text)
                self._shown += len(event.text)
            elif isinstance(event, Finished):
                parts.append(event.reply.text[self._shown :])
        return Delta(content="".join(parts))


__all__ = ["CallDelta", "Delta", "Deltas", "PlainDeltas"]
