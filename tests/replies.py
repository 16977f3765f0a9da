"""What tests of whole replies share."""

from __future__ import annotations

from collections.abc import Iterable

from localspec import Finished, Message, Reply, Sampling

HELLO = [Message("user", "Hello there, hello there, hello")]
WARM = Sampling(temperature=1.0)
ENDLESS = tuple((token, -100.0) for token in range(3))
"""A bias against the tokens that end a reply."""


def last(events: Iterable[object]) -> Reply:
    """The reply that a stream of events ends with."""
    *_, end = events
    assert isinstance(end, Finished)
    return end.reply
