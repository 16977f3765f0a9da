"""Requests that asked for no drafts of ours: they share the pass, and wait for what we draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.core.plan import Evidence, Outcome, RequestState
from localspec.policy.budgets import ReplyBudget
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.neighbours import Neighbours
from localspec.policy.storage import Knowledge

CURVE = {1: 10.0, 4: 10.5, 8: 12.0, 16: 16.0, 32: 26.0, 64: 50.0, 128: 98.0}
STATE = RequestState(3, 60, 10, "greedy", other_policy=True)


@pytest.mark.parametrize("requests", [2, 8])
def test_copies_of_one_do_not_slow_those_beside_it_that_asked_for_none(requests: int) -> None:
    """All that it copies is right, eight tokens a round: it wins more than it pays."""
    costs = Costs(CURVE)
    policy = Controller(Knowledge({0: costs.copy()}), ["suffix"], free=["suffix"])
    emitted, took, rounds = 0, 0.0, 120
    for at in range(rounds):
        first = RequestState(0, 100 + emitted, emitted, "greedy")
        others = [
            RequestState(seq, 100 + at, at, "greedy", other_policy=True)
            for seq in range(1, requests)
        ]
        (step,) = policy.plan([first, *others])[0].steps
        seen = [0.99]
        while len(seen) <= 8 and step.pace.more(seen):
            seen.append(0.99)
        n = len(seen) - 1
        emitted += 1 + n
        seconds = costs.pass_seconds(requests * (1 + n))
        took += seconds / costs.pass_seconds(requests)
        outcomes = [Outcome(0, "suffix", n, n, n + 1, 0.0, seconds)]
        outcomes += [
            Outcome(seq, "", 0, 0, 0, 0.0, seconds, other_policy=True) for seq in range(1, requests)
        ]
        policy.learn(outcomes, [Evidence(0, "suffix", 0.99, True)])
    assert rounds / took > 0.95
    assert emitted + (requests - 1) * rounds >= requests * took * 0.99


def test_an_account_goes_on_through_rounds_in_which_none_of_ours_runs() -> None:
    """Nor is it told of those, or how many of its forced tokens were kept."""
    neighbours = Neighbours()
    (account,) = neighbours.of([STATE], 1.0)
    neighbours.settle(3, -5.0, -2.0)
    assert neighbours.of([replace(STATE, length=75, emitted=25)], 1.0) == [account]
    assert (account.emitted, account.own, account.company) == (25, -3.0, -2.0)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(STATE, length=55, emitted=5), id="fewer tokens"),
        pytest.param(replace(STATE, length=90, emitted=20), id="another prompt"),
    ],
)
def test_a_request_that_takes_over_a_sequence_has_an_account_of_its_own(
    state: RequestState,
) -> None:
    neighbours = Neighbours()
    neighbours.of([STATE], 1.0)
    neighbours.settle(3, -30.0, 0.0)
    assert neighbours.of([state], 1.0) == [ReplyBudget(emitted=state.emitted)]


def test_replies_of_one_token_each_have_accounts_of_their_own_though_prompts_are_as_long() -> None:
    neighbours, first = Neighbours(), replace(STATE, length=50, emitted=0)
    for _ in range(2):
        assert neighbours.of([first], 1.0) == [ReplyBudget()]
        neighbours.settle(3, -0.5, 0.0)


def test_what_a_reply_lost_by_drafts_of_all_is_no_reason_against_the_copies_of_others() -> None:
    """One text in which the drafts of all are wrong would else forbid all others to copy."""
    costs = Costs(CURVE, {"model": 0.5})
    policy = Controller(Knowledge({0: costs}), ["suffix", "model"], free=["suffix"])
    at = 0

    def lose(source: str) -> float:
        """What copies of the first may cost after rounds in which drafts of the second failed."""
        nonlocal at
        for _ in range(20):
            states = [RequestState(seq, 50 + at, at, "greedy") for seq in (0, 1)]
            policy.plan(states)
            outcomes = [
                Outcome(0, source, 8, 8, 8, 0.1, 20.0),
                Outcome(1, source, 8, 0, 8, 0.1, 20.0),
            ]
            policy.learn(outcomes, [])
            at += 1
        policy.plan([replace(s, length=50 + at, emitted=at) for s in states])
        assert policy._replies[1].budget.left < 0
        return policy._replies[0].decision.candidates[0].budgets.others

    assert lose("model") > 0
    assert lose("suffix") == 0


@pytest.mark.parametrize("off", ["other policy", "no drafter"])
def test_short_replies_without_drafts_lose_a_draft_and_a_half_of_all_and_no_more(off: str) -> None:
    """Four tokens each, one after the other, beside three whose drafts are right and cost little:
    a rejected one loses a tenth of a token.
    """
    costs = Costs({1: 10.0, 4: 10.0, 8: 10.5, 16: 11.0, 32: 13.0, 64: 20.0}, {"model": 0.6})
    policy = Controller(Knowledge({0: costs}), ["model"])
    text = policy._beliefs.drafter(("model", "greedy"))
    for _ in range(60):
        text.learn(0.9, accepted=True)
    took, drafted, rounds = 0.0, 0, 80
    for at in range(rounds):
        states = [RequestState(s, 50 + at, at, "greedy") for s in range(3)]
        short = RequestState(3, 50 + at // 4 + at % 4, at % 4, "greedy")
        if off == "other policy":
            states.append(replace(short, other_policy=True))
        else:
            states.append(replace(short, drafters=frozenset()))
        plan = policy.plan(states)[0]
        depth = max((s.budget.depth for s in plan.steps if not s.probe), default=0)
        seconds = costs.pass_seconds(4 * (1 + depth)) + depth * 0.6
        took += seconds / costs.pass_seconds(4)
        drafted += depth
        outcomes = [
            Outcome(s, "model", depth, depth, depth, depth * 0.2, seconds) for s in range(3)
        ]
        outcomes.append(Outcome(3, "", 0, 0, 0, 0.0, seconds, states[3].other_policy))
        policy.learn(outcomes, [Evidence(s, "model", 0.9, True) for s in range(3)])
    assert drafted > 40
    assert rounds / took > 0.8


def test_a_reply_whose_first_rounds_another_policy_planned_goes_on_with_its_account() -> None:
    """A drafter may read the prompt after the first token only."""
    policy = Controller(Knowledge({0: Costs(CURVE, {"model": 0.1})}), ["model"])
    for at in range(5):
        states = [RequestState(s, 50 + at, at, "greedy", other_policy=s == 1) for s in (0, 1)]
        policy.plan(states)
        outcomes = [
            Outcome(0, "model", 3, 3, 3, 0.1, 12.0),
            Outcome(1, "", 0, 0, 0, 0.0, 12.0, other_policy=True),
        ]
        policy.learn(outcomes, [])
    policy.plan([RequestState(s, 55, 5, "greedy") for s in (0, 1)])
    budget = policy._replies[1].budget
    assert budget.emitted == 5
    assert budget.own == 0 > -0.5 > budget.company
