"""A machine and a draft with known properties, on which a policy is played without a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from localspec.core.plan import Evidence, Outcome, RequestState
from localspec.core.values import Probed
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

CPU = {1: 28.5, 2: 54, 3: 76.5, 4: 73.5, 5: 99, 6: 124, 8: 142, 16: 212, 32: 420}
"""Milliseconds by width, as measured on two cores with Q4_0: steps of four, and steep."""
GPU = {1: 10, 2: 10.5, 4: 11, 8: 12.5, 16: 16, 32: 26}

Says = Callable[[int], tuple[float, bool]]
"""Position -> (confidence, whether the draft's token stands)."""


def auto(curve: dict[int, float], cost: float, source: str = "model") -> Controller:
    """A controller that knows the machine and nothing of the draft."""
    return Controller(Knowledge({0: Costs(curve, {source: cost})}), [source])


class Timeless(Controller):
    """Knows what passes cost, whatever they take on the machine that runs the tests."""

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        timed = []
        for o in outcomes:
            draft_s = 1e-3 * self.costs.pass_seconds(1) * o.considered
            seconds = self.costs.pass_seconds(1 + o.proposed) + draft_s
            timed.append(replace(o, draft_s=draft_s, round_s=seconds))
        super().learn(timed, evidence)


@dataclass
class Played:
    """One reply."""

    seconds: float = 0.0
    lengths: list[int] = field(default_factory=list)
    probes: int = 0


def play(
    policy: Controller,
    says: Says,
    curve: dict[int, float],
    cost: float,
    tokens: int = 128,
    slow: Callable[[int], float] = lambda _n: 1.0,
    kind: str = "greedy",
    prompt: int = 10,
) -> Played:
    """A reply of so many tokens, drafted for as the policy plans; ``slow`` slows positions down."""
    machine, played, at = Costs(curve), Played(), 0
    # Tokens that the draft has read, the prompt's counted as negative.
    read = 0 if policy.decide_reading(RequestState(0, prompt, 0, kind, unread=prompt)) else -prompt
    while at < tokens:
        (plan,) = policy.plan([RequestState(0, prompt + at, at, kind, unread=at - read)])
        plan = plan.within(tokens - at - 1, 1)
        evidence: list[Evidence] = []
        confidences: list[float] = []
        drafted = 0
        draft_s = 0.0
        step = plan.steps[0] if plan.steps else None
        if step is not None and step.probe:
            played.probes += 1
            upto = min(at, read + step.reads)
            seen = [says(i) for i in range(max(read, upto - 16, 0), upto)]
            evidence = [Evidence(0, step.source, c, s) for c, s in seen]
            draft_s, read = cost * (0.7 + 0.3 * (upto - read)), upto
        elif step is not None and step.budget.nodes:
            read = at
            while drafted < step.budget.depth:
                confidences.append(says(at + drafted)[0])
                if not step.pace.more(confidences):
                    break
                drafted += 1
                if not step.pace.further(confidences):
                    break
            draft_s = cost * len(confidences)
        accepted = 0
        while accepted < drafted and says(at + accepted)[1]:
            accepted += 1
        judged = min(accepted + 1, len(confidences))
        source = step.source if step else "model"
        evidence += [Evidence(0, source, confidences[i], says(at + i)[1]) for i in range(judged)]
        factor = slow(at)
        probed = None
        if step is not None and step.probe:
            probed = Probed(step.source, factor * draft_s)
        rows = plan.rows(1 + drafted)
        seconds = factor * (machine.pass_seconds(rows) + draft_s)
        policy.learn(
            [
                Outcome(
                    0,
                    source,
                    drafted,
                    accepted,
                    len(confidences),
                    0.0 if probed else factor * draft_s,
                    seconds,
                    padding=rows - 1 - drafted,
                    probed=probed,
                )
            ],
            evidence,
        )
        at += accepted + 1
        played.seconds += seconds
        played.lengths.append(drafted)
    return played


def plain_seconds(
    curve: dict[int, float], tokens: int = 128, slow: Callable[[int], float] = lambda _n: 1.0
) -> float:
    """Seconds of the reply without drafting."""
    return sum(slow(n) * curve[1] for n in range(tokens))


def steady(stands: float, confidence: float | None = None, seed: int = 0) -> Says:
    """Every token stands with the same probability, and the draft says so, or something else."""

    def says(n: int) -> tuple[float, bool]:
        sure = stands if confidence is None else confidence
        return sure, random.Random(f"{seed}/{n}").random() < stands

    return says
