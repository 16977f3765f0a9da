"""The reasons that are shown where nothing is drafted are true: their figures and their causes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from policy_world import CPU, GPU, auto, play, steady

from localspec.core.events import LONGEST_BRIEF
from localspec.core.plan import Evidence, Outcome, RequestState
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.company import Member, agree
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.decide import Belief, decide
from localspec.policy.gain import Budgets, Expected
from localspec.policy.prices import Prices
from localspec.policy.reasons import Guesses, hopeless, not_affordable
from localspec.policy.simple import FixedLength, Plain
from localspec.policy.storage import Knowledge, load, save

QUIET = 16
"""Rounds without a draft after which a reply is reported as parked."""


def lookups(*sources: str, curve: dict[int, float] = CPU, answer: float = 0.0) -> Controller:
    """A controller of drafters that copy, whose answer takes so many milliseconds."""
    costs = Costs(curve, {})
    for source in sources if answer else ():
        for _ in range(300):
            costs.record_answer(source, answer)
    return Controller(Knowledge({0: costs}), sources, free=sources)


def rounds(
    policy: Controller | FixedLength,
    n: int,
    *,
    seq: int = 0,
    emitted: int = 0,
    drafted: int = 0,
    evidence: Sequence[bool] = (),
    drafters: frozenset[str] | None = None,
) -> int:
    """Play rounds in which so much is drafted and all of it accepted; the tokens emitted then."""
    for _ in range(n):
        policy.plan([RequestState(seq, 20 + emitted, emitted, "greedy", drafters=drafters)])
        seconds = CPU[1 + drafted]
        outcome = Outcome(seq, "suffix", drafted, drafted, drafted, 0.0, seconds)
        seen = [Evidence(seq, "suffix", 0.2, right) for right in evidence]
        policy.learn([outcome], seen)
        emitted += 1 + drafted
    return emitted


def figure(pattern: str, text: str | None) -> tuple[float, ...]:
    found = re.search(pattern, text or "")
    assert found, text
    return tuple(map(float, found.groups()))


# -- figures -------------------------------------------------------------------------------------


def test_the_guesses_of_a_reason_are_counted_and_not_decayed() -> None:
    policy = lookups("suffix")
    rounds(policy, 100, evidence=[True, False, False])
    reason = policy.speculation_of(0).reason
    assert figure(r"(\d+) of (\d+) guesses were right in this reply", reason) == (100, 300)


def test_a_reason_of_a_draft_model_counts_the_verdicts_that_it_got() -> None:
    """It counts this reply's, and the last ones of all replies, which were better."""
    policy, verdicts = auto(CPU, 1.6), deque[bool](maxlen=64)
    learn = policy.learn
    here: list[bool] = []

    def seen(outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        learn(outcomes, evidence)
        verdicts.extend(e.accepted for e in evidence)
        here.extend(e.accepted for e in evidence)

    policy.learn = seen  # type: ignore[method-assign]
    for chance in (0.9, 0.2):
        here.clear()
        play(policy, steady(chance), CPU, 1.6)
    reason = policy.speculation_of(0).reason
    assert here
    assert figure(r"(\d+) of (\d+) guesses were right in this", reason) == (sum(here), len(here))
    if len(here) < 64:
        last = figure(r"(\d+) of the last (\d+)", reason)
        assert last == (sum(verdicts), len(verdicts))


def test_no_share_is_given_where_nothing_was_judged() -> None:
    policy = auto(CPU, 1.6)
    state = RequestState(0, 500, 0, "greedy", unread=500)
    policy.plan([state])
    shown = policy.speculation_of(0)
    assert shown.brief == "the draft model is not measured yet"
    assert "%" not in (shown.reason or "")
    free = lookups("suffix")
    rounds(free, 40)
    assert free.speculation_of(0).brief == "nothing to draft from yet"


def test_a_share_of_very_few_guesses_is_not_that_of_this_reply() -> None:
    assert Guesses(0, 2, 40, 64).share == "62%"
    assert Guesses(0, 20, 40, 64).share == "0%"
    assert Guesses(1, 2, 1, 2).share == "50%"


def test_the_last_verdicts_outlive_the_session(tmp_path: object) -> None:
    policy = auto(CPU, 1.6)
    play(policy, steady(0.5), CPU, 1.6)
    (estimate,) = policy.knowledge.acceptance.values()
    file = tmp_path / "costs.json"  # type: ignore[operator]
    save(file, policy.knowledge)
    again = load(file)
    assert again is not None
    (found,) = again.acceptance.values()
    assert estimate.verdicts
    assert found.verdicts == estimate.verdicts


def test_the_figures_of_a_reason_are_what_passes_take_not_what_others_are_spared() -> None:
    measured = np.array([1.0, 1.2, 1.6, 2.4])
    charged = Prices(1 + 10 * (measured - 1), 0.2, measured)
    why = hopeless(charged, 4, 1, 0.03)
    assert "with 4 requests at once" in (why.reason or "")
    assert "checking 2 tokens each takes 1.2 times as long as one each" in (why.reason or "")
    assert "drafting one of each takes 20% of the time" in (why.reason or "")


# -- causes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passes", "cost", "requests", "charged", "brief"),
    [
        ([1.0, 2.1, 3.2], 0.0, 1, 1, "checking drafts costs too much here"),
        ([1.0, 1.2, 1.4], 0.9, 1, 1, "the draft is too slow here"),
        ([1.0, 1.2, 1.4], 0.1, 4, 8, "drafts would slow the replies beside it"),
    ],
)
def test_the_cost_that_is_named_is_the_one_that_decides(
    passes: list[float], cost: float, requests: int, charged: float, brief: str
) -> None:
    curve = np.array(passes)
    why = hopeless(Prices(1 + charged * (curve - 1), cost, curve), requests, 1, 0.03)
    assert why.brief == brief


