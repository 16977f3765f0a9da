"""The plan of a parked reply is kept while nothing is shown that could change it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.core.values import Probed
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.policy.tuning import ControllerTuning
from tests.policy_world import CPU, GPU, auto, play, steady

KEPT = ControllerTuning().kept
TEXT = RequestState(0, 400, 200, "greedy")
PROMPT = replace(TEXT, length=200, emitted=0)


def parked() -> Controller:
    """A controller whose reply is parked, drafts being copied from the text, after many rounds."""
    policy = Controller(Knowledge({0: Costs(CPU, {})}), ["suffix"], free=["suffix"])
    policy.plan([PROMPT])
    for _ in range(40):
        after(policy)
        policy.plan([TEXT])
    while policy.plan([TEXT])[0] is policy.plan([TEXT])[0]:
        pass
    return policy


def after(
    policy: Controller,
    *,
    requests: int = 1,
    shown: Sequence[bool] = (),
    drafted: int = 0,
    probed: Probed | None = None,
) -> None:
    """The end of a round of that many requests, of which the first has shown something."""
    seconds = CPU[requests * (1 + drafted)]
    one = Outcome(0, "suffix", drafted, drafted, drafted, drafted, 0.0, seconds)
    others = [replace(one, seq=seq, proposed=0, considered=0) for seq in range(1, requests)]
    evidence = [Evidence(0, "suffix", i, 0.2, right) for i, right in enumerate(shown)]
    policy.learn([replace(one, probed=probed), *others], evidence)


def planned(policy: Controller, state: RequestState = TEXT) -> DraftPlan:
    (plan,) = policy.plan([state])
    return plan


def test_a_plan_is_kept_for_some_rounds_and_no_longer() -> None:
    policy, plans = parked(), []
    for _ in range(4 * KEPT):
        plans.append(planned(policy))
        after(policy)
    runs, length = [], 1
    for before, plan in itertools.pairwise(plans):
        length += 1
        if plan is not before:
            runs.append(length - 1)
            length = 1
    assert runs
    assert max(runs) <= KEPT
    assert len(runs) <= 8, "it is planned anew in few of the rounds"


def test_a_kept_plan_drafts_as_far_as_the_reply_can_afford_by_now() -> None:
    policy = parked()
    policy._parts.ledgers[0]._balance = -10.0
    planned(policy)
    (before,) = planned(policy).steps
    assert not before.pace.more([0.99])
    policy._parts.ledgers[0]._balance = 5.0
    (now,) = planned(policy).steps
    assert now is before, "the plan is kept"
    assert now.pace.more([0.99])


@pytest.mark.parametrize(
    "news",
    [
        {"shown": [True]},
        {"shown": [False]},
        {"drafted": 1},
        {"probed": Probed("suffix", 0.1)},
    ],
    ids=["a right guess", "a wrong guess", "a draft", "a probe"],
)
def test_what_a_round_has_shown_is_planned_with(news: dict[str, object]) -> None:
    policy = parked()
    before = planned(policy)
    after(policy)
    assert planned(policy) is before, "nothing was shown"
    after(policy, **news)  # type: ignore[arg-type]
    assert planned(policy) is not before


@pytest.mark.parametrize(
    "state",
    [
        replace(TEXT, sampling="t1"),
        replace(TEXT, drafters=frozenset()),
        replace(TEXT, unread=ControllerTuning().behind + 1),
        PROMPT,
    ],
    ids=["another temperature", "other drafters", "a text that is not read", "another reply"],
)
def test_another_state_of_the_request_is_planned_for(state: RequestState) -> None:
    policy = parked()
    policy.plan([replace(PROMPT, sampling="t1")])
    policy.plan([PROMPT])
    planned(policy)
    before = planned(policy)
    assert planned(policy) is before
    assert planned(policy, state) is not before


def test_measured_again_passes_are_planned_with() -> None:
    policy = parked()
    before = planned(policy)
    policy.measured({0: Costs(GPU, {})})
    assert planned(policy) is not before


def test_what_others_can_bear_no_longer_is_not_drafted() -> None:
    """Another request that has lost its balance to drafts ends the plan that was kept."""
    policy = Controller(Knowledge({0: Costs(CPU, {})}), ["suffix"], free=["suffix"])
    states = [TEXT, replace(TEXT, seq=1)]
    policy.plan([replace(state, length=200, emitted=0) for state in states])
    for _ in range(40):
        after(policy, requests=2)
        policy.plan(states)
    kept = False
    for _ in range(2 * KEPT):
        before = policy.plan(states)[0]
        again = policy.plan(states)[0]
        if again is before:
            kept = True
            break
    assert kept
    policy._parts.sharing._balance[1] -= 1.0
    assert policy.plan(states)[0] is not before


def test_trials_are_planned_in_every_round() -> None:
    """They may be longer with every token, and `Trials` forgets them after each round."""
    policy = Controller(Knowledge({0: Costs(GPU, {})}), ["suffix"], free=["suffix"])
    policy.plan([PROMPT])
    tried = 0
    for at in range(60):
        plan = planned(policy, replace(TEXT, length=200 + at, emitted=at))
        if policy._trials.made(("suffix", "greedy")):
            tried += 1
            assert planned(policy, replace(TEXT, length=200 + at, emitted=at)) is not plan
        after(policy, shown=[True] if at < 20 else [])
    assert tried


@pytest.mark.parametrize("curve", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("stands", [0.001, 0.3, 0.6, 0.9])
def test_replies_take_as_long_as_if_every_round_were_planned_anew(
    stands: float, curve: dict[int, float]
) -> None:
    """Four replies, within 1 %: a probe may come a few rounds later."""
    seconds = []
    for kept in (KEPT, 1):
        policy = auto(curve, 0.06 * curve[1])
        policy._parts.tuning = replace(policy._parts.tuning, kept=kept)
        played = [
            play(policy, steady(stands, seed=seed), curve, 0.06 * curve[1]) for seed in range(4)
        ]
        seconds.append(sum(reply.seconds for reply in played))
    assert seconds[0] == pytest.approx(seconds[1], rel=0.01)
