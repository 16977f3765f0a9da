"""The figures of reasons, recomputed from all that a session has shown (recorded evidence)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

import pytest
from policy_lab.curves import CURVES, DISTURBANCES
from policy_lab.evidence import load
from policy_lab.report import Setting
from policy_lab.world import with_constructed

from localspec.core.events import LONGEST_BRIEF, Speculation
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.policy.controller import Controller

STEADY = DISTURBANCES[0]
LONGEST_ON = 32
"""Rounds without a draft in which drafting may be called on: sixteen after a draft, and sixteen in
which a draft model is asked and not confident."""


class Audited:
    """A controller, and what its reasons must say."""

    def __init__(self, policy: Controller) -> None:
        self._policy = policy
        self._kinds: dict[int, str] = {}
        self._here: dict[tuple[int, str], list[bool]] = {}
        self._lately: dict[tuple[str, str], deque[bool]] = {}
        self._without: dict[int, int] = {}
        self.shown: list[Speculation] = []

    @property
    def costs(self) -> object:
        return self._policy.costs

    def decide_reading(self, state: RequestState) -> bool:
        return self._policy.decide_reading(state)

    def speculation_of(self, seq: int) -> Speculation:
        return self._policy.speculation_of(seq)

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        for state in states:
            self._kinds[state.seq] = state.sampling
            if state.emitted == 0:
                self._here = {k: v for k, v in self._here.items() if k[0] != state.seq}
        return self._policy.plan(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self._policy.learn(outcomes, evidence)
        for e in evidence:
            kind = self._kinds[e.seq]
            self._here.setdefault((e.seq, e.source), []).append(e.accepted)
            self._lately.setdefault((e.source, kind), deque(maxlen=64)).append(e.accepted)
        for o in outcomes:
            self._check(o, self._policy.speculation_of(o.seq))

    def _check(self, o: Outcome, said: Speculation) -> None:
        if said.state == "on":
            self._without[o.seq] = 0 if o.proposed else self._without.get(o.seq, 0) + 1
            assert self._without[o.seq] <= LONGEST_ON
            return
        self._without[o.seq] = 0
        self.shown.append(said)
        assert said.reason
        assert said.brief
        assert len(said.brief) <= LONGEST_BRIEF
        here = [(sum(v), len(v)) for k, v in self._here.items() if k[0] == o.seq]
        kind = self._kinds[o.seq]
        lately = [(sum(v), len(v)) for k, v in self._lately.items() if k[1] == kind]
        for pattern, true in (
            (r"(\d+) of (\d+) guesses were right in this reply", here),
            (r"(\d+) of the last (\d+)", lately),
        ):
            found = re.search(pattern, said.reason)
            assert found is None or (int(found[1]), int(found[2])) in true, said.reason


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize(("curve", "sources"), [("epyc", "suffix+model"), ("rtx3090", "close")])
def test_the_counts_of_every_reason_are_those_of_the_session(
    curve: str, sources: str, at_once: int
) -> None:
    (found,) = (c for c in CURVES if c.name == curve)
    setting = Setting(found, STEADY, sources.split("+"))
    replies = [with_constructed(reply).cut(min(reply.length, 80)) for reply in load()[::24]]
    audited = Audited(setting.controller(0))
    setting.world(audited, 0).play(replies, at_once)  # type: ignore[arg-type]
    assert audited.shown
