"""A computation in slices: what runs beside its caller, and what waits."""

from __future__ import annotations

import threading

import pytest

from localspec.llama.slices import Sliced

PAST = 0.0
LONG = 60.0


def test_it_goes_on_where_it_paused() -> None:
    done: list[str] = []

    def work() -> None:
        for step in range(3):
            done.append(f"step {step}")
            slices.pause()

    slices = Sliced(work, grace=LONG)
    while not slices.go_on(PAST):
        done.append("caller")
    assert done == ["step 0", "caller", "step 1", "caller", "step 2", "caller"]
    assert slices.over


def test_without_a_limit_it_does_not_pause() -> None:
    done: list[int] = []

    def work() -> None:
        for step in range(3):
            done.append(step)
            slices.pause()

    slices = Sliced(work, grace=LONG)
    assert not slices.go_on(PAST)
    assert slices.limited
    assert slices.go_on(None)
    assert not slices.limited
    assert done == [0, 1, 2]


def test_its_error_is_the_callers() -> None:
    def work() -> None:
        slices.pause()
        raise ValueError("broken")

    slices = Sliced(work, grace=LONG)
    assert not slices.go_on(PAST)
    with pytest.raises(ValueError, match="broken"):
        slices.go_on(PAST)
    assert slices.over


def test_a_long_step_is_not_waited_for_and_is_the_last_one_beside_the_caller() -> None:
    step_may_end, paused, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        step_may_end.wait()
        done.append("long step")
        paused.set()
        slices.pause()
        done.append("next step")

    slices = Sliced(work, grace=0.0)
    assert not slices.go_on(PAST)
    assert not slices.go_on(PAST)  # the caller did other things, twice
    assert done == []
    step_may_end.set()
    assert paused.wait(10)
    assert done == ["long step"]
    assert slices.go_on(None)
    assert done == ["long step", "next step"]
