"""Events of a reply, cut into rounds: each becomes one event of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.core.events import ReplyEvent, Round


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
