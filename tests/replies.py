"""What tests of whole replies share."""

from __future__ import annotations

from collections.abc import Iterable

from localspec import Finished, Message, Reply, Runtime, Sampling

HELLO = [Message("user", "Hello there, hello there, hello")]
WARM = Sampling(temperature=1.0)
ENDLESS = tuple((token, -100.0) for token in range(3))
"""A bias against the tokens that end a reply."""


def last(events: Iterable[object]) -> Reply:
    """The reply that a stream of events ends with."""
    *_, end = events
    assert isinstance(end, Finished)
    return end.reply


def exact(runtime: Runtime, sampling: Sampling, max_tokens: int = 48, seed: int = 7) -> Reply:
    """A drafted reply, whose text was compared with that of plain decoding."""
    settings = {"sampling": sampling, "seed": seed, "max_tokens": max_tokens}
    plain = last(runtime.reply(HELLO, draft=False, **settings))
    drafted = last(runtime.reply(HELLO, **settings))
    assert list(drafted.tokens) == list(plain.tokens)
    assert drafted.text == plain.text
    return drafted
