"""The streamed texts, and a fake engine that emits them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from localspec.core.emitted import Origin
from localspec.core.events import (
    Finished,
    ModelInfo,
    Reading,
    Reply,
    Round,
    Speculation,
    Stats,
    Token,
)

TOKENS, RATE, PER_ROUND = 2000, 200, 3
HISTORY = "Some earlier reply, with words enough to fill a few lines of it. " * 4 + (
    "\n\n```python\ndef add(a, b):\n    return a + b\n```\n\n- one\n- two\n"
)


def _prose() -> list[str]:
    sentence = "The little fox went into the *forest* and met the old bear.".split()  # noqa: SIM905
    ends = ["\n\n" if i % 60 == 59 else " " for i in range(TOKENS)]
    return [sentence[i % len(sentence)] + end for i, end in enumerate(ends)]


def _code() -> list[str]:
    line = ["    ", "total ", "= ", "add(", "first, ", "second) ", "# sum\n"]
    body = [line[i % len(line)] for i in range(TOKENS - 2)]
    return ["```python\n", *body, "\n```\n"]


def _list() -> list[str]:
    per_item = TOKENS // 140
    ends = {0: lambda i: f"- item {i // per_item} ", per_item - 1: lambda _: "word\n"}
    return [ends.get(i % per_item, lambda _: "word ")(i) for i in range(TOKENS)]


def _table() -> list[str]:
    row = ["| ", "left ", "| ", "middle ", "| ", "right ", "|\n"]
    head = ["| a ", "| b ", "| c |\n", "|---|---|---|\n"]
    return [*head, *(row[i % len(row)] for i in range(TOKENS - len(head)))]


KINDS = {"prose": _prose, "code": _code, "list": _list, "table": _table}
"""2,000 tokens of one kind of Markdown."""


class Replies:
    """The events of one reply."""

    def __init__(self, events: AsyncIterator[Any]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    def interrupt(self) -> None:
        """Never asked here."""

    def close(self) -> None:
        """There is nothing to end."""


class Replay:
    """An engine that emits given words at a given rate."""

    pid = None
    server = ""
    on_death = None

    def __init__(self, said: Sequence[str]) -> None:
        self._said = said

    async def open(self, on_loading: object = None) -> ModelInfo:
        """There is nothing to load."""
        del on_loading
        return ModelInfo(
            "target.gguf", "draft.gguf", "cpu", 8192, "replay", 1, 1, 1, Speculation("on")
        )

    def reply(self, request: object) -> Replies:
        """The words, in rounds of three, on time."""
        del request
        return Replies(self._events())

    async def _events(self) -> AsyncIterator[Any]:
        yield Reading(10, 10, 0)
        on, start = Speculation("on"), time.perf_counter()
        for at in range(0, len(self._said), PER_ROUND):
            await asyncio.sleep(max(0.0, start + at / RATE - time.perf_counter()))
            part = self._said[at : at + PER_ROUND]
            for i, text in enumerate(part):
                last = i == len(part) - 1
                yield Token(
                    at + i,
                    text,
                    Origin.CORRECTED if last else Origin.ACCEPTED,
                    None if last else "model",
                )
            yield Round(4, 3, len(part) - 1, len(part), 0.002, 0.01, 0.015, "model", at, on)
        whole = "".join(self._said)
        stats = Stats(10, 0, len(self._said), 1, 1, 1, 1, (), {}, 0.1, 10.0, 1.0, 8.0, on)
        ids = tuple(range(len(self._said)))
        yield Finished(Reply(whole, ids, (Origin.ACCEPTED,) * len(ids), "stop", stats, 1))

    async def examine(self, *_: object, **__: object) -> Any:
        """Never asked here: nothing in the benchmark moves the token cursor."""
        raise AssertionError("the benchmark examined a token")

    async def close(self) -> None:
        """There is nothing to end."""
