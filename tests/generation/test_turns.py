"""Turns of replies with different adapters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from localspec.core.adapter_list import AS_LOADED, Blend
from localspec.generation import turns
from localspec.generation.turns import Turns

A, B = Blend((("a", 1.0),), "a"), Blend((("b", 1.0),), "b")


def reply(blend: Blend) -> Any:
    return SimpleNamespace(generation=SimpleNamespace(prepared=SimpleNamespace(blend=blend)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(turns, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_replies_of_one_blend_always_run_together() -> None:
    running = [reply(A), reply(A)]
    assert Turns().take(running) == running
    assert Turns().take([]) == []


def test_a_turn_lasts_and_then_the_one_that_waited_longest_has_it(clock: list[float]) -> None:
    running = [reply(AS_LOADED), reply(A), reply(B), reply(A)]
    order, mine = Turns(), []
    for step in range(12):
        clock[0] = step * turns.TURN / 2
        taken = order.take(running)
        blends = {one.generation.prepared.blend for one in taken}
        assert len(blends) == 1
        mine.append(blends.pop())
        assert taken == [one for one in running if one.generation.prepared.blend == mine[-1]]
    assert mine == [AS_LOADED, AS_LOADED, A, A, B, B] * 2


def test_rounds_longer_than_a_turn_alternate(clock: list[float]) -> None:
    running, order, mine = [reply(A), reply(B)], Turns(), []
    for step in range(6):
        clock[0] = 10.0 * step
        mine.append(order.take(running)[0].generation.prepared.blend)
    assert mine == [A, B] * 3


def test_a_turn_ends_with_the_last_reply_of_its_blend(clock: list[float]) -> None:
    order = Turns()
    assert order.take([reply(A), reply(B)])[0].generation.prepared.blend == A
    clock[0] += turns.TURN / 10
    assert order.take([reply(B), reply(AS_LOADED)])[0].generation.prepared.blend == B
