"""The decision of a round is a pure function of beliefs, prices and budgets: here of tables."""

from __future__ import annotations

import math
import pickle
from functools import partial

import numpy as np
import pytest

from localspec.policy.acceptance import BINS, AcceptanceEstimate, bin_of
from localspec.policy.decide import BEHIND, Belief, decide
from localspec.policy.gain import Budgets, Expected, prospect
from localspec.policy.prices import MARGIN, Prices

STEEP = np.array([1.0, 1.9, 2.7, 2.6, 3.5, 4.3, 4.6, 5.0])
FLAT = np.array([1.0, 1.01, 1.02, 1.1, 1.3, 1.6, 1.8, 2.0])
SLOPE = np.linspace(1.0, 6.0, 20)
CLIFF = np.linspace(1.0, 14.0, 20)
PLENTY = Budgets(reply=9.0, others=math.inf, looks=3.0)


def text(right: float, confidence: float = 0.9, tokens: int = 40) -> AcceptanceEstimate:
    """What a drafter has shown that is right so often."""
    found = AcceptanceEstimate()
    for i in range(tokens):
        found.learn(confidence, int((i + 1) * right) > int(i * right))
    return found


def same(expected: Expected) -> Expected:
    return expected


def belief(source: str, shown: AcceptanceEstimate, prices: Prices, **more: object) -> Belief:
    expected = Expected(shown, len(prices.costs))
    return Belief(source, partial(same, expected), prices, **more)  # type: ignore[arg-type]


def of_model(right: float, curve: np.ndarray = FLAT, tokens: int = 40, **more: object) -> Belief:
    return belief("model", text(right, tokens=tokens), Prices(curve, 0.06), **more)


def decided(*beliefs: Belief, unread: int = 0, budgets: Budgets = PLENTY) -> list[str]:
    return [c.decided for c in decide(beliefs, unread, budgets).candidates]


def test_a_drafter_is_asked_where_that_gains_more_than_it_costs() -> None:
    assert decided(of_model(0.9)) == ["asked"]
    assert decided(of_model(0.0)) == ["gain"]
    assert decided(of_model(0.6, STEEP)) == ["gain"]


def test_the_gain_of_a_candidate_is_that_of_the_formula() -> None:
    """All first tokens have one confidence: 1 + s (1 + m + …) less t(k + 1) + k c, at best."""
    shown, prices = text(0.9), Prices(FLAT, 0.06)
    shown.seen = [float(b == bin_of(0.9)) for b in range(BINS)]
    expected = Expected(shown, 7)
    s, m = expected.table[bin_of(0.9)], expected.mean
    best = max(
        1 + s * sum(m**j for j in range(k)) - (FLAT[k] + 0.06 * k) for k in range(1, len(FLAT))
    )
    assert expected.gain(prices) == pytest.approx(best)
    (candidate,) = decide([belief("model", shown, prices)], 0, PLENTY).candidates
    assert candidate.gain == pytest.approx(best)


def test_a_drafter_that_has_not_read_the_text_waits_until_it_has() -> None:
    assert decided(of_model(0.9), unread=BEHIND + 1) == ["unread"]
    assert decided(of_model(0.9), unread=BEHIND) == ["asked"]


@pytest.mark.parametrize("short", [Budgets(0.0, math.inf, 3.0), Budgets(9.0, 0.0, 3.0)])
def test_no_draft_risks_what_the_reply_or_another_does_not_have(short: Budgets) -> None:
    assert decided(of_model(0.9, CLIFF, tokens=4), budgets=short) == ["budget"]


def test_a_draft_that_gains_even_in_the_cautious_case_needs_no_budget() -> None:
    """What was lost before, by another drafter perhaps, is won back by it."""
    known, unknown = of_model(0.95, tokens=60), of_model(0.95, CLIFF, tokens=4)
    for reply in (0.0, -5.0):
        assert decided(known, budgets=Budgets(reply, math.inf, 0.0)) == ["asked"]
        assert decided(unknown, budgets=Budgets(reply, math.inf, 0.0)) == ["budget"]