def test_what_a_reply_may_risk_is_the_cause_only_where_more_would_be_drafted_with_it() -> None:
    policy = auto(CPU, 1.6)
    for seed in range(3):
        play(policy, steady(0.5, seed=seed), CPU, 1.6, tokens=60)
    said = 0
    for seed in range(3, 40):
        says = steady(0.8, seed=seed)
        policy.decide_reading(RequestState(0, 10, 0, "greedy", unread=10))
        for at in range(24):
            state = RequestState(0, 10 + at, at, "greedy")
            policy.plan([state])
            if at and policy.speculation_of(0).brief == "wrong guesses would cost too much yet":
                said += 1
                budget = policy._replies[0].budget
                kept, budget.own = budget.own, 1e9
                (plan,) = policy.plan([state])
                assert any(step.budget.nodes for step in plan.steps)
                budget.own = kept
            c, right = says(at)
            policy.learn(
                [Outcome(0, "model", 0, 0, 1, 1.6, CPU[1] + 1.6)],
                [Evidence(0, "model", c, right)],
            )
    assert said


@pytest.mark.parametrize(
    ("requests", "budget", "bears", "says"),
    [
        (1, 0.01, 9.0, "this reply can lose 0.0 now"),
        (4, 0.01, 9.0, "each of 4 replies can lose 0.0 now"),
        (4, 9.0, 0.01, "some can lose no more by them now"),
    ],
)
def test_a_draft_that_this_reply_or_all_cannot_afford_says_who(
    requests: int, budget: float, bears: float, says: str
) -> None:
    known = AcceptanceEstimate()
    for _ in range(4):
        known.learn(0.9, accepted=True)
    expected, prices = Expected(known, 3), Prices(np.array([1.0, 1.6, 2.2, 2.8]), 0.1)
    belief = Belief("model", lambda: expected, prices)
    if requests > 1:
        members = [Member(expected, 9.0)] * requests + [Member(None, bears)]
        belief = replace(belief, agreed=agree(members, prices, budget))
    (candidate,) = decide([belief], 0, Budgets(budget, 9.0, 0.0)).candidates
    assert candidate.decided == "budget"
    assert says in (not_affordable(candidate, requests).reason or "")


def test_a_lookup_is_not_called_unlikely_where_checking_never_pays() -> None:
    steep = {1: 10.0, 2: 25.0, 4: 60.0, 8: 130.0, 16: 280.0, 32: 600.0}
    policy = lookups("suffix", curve=steep)
    rounds(policy, 40, evidence=[True])
    assert policy.speculation_of(0).brief == "checking drafts costs too much here"


