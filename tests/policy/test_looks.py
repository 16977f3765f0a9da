"""What is spent to find out: budgets, probes, trials, and prompts that a draft model reads."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from policy_world import CPU, GPU, auto, plain_seconds, play, steady

from localspec.core.plan import Outcome, RequestState
from localspec.core.values import Probed
from localspec.policy.budgets import LOOKS, SAVED, SHARE, Look, ReplyBudget, SessionBudget
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge


def test_what_a_reply_may_lose_grows_with_its_tokens_and_with_what_was_won() -> None:
    budget = ReplyBudget()
    start = budget.left
    budget.settle(50, 0.0)
    assert budget.left == pytest.approx(start + 1.0)
    budget.settle(1, -start - 2.0)
    assert budget.left < 0
    for _ in range(50):
        budget.settle(4, 2.0)
    assert budget.left > 90


def test_a_reply_loses_no_more_rejected_drafts_where_they_cost_little() -> None:
    """Short replies: one and a half drafts, of which each loses a quarter of a token."""
    assert ReplyBudget(rejected=0.25).left == pytest.approx(ReplyBudget().left / 4)
    policy = auto(CPU, 1.5)
    policy.plan([RequestState(0, 20, 0, "greedy")])
    assert 0.9 < policy._replies[0].budget.rejected <= 1.0


def test_a_look_is_due_when_as_much_is_unseen_as_was_seen() -> None:
    look, made = Look(2, 0, 2), []
    for now in range(800):
        if look.is_due(now):
            look.done(now)
            made.append(now)
    assert made == [2, 6, 14, 30, 62, 126, 254, 510, 766]
    look.acted_on(900)
    assert not look.is_due(900 + 254)
    assert look.is_due(900 + 255)
    for now in range(1000, 1400):
        look.acted_on(now)
    assert not look.is_due(1399 + 3)
    assert look.is_due(1399 + 4)


def test_looks_that_never_change_anything_are_worth_less_and_less() -> None:
    vain, useful = Look(1, 0), Look(1, 0)
    for now in range(9):
        vain.done(now)
        useful.done(2 * now)
        useful.acted_on(2 * now + 1)
    assert vain.chance == pytest.approx(0.1)
    assert useful.chance == pytest.approx(1.0)


def test_looks_of_several_requests_in_one_round_are_one_interval() -> None:
    """Each has its price, so each counts where the share of useful ones decides."""
    look, price = Look(2, 0, 2), Look(24, 0, 24)
    for _ in range(8):
        look.done(2)
        price.done(24)
    assert (look.wait, price.wait, look.made) == (4, 48, 8)
    look.wait = 64
    for _ in range(8):
        look.acted_on(7)
    assert (look.wait, look.useful, look.chance) == (63, 8, 1.0)


def test_probes_of_several_requests_do_not_put_off_the_next_one_for_long() -> None:
    policy = auto(GPU, 0.5)
    for at in range(40):
        states = [RequestState(s, 50 + at, at, "greedy", unread=at) for s in range(8)]
        probes = sum(step.probe for plan in policy.plan(states) for step in plan.steps)
        if probes:
            break
    assert probes > 1
    assert policy._beliefs.looks(("model", "greedy"), 0)[0].wait == 4


@pytest.mark.parametrize("requests", [1, 2, 8])
def test_probes_come_although_replies_begin_all_the_time(requests: int) -> None:
    """Eight in vain made the first interval longer than the time between two beginnings."""
    policy = auto(GPU, 0.5)
    policy._beliefs.looks(("model", "greedy"), 0)[0].made = 8
    probed = 0
    for at in range(160):
        emitted = [(at + 16 * s // requests) % 16 for s in range(requests)]
        states = [RequestState(s, 50 + n, n, "greedy", unread=n) for s, n in enumerate(emitted)]
        plans = policy.plan(states)
        probed += any(step.probe for plan in plans for step in plan.steps)
        policy.learn([Outcome(s, "", 0, 0, 0, 0.0, GPU[1]) for s in range(requests)], [])
    assert probed >= 3


def test_a_probe_that_is_not_worth_it_for_one_reply_puts_off_none_of_another() -> None:
    """The first of a round is the longest, which costs the most to read."""
    policy, probed = auto(GPU, 2.0), set()
    for at in range(60):
        states = [
            RequestState(s, 5000, 2500 + at, "greedy", unread=unread)
            for s, unread in enumerate((4000, 4000, 2, 2))
        ]
        plans = policy.plan(states)
        probed |= {s for s, plan in enumerate(plans) for step in plan.steps if step.reads > 1}
        policy.learn([Outcome(s, "", 0, 0, 0, 0.0, GPU[4]) for s in range(4)], [])
    assert probed == {2, 3}


def test_the_session_saves_for_looks_a_small_share_of_its_time() -> None:
    budget = SessionBudget()
    budget.spend(budget.left)
    for _ in range(100):
        budget.save(1)
    assert budget.left == pytest.approx(0.8)
    budget.spend(99.0)
    assert budget.left == -LOOKS  # it owes no more than the price of a look


def test_the_first_thing_that_happens_with_an_unknown_draft_is_a_probe() -> None:
    """The median of 15 sessions; in one of 16 the draft is late. False alarm: 3e-5."""
    firsts = []
    for seed in range(15):
        policy = auto(CPU, 1.6)
        played = play(policy, steady(0.95, seed=seed), CPU, 1.6, tokens=40)
        assert played.probes >= 1
        firsts.append(next(i for i, k in enumerate([*played.lengths, 1]) if k))
    assert 2 <= statistics.median(firsts) <= 8


@pytest.mark.parametrize(("emitted", "tries"), [(20, False), (24, True)])
def test_a_trial_is_made_in_a_reply_that_is_long_enough(emitted: int, *, tries: bool) -> None:
    """One that fails loses two tokens on this curve: a tenth of a reply of twenty."""
    policy = auto(CPU, 3.0)
    state = RequestState(0, 20, 0, "greedy")
    policy.plan([state])
    reply = policy._replies[0]
    reply.budget.emitted = emitted
    belief = policy._beliefs.belief(reply, "model", 1.0, 99)
    assert (belief.at_best is not None) is tries
    policy._beliefs.usual = 10.0  # where replies are short, a trial must be made in one of them
    assert policy._beliefs.belief(reply, "model", 1.0, 99).at_best is not None


def test_a_parked_draft_that_gets_good_is_noticed_within_a_reply() -> None:
    policy = auto(GPU, 0.5)
    play(policy, steady(0.0, confidence=0.9), GPU, 0.5)
    play(policy, steady(0.0, confidence=0.9), GPU, 0.5)
    assert policy.speculation_of(0).state == "parked"
    played = play(policy, steady(1.0, confidence=0.9), GPU, 0.5)
    assert plain_seconds(GPU) / played.seconds > 1.5
    assert policy.speculation_of(0).state == "on"


def test_a_probe_never_costs_more_than_was_saved_for_it() -> None:
    """A hopeless draft is not read a long prompt to: short replies stay as fast as plain ones."""
    policy = auto(CPU, 1.5)
    for seed in range(4):
        play(policy, steady(0.0, seed=seed), CPU, 1.5)
    for seed in range(20):
        played = play(policy, steady(0.0, seed=seed), CPU, 1.5, tokens=16, prompt=2000)
        assert played.seconds <= plain_seconds(CPU, 16) / 0.99


def test_probes_in_vain_do_not_starve_another_kind_of_sampling() -> None:
    """The median of nine sessions: in one of ten, a trial has just spent what was saved, and the
    first reply of the other kind is plain.
    """
    drafted, probed = [], 0
    for session in range(9):
        policy = auto(CPU, 1.5)
        for seed in range(30):
            says = steady(0.5, confidence=0.95, seed=100 * session + seed)
            play(policy, says, CPU, 1.5, tokens=24)
        played = play(policy, steady(0.99, seed=session), CPU, 1.5, kind="1.0")
        probed += played.probes > 0
        drafted.append(sum(played.lengths))
    assert statistics.median(drafted) > 40
    assert probed >= 7


def test_a_probe_of_a_draft_takes_no_round_from_a_drafter_that_copies() -> None:
    policy = Controller(
        Knowledge({0: Costs(CPU, {"model": 1.7})}), ["suffix", "model"], free=["suffix"]
    )
    for emitted in range(20):
        (plan,) = policy.plan([RequestState(0, 10 + emitted, emitted, "greedy")])
        if any(step.probe for step in plan.steps):
            break
        policy.learn([Outcome(0, "suffix", 0, 0, 0, 0.0, CPU[1])], [])
    assert [(step.source, step.probe) for step in plan.steps] == [
        ("model", True),
        ("suffix", False),
    ]
    before = policy.costs.pass_seconds(4)
    for _ in range(9):  # a pass over four tokens, and as long again for the probe
        probed = Probed("model", CPU[4])
        policy.learn([Outcome(0, "suffix", 3, 3, 3, 0.0, 2 * CPU[4], probed=probed)], [])
    assert policy.costs.pass_seconds(4) == pytest.approx(before, rel=0.01)


PROMPT = RequestState(0, 50, 0, "greedy", unread=50)


def test_a_draft_that_may_pay_reads_the_prompt_with_the_target() -> None:
    policy = auto(CPU, 1.5)
    assert policy.decide_reading(PROMPT)  # nothing is known of it
    for seed in range(6):
        play(policy, steady(0.0, confidence=0.9, seed=seed), CPU, 1.5)
    assert not policy.decide_reading(PROMPT)
    assert not auto(CPU, 60.0).decide_reading(PROMPT)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(PROMPT, left=4), id="a reply of 4 tokens"),
        pytest.param(replace(PROMPT, length=4000, unread=4000), id="a prompt of 4,000 tokens"),
    ],
)
def test_a_draft_does_not_read_a_prompt_that_it_cannot_win_back(state: RequestState) -> None:
    assert not auto(CPU, 1.5).decide_reading(state)


def test_what_reading_costs_is_what_was_measured_of_the_drafter() -> None:
    """A small draft that waits for a core's overhead with one token reads many of them quickly."""
    costs, prompt = Costs(CPU, {"model": 1.5}), replace(PROMPT, length=1500, unread=1500)

    def reads(shares: dict[str, float]) -> bool:
        policy = Controller(Knowledge({0: costs}), ["model"], read_shares=shares)
        return policy.decide_reading(prompt)

    assert not reads({})  # as the target's passes do
    assert not reads({"model": 0.9})
    assert reads({"model": 0.01})


