"""Passes and drafts that take long for a while: interrupted twice in a row, or all of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from policy_world import CPU, auto, plain_seconds, play, steady

from localspec.core.plan import Outcome, RequestState
from localspec.core.values import Probed
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
            costs.record_pass(1, CURVE[1] * factor)
        elif kind == "several":
            costs.record_pass(width, CURVE[width] * factor)
        elif kind == "draft":
            costs.record_draft("model", 3, 3 * DRAFT * factor)
        else:
            costs.record_draft_at_most("model", 2 * DRAFT * factor)
    for _ in range(100):
        costs.record_pass(1, CURVE[1] * rng.gauss(1, 0.03))
    return costs


@pytest.mark.parametrize("seed", [15, 53, 83, 92, 104, 207])
def test_two_interruptions_in_a_row_do_not_part_the_costs_of_drafts_and_passes(seed: int) -> None:
    """Neither in what is reckoned with nor in what is saved for the next session."""
    costs = disturbed(seed)
    assert costs.pass_seconds(1) == pytest.approx(CURVE[1], rel=0.1)
    assert 1 / 5 < costs.token_seconds("model") / costs.pass_seconds(1) / (DRAFT / CURVE[1]) < 5
    assert 1 / 5 < costs.curve()[1] / CURVE[1] < 5


def test_two_interrupted_passes_leave_it_in_doubt_what_several_tokens_cost() -> None:
    """Or nothing would be drafted any more, and no pass would show that it was chance: a session
    with stalls decoded plainly for 6,000 tokens.
    """
    costs = Costs(CURVE)
    for n in [1, 4, 1, 16, 1] * 40:
        costs.record_pass(n, CURVE[n])
    quiet = costs.pass_seconds(4) / costs.pass_seconds(1)
    for _ in range(2):
        costs.record_pass(4, 5 * CURVE[4])
        costs.record_pass(1, CURVE[1])
    assert costs.pass_seconds(4) / costs.pass_seconds(1) > 1.5 * quiet, "the second one is believed"
    assert costs.doubt(4) > DOUBTFUL
    for n in [1] * 8 + [4] + [1] * 8:
        costs.record_pass(n, CURVE[n])
    assert costs.pass_seconds(4) / costs.pass_seconds(1) == pytest.approx(quiet, rel=0.15)


def test_a_neighbour_that_leaves_between_two_drafts_does_not_end_drafting() -> None:
    """Only plain passes are seen after it: that they are quicker makes doubtful what drafts cost,
    so a trial measures them, and one pass over four tokens corrects the curve.
    """
    costs = Costs({n: 1e-3 * seconds for n, seconds in CPU.items()})

    def passes(*widths: int, one: float = 1.0, several: float = 1.0) -> None:
        for n in widths:
            costs.record_pass(n, 1e-3 * CPU[n] * (one if n == 1 else several))

    def ratio(n: int) -> float:
        return costs.pass_seconds(n) / costs.pass_seconds(1)

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
    assert policy.costs.token_seconds("model") == pytest.approx(OWN, rel=0.1)


@pytest.mark.parametrize(
    ("requests", "length"),
    [
        pytest.param(1, 10, id="alone"),
        pytest.param(2, 10, id="two"),
        pytest.param(5, 10, id="five, wider than all that was measured at load"),
        pytest.param(1, 2000, id="in a longer context than any before"),
    ],
)
@pytest.mark.parametrize("pads", [True, False])
def test_wide_passes_that_were_slow_for_a_while_are_looked_at_by_a_plain_one(
    requests: int, length: int, *, pads: bool
) -> None:
    """They are believed to cost five plain ones at least, so no draft shows that they cost one."""
    costs, wide = slow_for_a_while(requests), 4 * requests
    before = costs.pass_seconds(wide) / costs.pass_seconds(requests)
    assert before > 5
    policy, looks = Controller(Knowledge({0: costs}), ["model"], pads=pads), 0
    for n in range(800):
        looks += decoded_plainly(policy, requests, length, n)
    costs, quiet = policy.costs, Costs(FLAT)
    ratio = costs.pass_seconds(wide) / costs.pass_seconds(requests)
    if requests == 1:
        assert looks == 1
        assert ratio == pytest.approx(quiet.pass_seconds(4) / quiet.pass_seconds(1), rel=0.1)
    else:  # all widths are those of passes over several: each look shows a part
        assert looks
        assert ratio < before


def slow_for_a_while(requests: int) -> Costs:
    """What is believed where passes over four rows of each request took ten times as long."""
    costs = Costs(FLAT)
    one, wide = costs.pass_seconds(requests), costs.pass_seconds(4 * requests)
    for _ in range(60):
        costs.record_pass(requests, one)
        costs.record_pass(4 * requests, 10 * wide)
    for _ in range(100):
        costs.record_pass(requests, one)
    return costs


def decoded_plainly(policy: Controller, requests: int, length: int, n: int) -> bool:
    """Round ``n`` of replies that nothing is drafted for; whether its pass was widened."""
    states = [RequestState(i, length, n, "greedy", unread=n) for i in range(requests)]
    rows = max(plan.rows(1) for plan in policy.plan(states))
    seconds = Costs(FLAT).pass_seconds(requests * rows)
    o = Outcome(0, "", 0, 0, 0, 0.0, seconds, padding=rows - 1)
    policy.learn([replace(o, seq=i) for i in range(requests)], [])
    return rows > 1


LINE = {1: 10.0} | {n: 7.0 + 3.0 * n for n in (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 63)}
STEP = {1: 10.0} | {n: 11.0 + n for n in (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 63)}


def sessions(
    policy: Controller,
    curve: dict[int, float],
    cost: float,
    slow: tuple[float, int],
    accepted: tuple[float, float, float],
    seed: int,
    prompt: int = 10,
) -> list[float]:
    """Times plain decoding in two replies of 600 tokens after one in which everything is so many
    times as slow; ``accepted`` is the acceptance before it, in it, and after it.
    """

    def ratio(tokens: int, accepted: float, factor: float, text: int) -> float:
        says = steady(accepted, seed=100 * seed + text)
        played = play(policy, says, curve, cost, tokens, lambda _n: factor, prompt=prompt)
        return plain_seconds(curve, tokens, lambda _n: factor) / played.seconds

    ratio(300, accepted[0], 1.0, 0)
    ratio(slow[1], accepted[1], slow[0], 1)
    return [ratio(600, accepted[2], 1.0, text) for text in (2, 3)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("slow", [(3.0, 128), (8.0, 600)])
def test_no_reply_is_slower_because_everything_was_slow_before(
    slow: tuple[float, int], seed: int
) -> None:
    """Every round drafts when the machine recovers, so no plain pass shows it: replies stayed at
    0.7 to 0.87 for thousands of tokens. The draws are fixed by their seeds.
    """
    policy = Controller(Knowledge({0: Costs(LINE, {"model": 0.5})}), ["model"], pads=True)
    assert min(sessions(policy, LINE, 0.5, slow, (0.85, 0.6, 0.6), seed)) > 1.0
    assert policy.costs.pass_seconds(4) / policy.costs.pass_seconds(1) == pytest.approx(
        1.9, rel=0.1
    )


@pytest.mark.parametrize("seed", [7, 8])
def test_drafts_are_used_again_where_the_target_does_not_pad(seed: int) -> None:
    """The draft has read no prompt by then, and to read one costs too much by what is believed. The
    draws are fixed by their seeds.
    """
    policy = Controller(Knowledge({0: Costs(STEP, {"model": 1.0})}), ["model"])
    assert sessions(policy, STEP, 1.0, (3.0, 60), (0.85, 0.85, 0.85), seed, 400)[-1] > 1.4


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_plain_pass_is_looked_at_where_a_draft_costs_nothing_but_it(seed: int) -> None:
    """A drafter that copies shows by no price of its own that the machine is as fast as before."""
    policy = Controller(Knowledge({0: Costs(LINE)}), ["suffix"], free=["suffix"], pads=True)
    assert min(sessions(policy, LINE, 0.0, (3.0, 10), (0.85, 0.3, 0.4), seed)) > 0.93


def test_a_plain_pass_is_looked_at_only_where_a_wider_one_was_quicker_than_believed() -> None:
    """After intervals that double while none is seen."""
    costs = Costs(LINE, {"model": 0.5})
    policy, looks = Controller(Knowledge({0: costs}), ["model"]), []
    for n in range(60):
        policy.plan([RequestState(0, 10 + n, n, "greedy")])
        looks.append(policy._plain.made)
        if n < 20:
            costs.record_pass(1, 5 * LINE[1])
        else:
            costs.record_pass(4, LINE[4])
    assert looks[20] == 0
    assert looks[-1] in {4, 5}


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


def answered(policy: Controller, seconds: float, n: int, requests: int) -> list[float]:
    """Round ``n``, in which the drafter of the first request takes so long for nothing, or for a
    probe; what each may lose after it.
    """
    states = [RequestState(i, 10 + n, n, "greedy", unread=2) for i in range(requests)]
    policy.plan(states)
    source, took = policy._beliefs.sources[0], [seconds] + [1e-5] * (requests - 1)
    lasted = FLAT[1] / 1000 + sum(took)
    if source == "model":
        round_ = [
            Outcome(i, "", 0, 0, 0, 0.0, lasted, probed=Probed(source, s))
            for i, s in enumerate(took)
        ]
    else:
        round_ = [Outcome(i, source, 0, 0, 0, s, lasted) for i, s in enumerate(took)]
    policy.learn(round_, [])
    return [reply.budget.left for reply in policy._replies.values()]


@pytest.mark.parametrize("requests", [1, 4])
@pytest.mark.parametrize(("source", "each"), [("model", 1e-3), ("suffix", 2e-5)])
def test_a_stall_while_a_drafter_is_asked_is_charged_to_no_reply(
    source: str, each: float, requests: int
) -> None:
    """One of a third of a second parked a draft of which seven in ten tokens stand for the rest of
    the reply, and of all beside it. What is as slow the next time is no stall.
    """
    costs = Costs({n: ms / 1000 for n, ms in FLAT.items()}, {source: each})
    free = [] if source == "model" else [source]
    policy = Controller(Knowledge({0: costs}), [source], free=free)
    before = answered(policy, each, 1, requests)
    stalled = answered(policy, 0.3, 2, requests)
    assert stalled == pytest.approx(before, abs=0.3)
    for n in range(3, 250):
        before = answered(policy, each, n, requests)
    assert answered(policy, 0.3, 250, requests) == pytest.approx(before, abs=0.5)
    assert max(answered(policy, 0.3, 251, requests)) < min(before) - 5


@pytest.mark.parametrize(("source", "each"), [("model", 1e-3), ("suffix", 2e-5)])
def test_a_drafter_that_is_slow_now_and_then_is_charged_for_it(source: str, each: float) -> None:
    """One answer in three that took 0.3 s was taken for a stall every time: 0.7 times plain."""
    costs = Costs({n: ms / 1000 for n, ms in FLAT.items()}, {source: each})
    policy = Controller(Knowledge({0: costs}), [source], free=[] if source == "model" else [source])
    answered(policy, each, 1, 1)
    answered(policy, 0.3, 2, 1)
    before = answered(policy, each, 3, 1)
    answered(policy, each, 4, 1)
    assert answered(policy, 0.3, 5, 1)[0] < before[0] - 5
