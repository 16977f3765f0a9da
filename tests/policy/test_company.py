"""Requests that run at once draft together, as far as gains the most for all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import policy_lab.report
import pytest
from policy_lab import world
from policy_lab.curves import CURVES, DISTURBANCES
from policy_lab.evidence import Predictions, Recorded
from policy_lab.report import Setting
from policy_lab.world import Asking, Running

from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.policy.acceptance import BINS, AcceptanceEstimate, bin_of
from localspec.policy.budgets import ReplyBudget
from localspec.policy.company import Member, agree, let_one_draft
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.gain import Expected
from localspec.policy.prices import PriceList, Prices
from localspec.policy.simple import Plain
from localspec.policy.storage import Knowledge

FLAT = Prices(np.array([1.0, 1.1, 1.2, 1.3, 1.5, 1.9]), 0.1)
CURVE = {1: 10.0, 4: 10.0, 8: 12.0, 16: 16.0, 32: 26.0, 64: 50.0}
STEADY = DISTURBANCES[0]
LONG = 160


def shown(right: float) -> Expected:
    """What drafts emit that are right so often, at one confidence."""
    text = AcceptanceEstimate()
    for i in range(60):
        text.learn(0.9, int((i + 1) * right) > int(i * right))
    text.seen = [float(b == bin_of(0.9)) for b in range(BINS)]
    return Expected(text, len(FLAT.costs))


# -- the decision --------------------------------------------------------------------------------


def test_all_draft_as_far_as_gains_the_most_for_the_mean_of_them() -> None:
    good, bad = shown(0.95), shown(0.1)
    agreed = agree([Member(good, 9.0), Member(bad, 9.0), Member(None, 9.0)], FLAT, 9.0)
    gains = []
    for k in range(1, 6):
        accepted = sum(e.table[bin_of(0.9)] * sum(e.mean**j for j in range(k)) for e in (good, bad))
        gains.append(accepted / 3 - (FLAT.costs[k - 1] - 1))
    assert agreed.best == agreed.depth == int(np.argmax(gains)) + 1
    assert agreed.best_gain == pytest.approx(max(gains))


def test_none_drafts_where_that_gains_nothing_for_all_of_them() -> None:
    """One of eight would gain by it."""
    members = [Member(shown(0.95), 9.0), *[Member(None, 9.0)] * 7]
    agreed = agree(members, FLAT, 9.0)
    assert agreed.depth == 0
    assert agreed.best_gain < 0.03
    alone = agree(members[:1], FLAT, 9.0)
    assert alone.depth > 0


def test_drafts_are_as_long_as_all_can_lose_and_each_can_bear() -> None:
    steep = Prices(np.array([1.0, 1.3, 1.6, 2.0, 2.4, 2.8]), 0.1)
    less_steep = Prices(np.array([1.0, 1.25, 1.4, 1.6, 1.9, 2.3]), 0.1)

    def depth(right: float, prices: Prices, budget: float, bears: float) -> int:
        members = [Member(shown(right), 9.0)] * 3 + [Member(None, bears)]
        agreed = agree(members, prices, budget)
        return agreed.depth

    assert [depth(0.8, less_steep, 9.0, bears) for bears in (9.0, 0.9, 0.5, 0.3)] == [3, 2, 1, 0]
    assert [depth(0.7, steep, budget, 9.0) for budget in (9.0, 0.1, 0.0)] == [1, 1, 0]


def test_a_drafted_token_of_each_costs_one_pass_of_the_drafter_that_all_wait_for() -> None:
    prices = PriceList({0: Costs({1: 10.0, 8: 12.0}, {"model": 2.0})}, 8, {}, pads=False)
    for n, cost in ((1, 0.2), (8, 2.0 * 1.2 / 12.0)):
        prices.read(50, n, 1)
        assert prices.of("model", copies=False).cost == pytest.approx(cost)


def test_what_a_pass_of_the_drafter_takes_is_learnt_from_drafts_that_share_it() -> None:
    """Three requests draft four, four and two tokens: four passes, over three rows and over two."""
    costs = Costs({1: 10.0, 4: 10.0}, {"model": 1.0})
    policy = Controller(Knowledge({0: costs}), ["model"])
    for at in range(60):
        policy.plan([RequestState(seq, 50 + at, at, "greedy") for seq in range(3)])
        lengths = (4, 4, 2)
        outcomes = [
            Outcome(seq, "model", n, n, n, 12.0 * n / sum(lengths), 22.0)
            for seq, n in enumerate(lengths)
        ]
        policy.learn(outcomes, [])
    assert costs.token_seconds("model") == pytest.approx(3.0, rel=0.1)


def test_drafts_of_other_policies_do_not_make_the_drafter_look_cheap() -> None:
    """One of four is ours; all of them share four passes."""
    costs = Costs({1: 10.0, 4: 10.0}, {"model": 1.0})
    policy = Controller(Knowledge({0: costs}), ["model"])
    for at in range(60):
        policy.plan([RequestState(s, 50 + at, at, "greedy", other_policy=s > 0) for s in range(4)])
        outcomes = [Outcome(s, "model", 4, 4, 4, 3.0, 22.0, other_policy=s > 0) for s in range(4)]
        policy.learn(outcomes, [])
    assert costs.token_seconds("model") == pytest.approx(3.0, rel=0.1)


def test_requests_that_switch_drafting_off_count_as_waiting() -> None:
    """With one that drafts and three that do not, a draft delays four."""
    costs = Costs({1: 10.0, 4: 10.0, 8: 14.0, 16: 20.0, 32: 40.0}, {"model": 1.0})

    def plans(others: bool) -> list[DraftPlan]:
        policy = Controller(Knowledge({0: costs.copy()}), ["model"])
        text = policy._beliefs.drafter(("model", "greedy"))
        for _ in range(60):
            text.learn(0.9, accepted=True)
        states = [
            RequestState(seq, 50, 0, "greedy", batch=4, other_policy=others and seq > 0)
            for seq in range(4)
        ]
        return policy.plan(states)

    assert all(any(s.budget.nodes for s in plan.steps) for plan in plans(others=False))
    assert not any(s.budget.nodes for plan in plans(others=True) for s in plan.steps)


def test_what_drafts_take_is_learnt_although_one_request_is_always_a_little_behind() -> None:
    """Who has copied is behind; only a bound would be learnt, and the belief never rise again. To
    read five tokens takes as long as two passes.
    """
    costs = Costs({1: 10.0, 4: 10.0, 5: 20.0, 20: 20.0}, {"model": 1.0})
    policy = Controller(Knowledge({0: costs}), ["model"])
    for at in range(200):
        states = [
            RequestState(s, 50 + at, at, "greedy", unread=5 if s == 0 else 0) for s in range(4)
        ]
        policy.plan(states)
        drafted = 5.0 * (4 + 1)  # four passes over four rows, and one more for what was missed
        outcomes = [Outcome(s, "model", 4, 4, 4, drafted / 4, 20.0 + drafted) for s in range(4)]
        policy.learn(outcomes, [])
    assert costs.token_seconds("model") == pytest.approx(5.0, rel=0.1)


def drafted_for(policy: Controller, neighbour: Outcome, rounds: int = 60) -> list[int]:
    """Depths of the drafts of three requests with good texts, beside one of another policy."""
    text, depths = policy._beliefs.drafter(("model", "greedy")), []
    for _ in range(60):
        text.learn(0.9, accepted=True)
    for at in range(rounds):
        emitted = at * (1 + neighbour.accepted)
        states = [RequestState(s, 50 + at, at, "greedy") for s in range(3)]
        states.append(RequestState(3, 50 + emitted, emitted, "greedy", other_policy=True))
        plans = policy.plan(states)
        depth = max((s.budget.depth for s in plans[0].steps if not s.probe), default=0)
        depths.append(depth)
        outcomes = [Outcome(s, "model", depth, depth, depth, 0.1, 20.0) for s in range(3)]
        policy.learn([*outcomes, neighbour], [Evidence(s, "model", 0.9, True) for s in range(3)])
    return depths


def test_a_neighbour_that_drafts_for_itself_pays_for_its_own_drafts_alone() -> None:
    """Its wrong ones would else count as ours, and none of us would draft beside it any more."""
    curve = {1: 10.0, 4: 10.0, 8: 12.0, 16: 20.0, 32: 40.0, 64: 80.0}
    policy = Controller(Knowledge({0: Costs(curve, {"model": 0.1})}), ["model"])
    wrong = Outcome(3, "model", 8, 0, 8, 0.1, 20.0, other_policy=True)
    assert sum(map(bool, drafted_for(policy, wrong))) > 30


def test_what_one_reply_lost_by_drafts_of_all_is_divided_among_those_that_won_by_them() -> None:
    """It goes on with its losses; three beside it end after 32 tokens, with what they won."""
    costs, rng = Costs(CURVE, {"model": 0.1}), random.Random(3)
    policy = Controller(Knowledge({0: costs}), ["model"])
    emitted, depths = [0] * 4, []
    for _ in range(160):
        emitted = [0 if s < 3 and n >= 32 else n for s, n in enumerate(emitted)]
        states = [RequestState(s, 50 + n, n, "greedy") for s, n in enumerate(emitted)]
        plan = policy.plan(states)[0]
        depth = max((s.budget.depth for s in plan.steps if not s.probe), default=0)
        seconds, outcomes, evidence = costs.pass_seconds(4 * (1 + depth)), [], []
        for s in range(4):
            right = [s < 3 and rng.random() < 0.5 for _ in range(max(1, depth))]
            n = [*right, False].index(False)
            evidence += [Evidence(s, "model", 0.7, each) for each in right[: n + 1]]
            n = min(n, depth)
            outcomes.append(Outcome(s, "model", depth, n, depth, 0.0, seconds))
            emitted[s] += 1 + n
        policy.learn(outcomes, evidence)
        depths.append(depth)
    assert policy._replies[3].budget.left < -9
    assert sum(map(bool, depths[-80:])) > 70


def test_what_all_lost_by_drafts_of_all_leaves_each_of_them_less() -> None:
    one, other = ReplyBudget(), ReplyBudget()
    for budget, company in ((one, -3.0), (other, 1.0)):
        budget.settle(50, company, company, shared=-1.0)
    assert (one.left, other.left) == pytest.approx((-0.5, 3.5))
    assert one.left_for_all == other.left_for_all == pytest.approx(1.5)


def test_a_trial_of_all_is_one_look() -> None:
    """Wide passes are believed to cost too much, and a trial of their price is due."""
    costs = Costs({1: 10.0, 8: 10.5, 32: 60.0, 64: 120.0}, {"model": 0.1})
    policy = Controller(Knowledge({0: costs}), ["model"])
    text = policy._beliefs.drafter(("model", "greedy"))
    for _ in range(60):
        text.learn(0.9, accepted=True)
    policy._beliefs.usual = 40.0
    look = policy._beliefs.looks(("model", "greedy"), 0)[1]
    for at in range(200):
        policy._beliefs.session.left = 9.0
        plans = policy.plan([RequestState(s, 50 + at, at, "greedy") for s in range(8)])
        depth = max((s.budget.depth for s in plans[0].steps if not s.probe), default=0)
        seconds = costs.pass_seconds(8 * (1 + depth))
        outcomes = [Outcome(s, "model", depth, 0, depth, 0.0, seconds) for s in range(8)]
        policy.learn(outcomes, [])
        if look.made:
            break
    assert look.made == 1
    assert depth <= 3


def test_one_drafter_drafts_for_all_and_a_trial_gives_way_to_it() -> None:
    some = agree([Member(shown(0.95), 9.0)], FLAT, 9.0)
    less = replace(some, gained=some.gained / 2)
    tried = replace(some, tried=True)
    chosen = let_one_draft({"less": less, "some": some, "tried": tried})
    assert {name: agreed.depth for name, agreed in chosen.items() if agreed.depth} == {
        "some": some.depth
    }
    assert chosen["less"].gives_way
    assert chosen["tried"].gives_way


def test_what_a_reply_cannot_emit_any_more_is_not_expected_of_its_draft() -> None:
    whole, ending = Member(shown(0.95), 9.0), Member(shown(0.95), 9.0, room=1)
    long, short = (agree([whole, one], FLAT, 9.0) for one in (whole, ending))
    none = agree([whole, Member(shown(0.95), 9.0, room=0)], FLAT, 9.0)
    waits = agree([whole, Member(None, 9.0)], FLAT, 9.0)
    assert none == waits
    assert long.best_gain > short.best_gain


def test_a_request_that_asked_for_no_drafts_waits_no_longer_than_it_may() -> None:
    """Three beside it draft, and nearly all of their guesses are right."""
    costs = Costs({1: 10.0, 4: 10.0, 8: 12.0, 16: 18.0, 32: 30.0, 64: 60.0}, {"model": 1.0})
    policy = Controller(Knowledge({0: costs}), ["model"])
    text = policy._beliefs.drafter(("model", "greedy"))
    for _ in range(60):
        text.learn(0.9, accepted=True)
    waited = drafted = 0.0
    for at in range(300):
        plans = policy.plan(
            [RequestState(s, 50 + at, at, "greedy", other_policy=s == 3) for s in range(4)]
        )
        depth = max((s.budget.depth for s in plans[0].steps if not s.probe), default=0)
        drafted += depth
        seconds = costs.pass_seconds(4 * (1 + depth)) + depth * costs.token_seconds("model")
        waited += seconds / costs.pass_seconds(4) - 1
        each = depth * costs.token_seconds("model") / 3
        outcomes = [Outcome(s, "model", depth, depth, depth, each, seconds) for s in range(3)]
        outcomes.append(Outcome(3, "", 0, 0, 0, 0.0, seconds, other_policy=True))
        policy.learn(outcomes, [Evidence(s, "model", 0.9, True) for s in range(3)] * min(1, depth))
    assert drafted > 100
    assert waited < 0.3 * 300


# -- in the laboratory: the draws are fixed ------------------------------------------------------


@pytest.fixture
def drafter(monkeypatch: pytest.MonkeyPatch) -> str:
    """A drafter of the laboratory that takes an eighth of a plain pass for a token."""
    asking = {**world.ASKING, "drafter": Asking(token=0.12)}
    monkeypatch.setattr(world, "ASKING", asking)
    monkeypatch.setattr(policy_lab.report, "ASKING", asking)
    return "drafter"


def replies(rates: Sequence[float]) -> list[Recorded]:
    """Replies in which the drafter is right so often, and is surer where it is right."""
    rng, found = np.random.default_rng(7), []
    for rate in rates:
        right = rng.random(LONG) < rate
        surer = np.where(right, rng.normal(150, 40, LONG), rng.normal(80, 50, LONG))
        said = Predictions(surer.clip(0, 249).astype(np.uint8), right)
        found.append(Recorded("constructed", 0.0, 20, {"drafter": said}))
    return found


def at_once(name: str, drafter: str, rates: Sequence[float], n: int) -> tuple[float, list[Running]]:
    """How many times as fast as plain decoding all replies are answered, and each of them."""
    (curve,) = (c for c in CURVES if c.name == name)
    setting, given = Setting(curve, STEADY, (drafter,)), replies(rates)
    plain = setting.world(Plain("compared with"), 0)
    plain.play(given, n)
    drafted = setting.world(setting.controller(0), 0)
    played = drafted.play(given, n)
    return plain.seconds / drafted.seconds, played


@pytest.mark.parametrize(
    ("curve", "gain"), [("server", 1.8), ("rtx3090", 1.15), ("epyc", 0.97), ("own-vnni", 0.97)]
)
def test_several_requests_gain_by_a_good_draft_where_their_machine_allows_it(
    curve: str, gain: float, drafter: str
) -> None:
    """Eight at once: with one decision for each, nobody began (1.05 and 0.99 times)."""
    assert at_once(curve, drafter, [0.95] * 24, 8)[0] >= gain


def test_a_draft_that_is_never_right_costs_several_requests_next_to_nothing(drafter: str) -> None:
    for curve in ("server", "rtx3090", "epyc"):
        assert at_once(curve, drafter, [0.0] * 24, 8)[0] >= 0.97


def test_a_text_that_cannot_be_drafted_loses_no_more_by_the_drafts_of_others_than_it_may(
    drafter: str,
) -> None:
    """Every fourth is right in a fifth of its guesses, the others in 95 %."""
    faster, played = at_once("server", drafter, [0.95, 0.95, 0.95, 0.2] * 6, 4)
    assert faster > 1.3
    assert min(reply.ratio for reply in played) > 0.7