def test_a_reply_that_has_little_to_lose_is_drafted_for_with_shorter_drafts() -> None:
    good = of_model(0.9, SLOPE, tokens=4)
    depths = []
    for reply in (0.3, 0.6, 9.0):
        (step,) = decide([good], 0, Budgets(reply, math.inf, 0.0)).steps
        depths.append(next(k for k in range(99) if not step.pace.more([0.9] * (k + 1))))
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]


def test_a_look_is_made_only_where_the_session_can_pay_for_it() -> None:
    bad = of_model(0.0, probe=0.5)
    for session, probes in ((0.6, True), (0.4, False)):
        decision = decide([bad], 0, Budgets(9.0, math.inf, session))
        assert [step.probe for step in decision.steps] == [True] * probes
        assert decision.candidates[0].probes is probes
    assert not decide([of_model(0.9, probe=0.1)], 0, PLENTY).candidates[0].probes


def test_a_trial_is_made_where_the_lowest_plausible_prices_would_pay() -> None:
    steep, prices = Prices(STEEP, 0.06), Prices(1 + 0.4 * (STEEP - 1), 0.06)
    for right, found in ((0.6, "trial"), (0.0, "gain")):
        shown = text(right)
        due = belief("model", shown, steep, at_best=prices)
        decision = decide([due], 0, PLENTY)
        assert [c.decided for c in decision.candidates] == [found]
        assert all(step.budget.depth <= 3 for step in decision.steps)


def test_a_drafter_that_copies_comes_first_and_drafts_only_what_beats_the_next_one() -> None:
    copies = belief("suffix", text(0.9), Prices(FLAT, 0.0), copies=True)
    for model, drafts in ((of_model(0.97), False), (of_model(0.0), True)):
        decision = decide([copies, model], 0, PLENTY)
        assert decision.steps[0].source == "suffix"
        assert decision.steps[0].pace.more([0.55]) is drafts
    slow = belief("suffix", text(0.9), Prices(FLAT, 0.0), copies=True, answer=0.5)
    assert decided(slow, budgets=Budgets(9.0, math.inf, 0.0, answers=0.1)) == ["answer"]
    quick = belief("suffix", text(0.9), Prices(FLAT, 0.0), copies=True, answer=0.001)
    for left, found in ((0.0, ["copies"]), (-0.1, ["answer"])):  # they took more than is believed
        assert decided(quick, budgets=Budgets(9.0, math.inf, 0.0, answers=left)) == found


def test_the_same_beliefs_prices_and_budgets_give_the_same_decision_again() -> None:
    """What a round was decided by can be stored, and the decision made again elsewhere."""
    given = (
        [belief("suffix", text(0.7), Prices(STEEP, 0.0), copies=True), of_model(0.8, probe=0.2)],
        3,
        Budgets(1.2, 5.0, 0.4),
    )
    stored = pickle.dumps(given)
    once = decide(*given)
    again = decide(*pickle.loads(stored))
    assert [(c.decided, c.gain, c.probes, c.budgets) for c in again.candidates] == [
        (c.decided, c.gain, c.probes, c.budgets) for c in once.candidates
    ]
    assert [(s.source, s.budget, s.probe) for s in again.steps] == [
        (s.source, s.budget, s.probe) for s in once.steps
    ]
    for confidences in ([0.9], [0.9, 0.9], [0.5], [0.9] * 5):
        assert [s.pace.more(confidences) for s in again.steps if not s.probe] == [
            s.pace.more(confidences) for s in once.steps if not s.probe
        ]


def test_a_text_that_is_better_than_usual_promises_more() -> None:
    prices, drafter = Prices(FLAT, 0.06), text(0.4)
    usual, better = (prospect(drafter, prices, (d,)) for d in (0.0, 2.0))
    assert better > usual >= 0
    assert prospect(drafter, prices, (0.0, 2.0)) == pytest.approx((usual + better) / 2)
    assert prospect(text(0.0, tokens=200), Prices(STEEP, 0.06), (0.0,)) < MARGIN
