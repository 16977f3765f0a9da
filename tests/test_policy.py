"""The automatic policy: what it chooses from costs and acceptance, on known curves."""

from __future__ import annotations

import pytest

from localspec.policy.auto import Auto
from localspec.values import Outcome

FLAT = {1: 1.0, 4: 1.05, 8: 1.1, 16: 1.2}
"""Like a GPU: width is nearly free."""
STEEP = {1: 1.0, 4: 4.0, 8: 8.0, 16: 16.0}
"""Like a saturated CPU: verifying n tokens costs n."""


def play(
    auto: Auto, rounds: int, accept: float, curve: dict[int, float], draft_s: float
) -> list[int]:
    """Rounds of a workload whose drafts stand with a given probability each; the Ks chosen."""
    chosen, debt = [], 0.0
    for _ in range(rounds):
        (budget,) = auto.plan([0])
        k = budget.depth
        chosen.append(k)
        accepted = 0
        while accepted < k:
            debt += accept
            if debt < 1.0:
                break
            debt -= 1.0
            accepted += 1
        seconds = Auto(curve).verify_seconds(k + 1)
        verified = min(k, accepted + 1)
        auto.learn([Outcome(0, "model", k, verified, accepted, k * draft_s, seconds)])
    return chosen


def test_cheap_verification_and_good_drafts_give_long_drafts() -> None:
    auto = Auto(FLAT)
    assert min(k for k in play(auto, 60, 0.95, FLAT, 0.02)[20:60] if k) >= 6
    assert auto.speculation.state == "on"


def test_bad_drafts_are_parked_with_a_reason_and_seldom_probed() -> None:
    auto = Auto(STEEP)
    chosen = play(auto, 2000, 0.1, STEEP, 0.2)
    assert auto.speculation.state == "parked"
    assert "plain decoding is faster" in (auto.speculation.reason or "")
    assert sum(k > 0 for k in chosen[1000:]) / 1000 < 0.01


def test_a_parked_policy_notices_when_drafts_get_good() -> None:
    auto = Auto(FLAT)
    play(auto, 300, 0.0, FLAT, 0.3)
    assert auto.speculation.state == "parked"
    play(auto, 1500, 1.0, FLAT, 0.01)
    assert auto.speculation.state == "on"


def test_steps_in_the_curve_are_used() -> None:
    """A pass over four tokens that is cheaper than one over three makes K = 3 the choice."""
    steps = {1: 1.0, 2: 1.9, 3: 2.6, 4: 1.7, 5: 2.6, 6: 3.4, 7: 3.6, 8: 3.2, 16: 6.0}
    chosen = play(Auto(steps), 80, 0.75, steps, 0.05)
    assert {k for k in chosen[30:] if k} == {3}


@pytest.mark.parametrize("width", [1, 3, 4, 6, 20])
def test_unmeasured_widths_are_interpolated(width: int) -> None:
    auto = Auto({1: 1.0, 4: 4.0, 8: 8.0})
    assert auto.verify_seconds(width) == pytest.approx(width)


def test_a_draft_as_slow_as_the_target_is_never_used() -> None:
    auto = Auto(FLAT, draft=1.0)
    assert sum(k > 0 for k in play(auto, 200, 0.6, FLAT, 1.0)) <= 5
    assert auto.speculation.state == "parked"


def test_a_single_slow_pass_does_not_stay() -> None:
    auto = Auto(FLAT)
    before = auto.verify_seconds(4)
    auto.learn([Outcome(0, "model", 3, 3, 3, 0.01, 1000.0)])
    assert auto.verify_seconds(4) < 1.3 * before