def test_a_draft_reads_the_rest_of_a_conversation_that_it_has_read() -> None:
    state = replace(PROMPT, length=4000, unread=40)
    assert auto(CPU, 1.5).decide_reading(state)


def test_a_draft_that_has_not_read_the_text_is_parked_until_it_has() -> None:
    """Or the first draft would have to read all of it, and everybody would wait."""
    policy = auto(GPU, 0.5)
    for seed in range(3):
        play(policy, steady(0.99, seed=seed), GPU, 0.5)
    policy = Controller(policy.knowledge, ["model"])
    for unread in (1000, 10):
        state = RequestState(0, 1000, 1, "greedy", unread=unread)
        (plan,) = policy.plan([state])
        assert bool(plan.steps) == (unread == 10)
        assert ("1000 tokens" in (policy.speculation_of(0).reason or "")) == (unread == 1000)


def test_a_sequence_that_another_drafter_drafted_for_before_tells_nothing_of_this_one() -> None:
    found = []
    for before in (True, False):
        costs = Costs(GPU, {"model": 0.1})
        policy = Controller(Knowledge({0: costs}), ["suffix", "model"], free=["suffix"])
        if before:
            first = RequestState(0, 50, 0, "greedy", drafters=frozenset({"suffix"}))
            policy.decide_reading(replace(first, unread=49))
            policy.plan([first])
        policy.decide_reading(RequestState(0, 500, 0, "greedy", unread=499))
        found.append(policy.decide_reading(RequestState(0, 501, 1, "greedy", unread=500)))
    assert found[0] == found[1]


