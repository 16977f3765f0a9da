"""The text of a reply as API clients get it: content, thinking and calls of tools, in rounds, each
of which becomes one event of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from localspec.core.events import ReplyEvent, Round
from localspec.grammar.reply_parts import CallArguments, CallBegin, Content, Reasoning
from localspec.grammar.reply_reader import ReplyReader


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


class PartDeltas:
    """Turns the events of one reply into deltas."""

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


def rounds(events: Sequence[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """The events of each round in a batch. Those of a round that goes on in the next batch come
    without waiting for it.
    """
    part: list[ReplyEvent] = []
    for event in events:
        part.append(event)
        if isinstance(event, Round):
            yield part
            part = []
    if part:
        yield part
