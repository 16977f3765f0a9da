"""A computation in slices never runs beside its caller."""

from __future__ import annotations

import pytest

from localspec.llama.slices import Sliced

PAST = 0.0


def test_it_goes_on_where_it_paused() -> None:
    done: list[str] = []

    def work() -> None:
        for step in range(3):
            done.append(f"step {step}")
            slices.pause()

    slices = Sliced(work)
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

    slices = Sliced(work)
    assert not slices.go_on(PAST)
    assert slices.limited
    assert slices.go_on(None)
    assert not slices.limited
    assert done == [0, 1, 2]


def test_its_error_is_the_callers() -> None:
    def work() -> None:
        slices.pause()
        raise ValueError("broken")

    slices = Sliced(work)
    assert not slices.go_on(PAST)
    with pytest.raises(ValueError, match="broken"):
        slices.go_on(PAST)
    assert slices.over