def test_a_prompt_is_decided_on_anew_where_the_one_before_it_was_given_up() -> None:
    """It was as long, and nothing of its reply was planned."""
    policy = auto(CPU, 1.5)
    assert not policy.decide_reading(replace(PROMPT, drafters=frozenset()))
    assert policy.decide_reading(PROMPT)
    assert policy.decide_reading(replace(PROMPT, unread=9, batch=2))  # the next part of it


def copying(policy: Controller, tokens: int, answer: float) -> list[bool]:
    """A reply beside a drafter that copies and proposes nothing: the rounds in which it is asked,
    each of which it holds up so long.
    """
    asked = []
    for emitted in range(tokens):
        (plan,) = policy.plan([RequestState(0, 200 + emitted, emitted, "greedy")])
        asked.append(any(step.source == "suffix" for step in plan.steps))
        took = answer if asked[-1] else 0.0
        policy.learn([Outcome(0, "suffix", 0, 0, 0, took, GPU[1] + took)], [])
    return asked


def test_a_drafter_that_copies_is_asked_again_after_its_answers_were_slow_for_a_while() -> None:
    for believed in (0.5 * GPU[1], 4 * GPU[1]):
        policy = Controller(
            Knowledge({0: Costs(GPU, {"suffix": believed})}), ["suffix"], free=["suffix"]
        )
        asked = [copying(policy, 32, 0.001) for _ in range(20)]
        assert not any(asked[0][:8])
        assert all(all(one) for one in asked[-8:])
        assert policy.costs.token_seconds("suffix") == pytest.approx(0.001)


def test_answers_that_stay_slow_cost_no_more_than_replies_and_the_session_may_lose() -> None:
    for slow in (0.5 * GPU[1], 4 * GPU[1]):
        costs = Costs(GPU, {"suffix": slow})
        policy = Controller(Knowledge({0: costs}), ["suffix"], free=["suffix"])
        asked = sum(sum(copying(policy, 100, slow)) for _ in range(40))
        assert asked >= 2
        assert asked * slow < (SHARE + SAVED) * 4000 * GPU[1]
