"""What grammars force makes neither rounds without drafts nor costs of drafters."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import tables
from ruled import turns

from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.core.values import Draft, no_draft
from localspec.decode.verifiers import Match
from localspec.drafters.base import Ask, Off
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed

FLAT = {n: 0.02 * (1 + 0.01 * n) for n in (1, 2, 3, 4, 8, 16, 32, 63)}
"""Seconds by width: drafts pay."""


def shares(requests: int, forced: float, rounds: int = 600) -> tuple[float, int]:
    """(Share of rounds that nobody may draft in, most of them in a row), where a round of a request
    has tokens that its grammar forces with that chance, and all that is copied is right.
    """
    policy = Controller(Knowledge({0: Costs(FLAT)}), ["suffix"], free=["suffix"])
    rng = random.Random(1)
    lengths = [100] * requests
    plain = longest = running = 0
    for _ in range(rounds):
        states = [
            RequestState(seq, lengths[seq], lengths[seq] - 100, "greedy", batch=requests)
            for seq in range(requests)
        ]
        plans = policy.plan(states)
        none = all(not plan.steps for plan in plans)
        running = running + 1 if none else 0
        plain, longest = plain + none, max(longest, running)
        drafts = []
        for plan in plans:
            confidences = [0.97]
            while plan.steps and len(confidences) <= 8 and plan.steps[0].pace.more(confidences):
                confidences.append(0.97)
            drafts.append((len(confidences) - 1, 3 * (rng.random() < forced)))
        width = max(1 + drafted + more for drafted, more in drafts)
        seconds = 0.02 * (1 + 0.01 * width * requests) + requests * 1e-5
        outcomes = [
            Outcome(seq, "suffix", n, n, n, 1e-5, seconds, forced=more)
            for seq, (n, more) in enumerate(drafts)
        ]
        seen = [Evidence(o.seq, "suffix", 0.97, True) for o in outcomes for i in range(o.proposed)]
        policy.learn(outcomes, seen)
        for o in outcomes:
            lengths[o.seq] += 1 + o.accepted + o.forced
    return plain / rounds, longest


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1, 4, 8])
@pytest.mark.parametrize("forced", [0.0, 0.3, 0.9])
def test_rounds_without_drafts_stay_seldom(requests: int, forced: float) -> None:
    share, longest = shares(requests, forced)
    assert longest <= 2
    assert share < 0.05


class _Asking(Controller):
    """Has the drafter asked in every round, whatever it decides."""

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        super().plan(states)
        return Fixed(3).plan(states)


class _Unsure(Off):
    """Computes a q in every round, and drafts nothing."""

    name = "unsure"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [no_draft(self.name, 1e-4, 1) for _ in asks]


@pytest.mark.parametrize("free", [[], ["unsure"]], ids=["computes", "copies"])
def test_no_cost_is_learnt_of_what_a_grammar_forces(free: list[str]) -> None:
    costs = Costs({1: 0.001, 2: 0.0011, 4: 0.0012, 8: 0.0013})
    policy = _Asking(Knowledge({0: costs}), ["unsure"], free=free)
    table = tables.random_table(21, v=4, sharpness=1.0)
    tables.decode(table, _Unsure(), Match(), 0, 20, policy=policy, rule=turns)
    assert costs.token_seconds_by_drafter().keys() == {"unsure"}