def test_a_lookup_whose_answer_takes_too_long_is_called_so() -> None:
    policy = lookups("suffix", answer=5 * CPU[1])
    rounds(policy, 40)
    assert policy.speculation_of(0).brief == "looking for a match takes too long"


def test_a_request_that_nobody_may_draft_for_is_off_and_waits_for_no_text() -> None:
    nobody = frozenset[str]()
    fixed = FixedLength(4, Costs(CPU))
    for policy in (lookups("suffix"), auto(CPU, 1.6), fixed):
        policy.plan([RequestState(0, 20, 0, "greedy", drafters=nobody)])
        assert policy.speculation_of(0).state == "off"


# -- how long a reason stays ---------------------------------------------------------------------


def test_drafting_is_on_no_longer_than_some_rounds_after_the_last_draft() -> None:
    policy = lookups("suffix")
    at = rounds(policy, 3, drafted=3)
    assert policy.speculation_of(0).state == "on"
    at = rounds(policy, QUIET - 1, emitted=at)
    assert policy.speculation_of(0).state == "on"
    at = rounds(policy, 1, emitted=at)
    assert policy.speculation_of(0).state == "parked"
    rounds(policy, 1, emitted=at, drafted=3)
    assert policy.speculation_of(0).state == "on"


def test_a_reply_is_not_on_because_the_one_before_it_was() -> None:
    policy = lookups("suffix")
    rounds(policy, 5, drafted=3)
    rounds(policy, 1)
    assert policy.speculation_of(0).state == "parked"


def test_each_of_several_requests_has_its_own_state() -> None:
    policy = lookups("suffix", curve=GPU)
    for at in range(20):
        states = [RequestState(seq, 20 + at, at, "greedy") for seq in (0, 1)]
        policy.plan(states)
        policy.learn(
            [
                Outcome(0, "suffix", 3, 3, 3, 0.0, GPU[4]),
                Outcome(1, "suffix", 0, 0, 0, 0.0, GPU[4]),
            ],
            [],
        )
    assert policy.speculation_of(0).state == "on"
    assert policy.speculation_of(1).state == "parked"


def test_a_draft_that_is_asked_and_never_confident_is_not_on() -> None:
    policy = auto(GPU, 0.2)
    for seed in range(3):
        play(policy, steady(0.97, seed=seed), GPU, 0.2)
    for at in range(2 * QUIET):
        policy.plan([RequestState(0, 20 + at, at, "greedy")])
        policy.learn([Outcome(0, "model", 0, 0, 1, 0.2, 10.2)], [])
        if at < QUIET - 1:
            assert policy.speculation_of(0).state == "on"
    assert policy.speculation_of(0).brief == "the draft is not confident now"


def test_drafts_of_fixed_length_are_not_on_where_nothing_is_proposed() -> None:
    policy = FixedLength(4, Costs(CPU))
    at = rounds(policy, QUIET)
    assert policy.speculation_of(0).state == "parked"
    assert f"the last {QUIET} rounds" in (policy.speculation_of(0).reason or "")
    rounds(policy, 1, emitted=at, drafted=3)
    assert policy.speculation_of(0).state == "on"


def test_plain_decoding_says_what_it_was_told() -> None:
    assert Plain("no draft").speculation_of(3).reason == "no draft"


def test_every_brief_form_fits_a_line_of_figures() -> None:
    for judged in (8, 12345):
        for right in (0, judged):
            share = Guesses(right, judged).share
            assert len(f"the draft gains too little ({share} right)") <= LONGEST_BRIEF


def test_two_right_guesses_of_two_are_not_called_too_little_gain() -> None:
    policy = auto(CPU, 1.6)
    policy.plan([RequestState(0, 20, 0, "greedy")])
    seen = [Evidence(0, "model", 0.5, True)] * 2
    policy.learn([Outcome(0, "model", 0, 0, 0, 0.0, CPU[1])], seen)
    policy.plan([RequestState(0, 21, 1, "greedy")])
    shown = policy.speculation_of(0)
    assert shown.brief in {None, "too few guesses to tell", "wrong guesses would cost too much yet"}
    assert "faster" not in (shown.reason or "")
