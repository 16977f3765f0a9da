"""Passes and drafts that take long for a while: interrupted twice in a row, or all of them."""

from __future__ import annotations

import random

import pytest
from policy_world import CPU, auto, plain_seconds, play, steady

from localspec.core.plan import Outcome, RequestState
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.prices import DOUBTFUL
from localspec.policy.storage import Knowledge

CURVE = {n: ms / 1000 for n, ms in CPU.items()}
DRAFT = 0.06 * CURVE[1]
"""Seconds of a drafted token."""


def disturbed(seed: int) -> Costs:
    """Costs after 120 computations, some of them interrupted, and 100 quiet plain passes."""
    rng, costs = random.Random(seed), Costs(CURVE, {"model": DRAFT})
    left, longer = 0, 1.0
    for _ in range(120):
        factor = 1.0
        if rng.random() < 0.03:
            left, longer = rng.choice([2, 3]), rng.choice([30.0, 300.0, 1000.0])
        if left > 0:
            left, factor = left - 1, longer
        (kind,) = rng.choices(["one", "several", "draft", "bound"], [0.7, 0.12, 0.1, 0.08])
        width, factor = rng.choice([2, 3, 4]), factor * rng.gauss(1, 0.03)
        if kind == "one":
            costs.passed(1, CURVE[1] * factor)
        elif kind == "several":
            costs.passed(width, CURVE[width] * factor)
        elif kind == "draft":
            costs.drafted("model", 3, 3 * DRAFT * factor)
        else:
            costs.bounded("model", 2 * DRAFT * factor)
    for _ in range(100):
        costs.passed(1, CURVE[1] * rng.gauss(1, 0.03))
    return costs


@pytest.mark.parametrize("seed", [15, 53, 83, 92, 104, 207])
def test_two_interruptions_in_a_row_do_not_part_the_costs_of_drafts_and_passes(seed: int) -> None:
    """Neither in what is reckoned with nor in what is saved for the next session."""
    costs = disturbed(seed)
    assert costs.verify(1) == pytest.approx(CURVE[1], rel=0.1)
    assert 1 / 5 < costs.draft("model") / costs.verify(1) / (DRAFT / CURVE[1]) < 5
    assert 1 / 5 < costs.curve()[1] / CURVE[1] < 5


def test_two_interrupted_passes_leave_it_in_doubt_what_several_tokens_cost() -> None:
    """Or nothing would be drafted any more, and no pass would show that it was chance: a session
    with stalls decoded plainly for 6,000 tokens.
    """
    costs = Costs(CURVE)
    for n in [1, 4, 1, 16, 1] * 40:
        costs.passed(n, CURVE[n])
    quiet = costs.verify(4) / costs.verify(1)
    for _ in range(2):
        costs.passed(4, 5 * CURVE[4])
        costs.passed(1, CURVE[1])
    assert costs.verify(4) / costs.verify(1) > 1.5 * quiet, "the second one is believed"
    assert costs.doubt(4) > DOUBTFUL
    for n in [1] * 8 + [4] + [1] * 8:
        costs.passed(n, CURVE[n])
    assert costs.verify(4) / costs.verify(1) == pytest.approx(quiet, rel=0.15)


def test_a_neighbour_that_leaves_between_two_drafts_does_not_end_drafting() -> None:
    """Only plain passes are seen after it: that they are quicker makes doubtful what drafts cost,
    so a trial measures them, and one pass over four tokens corrects the curve.
    """
    costs = Costs({n: 1e-3 * seconds for n, seconds in CPU.items()})

    def passes(*widths: int, one: float = 1.0, several: float = 1.0) -> None:
        for n in widths:
            costs.passed(n, 1e-3 * CPU[n] * (one if n == 1 else several))

    def ratio(n: int) -> float:
        return costs.verify(n) / costs.verify(1)

    passes(*[1, 16, 1, 4, 1] * 40)
    quiet = ratio(4), ratio(16)
    passes(*[1, 16, 1, 4] * 6, one=1.5, several=3.2)
    assert ratio(16) > 1.5 * quiet[1], "the neighbour is believed"
    passes(*[1] * 16)
    assert costs.doubt(4) > 0.3, "the lowest plausible prices are half as steep"
    passes(4)
    assert (ratio(4), ratio(16)) == pytest.approx(quiet, rel=0.25)


FLAT = {1: 30.0, 2: 30.7, 4: 32.1, 8: 34.9, 16: 40.5}
OWN = 6.0
"""Milliseconds of a drafted token."""


def speed(policy: Controller, cost: float, tokens: int, seed: int = 0) -> float:
    """Times plain decoding in a reply of a draft of which nine in ten tokens stand."""
    played = play(policy, steady(0.9, seed=seed), FLAT, cost, tokens=tokens)
    return plain_seconds(FLAT, tokens) / played.seconds


@pytest.mark.parametrize("tokens", [30, 60, 240])
@pytest.mark.parametrize("times", [3, 5, 8, 20])
def test_drafts_that_were_slow_for_a_while_are_used_again(times: float, tokens: int) -> None:
    """What a parked draft costs is looked at by a token of it, which the session can pay. The draws
    are fixed by their seeds: no alarm is by chance.
    """
    policy = auto(FLAT, OWN)
    for seed in range(3):
        speed(policy, OWN, 200, seed)
    speed(policy, times * OWN, tokens, 3)
    for seed in range(4, 8):
        speed(policy, OWN, 200, seed)
    assert speed(policy, OWN, 200, 8) > 1.7
    assert policy.costs.draft("model") == pytest.approx(OWN, rel=0.1)


def test_wide_passes_that_were_slow_for_a_while_are_looked_at_by_a_plain_one() -> None:
    """They are believed to cost eleven plain ones, so no draft shows that they cost one."""
    costs = Costs(FLAT)
    for _ in range(60):
        costs.passed(1, FLAT[1])
        costs.passed(4, 10 * FLAT[4])
    for _ in range(100):
        costs.passed(1, FLAT[1])
    assert costs.verify(4) / costs.verify(1) > 5
    policy, looks = Controller(Knowledge({0: costs}), ["model"], pads=True), 0
    for emitted in range(1500):
        (plan,) = policy.plan([RequestState(0, 10, emitted, "greedy", unread=emitted)])
        rows = plan.rows(1)
        looks += rows > 1
        policy.learn([Outcome(0, "", 0, 0, 0, 0, 0.0, FLAT[rows], padding=rows - 1)], [])
    assert looks == 1
    assert costs.verify(4) / costs.verify(1) == pytest.approx(FLAT[4] / FLAT[1], rel=0.1)


@pytest.mark.parametrize("times", [5, 20, 50])
def test_a_draft_that_was_measured_beside_another_program_is_used_in_the_same_session(
    times: float,
) -> None:
    policy = auto(FLAT, times * OWN)
    for seed in range(20):
        speed(policy, OWN, 200, seed)
    assert speed(policy, OWN, 200, 20) > 1.5


@pytest.mark.parametrize("cost", [24.0, 36.0, 120.0, 600.0])
def test_a_draft_that_is_too_dear_costs_less_than_the_session_saves(cost: float) -> None:
    policy = auto(FLAT, cost)
    found = [1 / speed(policy, cost, 200, seed) for seed in range(10)]
    assert sum(found) / len(found) < 1.008
    assert max(found) <= max(1.01, 1 + cost / FLAT[1] / 200 + 1e-9)  # a look or two in one reply
