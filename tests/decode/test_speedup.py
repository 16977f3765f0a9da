"""The speed relative to plain decoding, estimated from the rounds of one reply."""

from __future__ import annotations

import random

import pytest

from localspec.core.events import Speedup
from localspec.core.round_counts import RoundFigures
from localspec.decode.speedup import SpeedupEstimate
from localspec.policy.costs import Costs


def estimate(
    *,
    accepted: int = 3,
    width: int = 4,
    rounds: int = 40,
    one: float = 0.05,
    wide: float = 0.1,
    load: float = 1.0,
    noise: float = 0.0,
    stall: float = 0.0,
) -> Speedup | None:
    """Rounds with a draft each, on a machine that is ``load`` times slower than when its passes
    were measured at load: ``one`` and ``wide`` seconds over one token and ``width`` tokens.
    """
    rng = random.Random(1)
    costs = Costs({1: one, width: wide})
    found = SpeedupEstimate()
    for i in range(rounds):
        seconds = wide * load * rng.lognormvariate(0, noise) + (stall if i == rounds // 2 else 0)
        costs.record_pass(width, seconds)
        drafted = width - 1
        done = RoundFigures(drafted, drafted, accepted, accepted + 1, 0.0, seconds, seconds, "")
        found.add(done, costs)
    return found.speedup(outside_rounds=0.0)


def test_four_tokens_in_twice_the_time_of_one_are_twice_as_fast() -> None:
    found = estimate()
    assert found is not None
    assert found.factor == pytest.approx(2, rel=0.01)
    assert (found.verdict, found.text) == ("faster", "2.0× faster")


def test_a_machine_that_is_slower_during_the_reply_does_not_change_the_factor() -> None:
    found = estimate(load=5.0, rounds=80)
    assert found is not None
    assert found.factor == pytest.approx(2, rel=0.1)


def test_a_stall_of_the_machine_does_not_count() -> None:
    found = estimate(stall=30.0)
    assert found is not None
    assert found.factor == pytest.approx(2, rel=0.05)


def test_rejected_drafts_are_slower_and_a_small_difference_is_none() -> None:
    slower, same = estimate(accepted=0), estimate(accepted=1)
    assert slower is not None
    assert same is not None
    assert (slower.verdict, slower.text) == ("slower", "2.0× slower")
    assert (same.verdict, same.text) == ("same", "about as fast as plain")


def test_a_noisy_machine_claims_nothing_that_noise_could_explain() -> None:
    found = estimate(accepted=1, noise=0.5)
    assert found is not None
    assert found.error > 0.2
    assert (found.verdict, found.text) == ("unknown", "")


def test_there_is_no_estimate_for_a_tiny_model_or_a_short_reply() -> None:
    assert estimate(one=0.0005, wide=0.001) is None
    assert estimate(rounds=3) is None
    assert estimate(width=1, wide=0.05) is None


def test_time_beside_rounds_counts_for_both() -> None:
    found = SpeedupEstimate()
    costs = Costs({1: 0.05, 4: 0.1})
    done = RoundFigures(3, 3, 3, 4, 0.0, 0.1, 0.1, "")
    for _ in range(20):
        found.add(done, costs)
    alone, together = found.speedup(0.0), found.speedup(0.05)
    assert alone is not None
    assert together is not None
    assert alone.factor == pytest.approx(2)
    assert together.factor == pytest.approx((0.2 + 0.2) / (0.1 + 0.2))
