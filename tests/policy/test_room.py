"""Requests whose drafts have little room, or none: the rest is not decided as if they had."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.plan import Evidence, Outcome, RequestState
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.company import Member, agree
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.gain import Expected
from localspec.policy.prices import Prices
from localspec.policy.reasons import NO_ROOM
from localspec.policy.storage import Knowledge

CURVE = {1: 10.0, 4: 10.5, 8: 12.0, 16: 16.0, 32: 26.0, 64: 50.0, 128: 98.0}


def good(costs: Costs) -> Controller:
    """A controller that knows a good draft."""
    policy = Controller(Knowledge({0: costs}), ["model"])
    text = policy._beliefs.drafter(("model", "greedy"))
    for _ in range(60):
        text.learn(0.9, accepted=True)
    return policy


def test_all_draft_no_further_than_any_has_room_for() -> None:
    """Five tokens would gain, and two do not."""
    prices = Prices(np.array([1.0, 3.4, 3.5, 3.6, 3.7, 3.8]), 0.0)
    text = AcceptanceEstimate()
    for _ in range(60):
        text.learn(0.9, accepted=True)
    expected = Expected(text, 5)
    found = [agree([Member(expected, 9.0, room)] * 2, prices, 9.0) for room in (5, 2, 0)]
    assert [(agreed.best, agreed.depth) for agreed in found] == [(5, 5), (2, 0), (0, 0)]
    assert agree([Member(expected, 9.0, 2), Member(expected, 9.0, 5)], prices, 9.0).best == 5


@pytest.mark.parametrize("room", [0, 1])
def test_one_that_may_draft_little_waits_no_longer_than_it_may(room: int) -> None:
    """Three beside it draft as far as they like, and are right."""
    costs = Costs(CURVE, {"model": 1.0})
    policy, emitted, took, drafted = good(costs.copy()), [0, 0, 0, 0], 0.0, 0
    for _ in range(150):
        states = [
            RequestState(s, 50 + n, n, "greedy", room=62 if s else room)
            for s, n in enumerate(emitted)
        ]
        plans = policy.plan(states)
        depth = max((s.budget.depth for s in plans[1].steps if not s.probe), default=0)
        drafts = [min(depth, state.room) for state in states]
        seconds = costs.pass_seconds(4 * (1 + depth)) + depth * costs.token_seconds("model")
        took += seconds / costs.pass_seconds(4)
        each = depth * costs.token_seconds("model") / 4
        policy.learn(
            [Outcome(s, "model", n, n, n, each, seconds) for s, n in enumerate(drafts)],
            [Evidence(s, "model", 0.9, True) for s, n in enumerate(drafts) if n],
        )
        emitted = [n + 1 + new for n, new in zip(emitted, drafts, strict=True)]
        drafted += depth
    assert drafted > 50
    assert emitted[0] / took > 0.78


@pytest.mark.parametrize("room", [0, 1])
def test_a_reply_without_room_for_drafts_leaves_others_what_they_may_copy(room: int) -> None:
    """Replies of a single token have none, and their own drafts would lose nothing."""
    rows_cost = Costs({n: 8.0 + 2 * n for n in CURVE}, {})
    policy = Controller(Knowledge({0: rows_cost}), ["suffix"], free=["suffix"])
    for _ in range(60):
        policy._beliefs.drafter(("suffix", "greedy")).learn(0.9, accepted=True)
    states = [RequestState(s, 50, 0, "greedy", room=62 if s else room) for s in (0, 1)]
    (step,) = (step for step in policy.plan(states)[1].steps if not step.probe)
    assert step.pace.more([0.9])


def test_nothing_is_drafted_probed_or_read_where_no_request_has_room_for_a_draft() -> None:
    """As beside others on targets whose state cannot be taken back by several tokens."""
    policy = good(Costs(CURVE, {"model": 0.2}))
    for at in range(40):
        states = [
            RequestState(s, 500 + at, at, "greedy", batch=4, unread=500 + at, room=0)
            for s in range(4)
        ]
        assert not any(policy.decide_reading(state) for state in states)
        assert not any(plan.steps for plan in policy.plan(states))
        policy.learn([Outcome(s, "", 0, 0, 0, 0.0, 10.5) for s in range(4)], [])
    assert policy.speculation_of(0) == NO_ROOM


@pytest.mark.parametrize(("source", "room"), [("suffix", 1), ("model", 1), ("model", 2)])
def test_one_alone_drafts_nothing_that_does_not_pay_within_its_room(source: str, room: int) -> None:
    """On machines whose passes over a few rows take as long as over many: longer drafts would pay.
    All guesses are right.
    """
    costs = Costs({1: 10.0, 2: 35.0, 8: 36.0, 16: 37.0, 32: 40.0}, {"model": 0.1})
    policy = Controller(Knowledge({0: costs.copy()}), ["suffix", "model"], free=["suffix"])
    text = policy._beliefs.drafter((source, "greedy"))
    for _ in range(60):
        text.learn(0.9, accepted=True)
    emitted, took, only = 0, 0.0, frozenset({source})
    for _ in range(100):
        state = RequestState(0, 50 + emitted, emitted, "greedy", room=room, drafters=only)
        (plan,) = policy.plan([state])
        n = 0
        for step in plan.within(room, 1).steps:
            while not step.probe and n < step.budget.depth and step.pace.more([0.9] * (n + 1)):
                n += 1
        rows = plan.rows(1 + n)
        seconds = costs.pass_seconds(rows)
        took += seconds / costs.pass_seconds(1)
        outcome = Outcome(0, source, n, n, n, 0.1 * n, seconds, padding=rows - 1 - n)
        policy.learn([outcome], [Evidence(0, source, 0.9, True)])
        emitted += 1 + n
    assert policy._replies[0].budget.left > 0
    assert emitted / took > 0.95
