"""Nobody waits for all the prompts that another caller has sent, whether they take long or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tables
from runnables import Costs, Hooked, Letters, Pair, V, Watchdog
from waiting import until

from localspec.core.interrupt import Cancelled, Interrupt
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.core.values import Logits, Tokens
from localspec.drafters.base import Off
from localspec.generation.preparation import Preparation
from localspec.generation.prepared import Prepared
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.testing import Fixed

SLOW = 3
"""Prompts of one caller that take long and are made at a time."""


def table(tokens: Tokens) -> Logits:
    """No reply ends by itself."""
    row = np.zeros(V, np.float32)
    row[0] = -50.0
    return row


class Making:
    """A scheduler that makes each prompt when it may; requests are known by their seeds."""

    def __init__(self, patch: pytest.MonkeyPatch, *, long: bool) -> None:
        self.begun: list[tuple[str, int]] = []
        self._may = threading.Semaphore(0)
        pair = Pair(Hooked(table), Off(), Costs(Fixed(0)), Letters(), watchdog=Watchdog())
        self.scheduler = Scheduler(pair)
        prepared = Preparation.prepared

        def held(
            own: Preparation, request: ReplyRequest, cancelled: Cancelled, *more: object
        ) -> Prepared:
            self.begun.append((request.owner, request.seed or 0))
            while not self._may.acquire(timeout=0.01):
                if cancelled():
                    break
            return prepared(own, request, cancelled, *more)

        patch.setattr(Preparation, "prepared", held)
        patch.setattr(Preparation, "takes_long", lambda *_: long)

    def ask(self, owner: str, first: int, last: int) -> list[ReplyStream]:
        made = (
            ReplyRequest(prompt="bcd", owner=owner, seed=i, max_tokens=1, sampling=tables.WARM)
            for i in range(first, last + 1)
        )
        return [self.scheduler.submit(request, Interrupt()) for request in made]

    def allow(self, n: int) -> None:
        """Let that many prompts be made."""
        self._may.release(n)

    def wait(self, n: int) -> None:
        """Wait until that many were begun."""
        until(lambda: len(self.begun) >= n)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[Making]:
    made = Making(monkeypatch, long=True)
    yield made
    made.scheduler.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Making]:
    made = Making(monkeypatch, long=False)
    yield made
    made.scheduler.close()


def test_who_has_all_threads_for_long_prompts_does_not_keep_another_caller_waiting(
    long: Making,
) -> None:
    streams = long.ask("alice", 1, 12)
    long.wait(SLOW)
    streams += long.ask("bob", 20, 20)
    long.wait(SLOW + 1)  # nothing has ended
    assert long.begun[-1] == ("bob", 20)
    long.allow(13)
    for stream in streams:
        assert [*stream]


def test_long_prompts_begin_in_turn_of_their_callers(long: Making) -> None:
    streams = long.ask("alice", 1, 6) + long.ask("alice/a cache", 7, 8)
    long.wait(SLOW)
    streams += long.ask("bob", 20, 20)
    long.wait(SLOW + 1)
    streams += long.ask("carol", 30, 31) + long.ask("dave", 40, 40)
    until(lambda: long.scheduler._prompts._slow._places.waiting == 8)
    for ended, begun in enumerate((("carol", 30), ("dave", 40)), 1):
        long.allow(1)
        long.wait(SLOW + 1 + ended)
        assert long.begun[-1] == begun
    long.allow(12)
    for stream in streams:
        assert [*stream]


def test_prompts_that_take_no_time_are_made_in_turn_of_their_callers(quick: Making) -> None:
    streams = quick.ask("alice", 1, 1)
    quick.wait(1)
    streams += quick.ask("alice", 2, 4) + quick.ask("bob", 20, 21) + quick.ask("carol", 30, 30)
    quick.allow(7)
    for stream in streams:
        assert [*stream]
    assert [seed for _, seed in quick.begun] == [1, 20, 30, 2, 21, 3, 4]


def test_a_request_that_was_given_up_is_no_turn_of_its_caller(quick: Making) -> None:
    """Editors give up a completion with each key."""
    streams = quick.ask("alice", 1, 1)
    quick.wait(1)
    (given_up,) = quick.ask("bob", 20, 20)
    streams += quick.ask("alice", 2, 3) + quick.ask("bob", 21, 21)
    given_up.interrupt()
    assert [*given_up]
    quick.allow(4)
    for stream in streams:
        assert [*stream]
    assert [seed for _, seed in quick.begun] == [1, 21, 2, 3]


def test_texts_are_split_in_turn_with_prompts_of_other_callers(long: Making) -> None:
    streams = long.ask("alice", 1, 8)
    long.wait(SLOW)
    request = ReplyRequest(prompt="bcd", owner="bob")
    found = list[Tokenized]()

    def split() -> None:
        found.append(long.scheduler.tokenized(request, lambda: False, special=True, bos=True))

    threading.Thread(target=split, daemon=True).start()
    until(lambda: found)
    assert found[0].tokens == (1, 2, 3)
    assert len(long.begun) == SLOW
    long.allow(8)
    for stream in streams:
        assert [*stream]
