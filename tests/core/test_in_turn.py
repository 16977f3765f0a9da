"""Callers who wait have their turns by who was served longest ago, and one of them cannot take all
places.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import weakref
from collections import Counter
from dataclasses import dataclass

import pytest
from waiting import until

from localspec.core import in_turn
from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import UsageError
from localspec.core.in_turn import InTurn, Places
from localspec.core.threads_in_turn import Call, ThreadsInTurn


@dataclass(eq=False)
class One:
    """Waits; its name begins with its caller."""

    name: str
    over: bool = False

    @property
    def caller(self) -> str:
        return self.name[0]


def names(waiting: InTurn[One] | Places[One]) -> list[str]:
    """What is next, until nothing is."""
    found = []
    while (one := waiting.next()) is not None:
        found.append(one.name)
    return found


def test_the_next_is_of_the_caller_served_longest_ago_and_its_oldest() -> None:
    waiting = InTurn[One]()
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        waiting.add(One(name))
    assert names(waiting) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    for name in ("b3", "a4", "c2", "d1"):
        waiting.add(One(name))
    assert names(waiting) == ["d1", "c2", "b3", "a4"]


def test_what_comes_first_does_so_for_its_caller_only() -> None:
    waiting = InTurn[One]()
    for name in ("b1", "a1", "a2"):
        waiting.add(One(name))
    waiting.add(One("a3"), first=True)
    assert names(waiting) == ["b1", "a3", "a1", "a2"]


def test_what_is_over_takes_no_turn() -> None:
    waiting = InTurn[One]()
    for name in ("a1", "b1", "b2", "a2"):
        waiting.add(One(name, over=name == "b1"))
    assert names(waiting) == ["a1", "b2", "a2"]
    gone = One("a3")
    waiting.add(gone)
    gone.over = True
    waiting.tidy()
    assert len(waiting) == 0


def test_only_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turn, "_CALLERS", 3)
    waiting = InTurn[One]()
    for name in "abcda":
        waiting.add(One(name))
        waiting.next()
    assert set(waiting._last) == {"c", "d", "a"}


def test_who_has_all_places_leaves_one_to_the_next_caller() -> None:
    places = Places[One](2, spare=1)
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        places.add(One(name))
    assert names(places) == ["a1", "b1", "c1"]  # in turn
    for caller in "abc":
        places.leave(caller)
    assert names(places) == ["a2", "b2"]  # the third one is for neither
    places.add(One("c2"))
    assert names(places) == ["c2"]
    places.leave("c")
    places.leave("b")
    assert names(places) == ["a3"]
    assert (places.waiting, len(places)) == (0, 2)


async def test_whoever_leaves_at_random_no_place_is_lost_or_given_twice() -> None:
    chance = random.Random(7)
    places, inside = AsyncPlaces(2, spare=1), Counter[str]()

    async def use(caller: str) -> None:
        async with places.of(caller):
            inside[caller] += 1
            try:
                assert inside.total() <= 3
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                inside[caller] -= 1

    for _ in range(300):
        tasks = [asyncio.create_task(use(chance.choice("abc"))) for _ in range(8)]
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        for task in chance.sample(tasks, 3):
            task.cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert found is None or isinstance(found, asyncio.CancelledError)
        assert len(places._places) == 0


def test_threads_do_all_tasks_before_they_end_and_none_afterwards() -> None:
    threads, gate, done = ThreadsInTurn("test", 2, spare=1), threading.Event(), list[int]()

    def work(number: int) -> None:
        gate.wait()
        done.append(number)

    calls = [Call("ab"[i % 2], lambda i=i: work(i)) for i in range(12)]
    for call in calls:
        threads.add(call)
    until(lambda: sum(call.result.running() for call in calls) == 2)
    calls[-1].result.cancel()
    gate.set()
    threads.close()
    assert sorted(done) == [*range(11)]
    with pytest.raises(UsageError, match="closed"):
        threads.add(Call("a", lambda: None))


def test_a_call_tells_of_an_error_and_the_thread_goes_on() -> None:
    threads = ThreadsInTurn("test", 1)
    failing, fine = Call("a", lambda: 1 // 0), Call("a", lambda: 1)
    threads.add(failing)
    threads.add(fine)
    with pytest.raises(ZeroDivisionError):
        failing.result.result()
    assert fine.result.result() == 1
    threads.close()


def test_nothing_of_a_call_stays_once_it_has_ended() -> None:
    """Large bodies are read in such threads, and what reads them often refuses them."""

    class Body:
        """Many megabytes."""

    threads, seen = ThreadsInTurn("test", 1), list[weakref.ref[Body]]()

    async def refused() -> None:
        body = Body()
        seen.append(weakref.ref(body))

        def read() -> None:
            raise ValueError(str(body))

        with contextlib.suppress(ValueError):
            await asyncio.wrap_future(threads.do("a", read))

    gc.collect()
    gc.disable()
    try:
        asyncio.run(refused())
        until(lambda: seen[0]() is None)  # the thread lets go of it in a moment
    finally:
        gc.enable()
    threads.close()


def test_what_nobody_wants_any_more_is_let_go_before_its_turn() -> None:
    """A caller's share of the memory is free again when it cancels, whatever the thread does."""

    class Body:
        """Many megabytes."""

    threads, gate, seen = ThreadsInTurn("test", 1), threading.Event(), list[weakref.ref[Body]]()
    running = threads.do("a", gate.wait)
    until(running.running)
    try:
        for _ in range(5):
            body = Body()
            seen.append(weakref.ref(body))
            threads.do("a", lambda body=body: str(body)).cancel()
            del body
        last = threads.do("b", lambda: 1)
        assert not any(body() for body in seen)
        assert not running.done()
    finally:
        gate.set()
    assert last.result() == 1
    threads.close()
