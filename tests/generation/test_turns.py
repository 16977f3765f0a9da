"""Turns of replies with different adapters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from localspec.core.adapter_list import AS_LOADED, Blend
from localspec.generation import turns
from localspec.generation.turns import Turns

A, B = Blend((("a", 1.0),), "a"), Blend((("b", 1.0),), "b")


def reply(blend: Blend, seconds: float = 0.0, seq: int = 0) -> Any:
    request = SimpleNamespace(last_rows_seconds=seconds)
    return SimpleNamespace(prepared=SimpleNamespace(blend=blend), request=request, seq=seq)


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
        blends = {one.prepared.blend for one in taken}
        assert len(blends) == 1
        mine.append(blends.pop())
        assert taken == [one for one in running if one.prepared.blend == mine[-1]]
    assert mine == [AS_LOADED, AS_LOADED, A, A, B, B] * 2


def test_many_blends_of_another_client_do_not_make_one_wait_for_long(clock: list[float]) -> None:
    """A client may name as many scales of an adapter as there are sequences."""
    other = [reply(Blend((("a", scale / 10),), "a")) for scale in range(1, 12)]
    mine, order, round_s = reply(B), Turns(), 0.004
    waited, longest = 0.0, 0.0
    for _ in range(500):
        taken = order.take([*other, mine])
        clock[0] += round_s
        waited = 0.0 if mine in taken else waited + round_s
        longest = max(longest, waited)
    assert longest <= turns.WAIT + len(other) * round_s


def test_rounds_longer_than_a_turn_alternate(clock: list[float]) -> None:
    running, order, mine = [reply(A), reply(B)], Turns(), []
    for step in range(6):
        clock[0] = 10.0 * step
        mine.append(order.take(running)[0].prepared.blend)
    assert mine == [A, B] * 3


def test_a_turn_ends_with_the_last_reply_of_its_blend(clock: list[float]) -> None:
    order = Turns()
    assert order.take([reply(A), reply(B)])[0].prepared.blend == A
    clock[0] += turns.TURN / 10
    assert order.take([reply(B), reply(AS_LOADED)])[0].prepared.blend == B


def test_replies_whose_rows_take_long_take_turns_and_hold_up_nobody_else() -> None:
    """Eight replies with samplers over a whole vocabulary, beside two that ask for little."""
    costly = [reply(A, turns.ROWS_MOST_SECONDS / 2.5, seq) for seq in range(8)]
    usual = [reply(A, 0.001, 8), reply(A, 0.0, 9)]
    order, rounds = Turns(), []
    for _ in range(12):
        taken = order.take([*costly, *usual])
        assert all(one in taken for one in usual)
        slow = [one for one in taken if one in costly]
        assert sum(one.request.last_rows_seconds for one in slow) <= turns.ROWS_MOST_SECONDS
        rounds += slow
    assert {rounds.count(one) for one in costly} == {3}


def test_a_row_that_takes_longer_than_its_share_is_computed_all_the_same() -> None:
    costly = [reply(A, 3 * turns.ROWS_MOST_SECONDS, seq) for seq in range(3)]
    order = Turns()
    taken = [order.take(costly) for _ in range(6)]
    assert [len(one) for one in taken] == [1] * 6
    assert {one.seq for (one,) in taken[:3]} == {0, 1, 2}
    assert order.take(costly[:1]) == costly[:1]


def test_replies_whose_rows_fit_together_are_in_every_round() -> None:
    running = [reply(A, turns.ROWS_MOST_SECONDS / 4, seq) for seq in range(4)]
    order = Turns()
    for _ in range(3):
        assert order.take(running) == running
