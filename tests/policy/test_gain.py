"""How often tokens are accepted, what a draft gains and risks, and how far it goes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.policy import decide
from localspec.policy.acceptance import COPIES, AcceptanceEstimate
from localspec.policy.decide import GainPace
from localspec.policy.gain import Budgets, Expected
from localspec.policy.prices import Prices


def odds(table: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = np.array(table)
    return found / (1 - found)


def paced(text: AcceptanceEstimate, prices: Prices, reply: float = math.inf) -> GainPace:
    expected = Expected(text, len(prices.costs))
    return GainPace(lambda: expected, prices, 1.0, Budgets(reply, math.inf, 0.0))


def test_confidence_is_calibrated_by_what_happens() -> None:
    sure, doubtful = AcceptanceEstimate(), AcceptanceEstimate()
    for i in range(200):
        sure.learn(0.45, True)
        doubtful.learn(0.97, i % 2 == 0)
    assert sure.table()[4] > 0.95
    assert 0.35 < doubtful.table()[10] < 0.55


def test_misses_anywhere_make_all_bins_distrusted() -> None:
    estimate = AcceptanceEstimate()
    before = estimate.table()
    for _ in range(6):
        estimate.learn(0.97, False)
    after = estimate.table()
    assert (odds(after) < 0.5 * odds(before)).all()


def test_hits_anywhere_make_all_bins_trusted_in_this_text_alone() -> None:
    """Texts differ by more than confidences tell, in both directions."""
    estimate = AcceptanceEstimate()
    before = estimate.table()
    for _ in range(12):
        estimate.learn(0.55, True)
    after, elsewhere = estimate.table(), estimate.new_text().table()
    assert (odds(after) > 1.8 * odds(before)).all()
    np.testing.assert_allclose(np.delete(elsewhere, 5), np.delete(before, 5))


def test_pace_goes_on_over_a_step_that_pays_as_a_whole() -> None:
    """Two or three tokens in a pass cost more than four: K = 1 and 2 never pay, K = 3 does."""
    estimate = AcceptanceEstimate()
    for _ in range(200):
        estimate.learn(0.93, True)
    curve = np.array([1.0, 2.0, 3.0, 1.5])
    pace = paced(estimate, Prices(curve, 0.0))
    assert pace.more([0.93])
    assert pace.more([0.93, 0.93])
    assert pace.more([0.93, 0.93, 0.93])
    assert not pace.more([0.93] * 4)
    assert not pace.more([0.05])


def test_a_long_copy_goes_over_a_step_that_the_mean_of_all_copies_would_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On this curve, as on two cores, up to 16 tokens cost a step more than four."""
    known = [18.7, 33.4, 51.5, 45, 61.9, 70.4, 80.6, 123.3, 125, 190, 250]
    curve = np.interp(np.arange(1, 33), [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32], known) / known[0]
    copied = AcceptanceEstimate(kind=COPIES)
    for i in range(40):
        copied.learn(0.97, i % 25 != 24)
        if i % 3 == 0:
            copied.learn(0.5, i % 2 == 0)

    usual = decide.STEADY

    def length(steady: float) -> int:
        monkeypatch.setattr(decide, "STEADY", steady)
        pace, confidences = paced(copied, Prices(curve, 0.0)), [0.97]
        while pace.more(confidences):
            confidences.append(0.97)
        return len(confidences) - 1

    assert length(0.0) == 3
    assert length(usual) == 15


def test_right_guesses_make_a_draft_affordable_and_wrong_ones_take_that_back() -> None:
    """The cautious case follows what the text has shown: an unknown one may be far worse."""
    prices, text = Prices(np.interp(np.arange(8), [0, 3, 7], [1.0, 3.4, 6.0]), 0.0), None
    risks = []
    for right in (None, True, False, False):
        text = AcceptanceEstimate() if text is None else text
        for _ in range(0 if right is None else 6):
            text.learn(0.97, right)
        expected = Expected(text, 7)
        risks.append(float(expected.risk(prices, expected.table[10])[2]))
    unknown, known, doubted, wrong = risks
    assert unknown > known
    assert known < doubted < wrong
    assert wrong > unknown


def test_a_draft_needs_the_budget_for_its_loss_in_the_cautious_case() -> None:
    text, prices = AcceptanceEstimate(), Prices(np.array([1.0, 1.7, 2.4, 3.1]), 0.0)
    expected = Expected(text, 3)
    risks = expected.risk(prices, expected.table[10])
    assert (risks <= prices.losses).all()
    assert not paced(text, prices, 0.9 * float(risks[0])).more([0.97])
    assert paced(text, prices, 1.1 * float(risks[0])).more([0.97])
    assert not paced(text, prices, 1.1 * float(risks[0])).more([0.97] * 3)
