"""Plays a policy on recorded evidence, under the costs of a machine, without llama.cpp.

Time is counted in plain tokens: the seconds of a round by the seconds that plain decoding would
take for one token of each running request at that moment. So a ratio is not disturbed by what makes
all passes slower, and two runs are compared without noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.core.plan import DraftPlan, DraftStep, Evidence, Outcome, RequestState
from localspec.policy import Policy
from policy_lab.curves import Curve, Disturbance
from policy_lab.evidence import NO_CHAIN, Predictions, Recorded

BATCHED = 0.25
"""Cost of a token that a draft model reads with others, by that of one alone."""
PROBED = 16
"""Tokens that a probe compares at most."""


@dataclass(frozen=True)
class Asking:
    """What asking a drafter costs."""

    token: float = 0.0
    """Share of a plain pass for a drafted token."""
    ask: float = 0.0
    """Milliseconds for an answer, whatever it is."""


ASKING: Mapping[str, Asking] = {
    "model": Asking(token=0.06),
    "close": Asking(token=0.12),
    "bad": Asking(token=0.06),
    "random": Asking(token=0.06),
    "sure": Asking(token=0.06),
    "suffix": Asking(ask=0.05),
    "ngram": Asking(ask=0.01),
}
"""By drafter. ``random`` and ``sure`` are constructed: never right, and the latter sure of it."""


def with_constructed(reply: Recorded) -> Recorded:
    """The reply with the evidence of two drafts that are never right."""
    n = reply.length
    never = np.zeros(n, bool)
    sources = {
        **reply.sources,
        "random": Predictions(np.zeros(n, np.uint8), never),
        "sure": Predictions(np.full(n, 150, np.uint8), never),
    }
    return Recorded(reply.workload, reply.temperature, reply.prompt, sources)


@dataclass
class Running:
    """A reply that is being generated."""

    seq: int
    reply: Recorded
    at: int = 0
    """Tokens emitted."""
    units: float = 0.0
    """Time in plain tokens."""
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Tokens of the reply that a drafter has read; the prompt's, if missing, count negative."""

    @property
    def done(self) -> bool:
        return self.at >= self.reply.length

    @property
    def state(self) -> RequestState:
        kind = "greedy" if self.reply.temperature == 0 else f"{self.reply.temperature:g}"
        return RequestState(self.seq, self.reply.prompt + self.at, self.at, kind)

    @property
    def ratio(self) -> float:
        """Times plain decoding."""
        return self.at / self.units


@dataclass(frozen=True)
class Drafted:
    """What one request drafts in a round."""

    source: str = ""
    tokens: int = 0
    accepted: int = 0
    considered: int = 0
    draft_ms: float = 0.0
    evidence: tuple[Evidence, ...] = ()


class World:
    """One machine and one policy; replies are played one after the other or at once."""

    def __init__(self, policy: Policy, curve: Curve, disturbance: Disturbance, seed: int) -> None:
        self._policy = policy
        self._table = curve.table()
        self._launches = curve.launches
        self._last = 0, 0
        """Width of the last pass, and how many of that width there were in a row."""
        self._disturbance = disturbance
        self._rng = random.Random(seed)
        self.seconds = 0.0

    def play(self, replies: Iterable[Recorded], at_once: int = 1) -> list[Running]:
        """Every reply, so many at a time: the next one starts when one has ended."""
        waiting = list(replies)[::-1]
        free = list(range(at_once))[::-1]
        running: list[Running] = []
        done: list[Running] = []
        while waiting or running:
            while waiting and free:
                running.append(self._started(free.pop(), waiting.pop()))
            self._round(running)
            for item in [r for r in running if r.done]:
                running.remove(item)
                free.append(item.seq)
                done.append(item)
        return done

    def _started(self, seq: int, reply: Recorded) -> Running:
        item = Running(seq, reply)
        reads = self._policy.expects_drafts(item.state)
        item.read = dict.fromkeys(reply.sources, 0 if reads else -reply.prompt)
        return item

    def _round(self, running: Sequence[Running]) -> None:
        table, factor = self._table, self._disturbance.factor
        plans = self._policy.plan([r.state for r in running])
        # Plain decoding makes equal passes, one after the other.
        plain = table[len(running)] * factor(self.seconds, len(running)) + self._launches.replayed
        one = table[1] * factor(self.seconds, 1)
        drafts = [self._draft(r, plan, one) for r, plan in zip(running, plans, strict=True)]
        width = len(running) * (1 + max(d.tokens for d in drafts))
        drafting = sum(d.draft_ms for d in drafts)
        lasted = table[width] * factor(self.seconds, width) + self._launch(width) + drafting
        self.seconds += lasted / 1000
        noise = self._disturbance.observed(self._rng)
        seen = (lasted - drafting) * noise / 1000 + drafting / 1000
        outcomes, evidence = [], list[Evidence]()
        for item, d in zip(running, drafts, strict=True):
            item.units += lasted / plain
            item.rounds += 1
            item.drafted += d.tokens
            item.accepted += d.accepted
            item.at += 1 + d.accepted
            outcomes.append(
                Outcome(
                    item.seq,
                    d.source,
                    d.tokens,
                    min(d.accepted + 1, d.tokens),
                    d.accepted,
                    d.considered,
                    d.draft_ms / 1000,
                    seen,
                )
            )
            evidence += d.evidence
        self._policy.learn(outcomes, evidence)

    def _launch(self, width: int) -> float:
        """Milliseconds beside the kernels of the next pass."""
        last, equal = self._last
        equal = equal + 1 if width == last else 0
        self._last = width, equal
        return self._launches.ms(equal)

    def _draft(self, item: Running, plan: DraftPlan, one: float) -> Drafted:
        """The first draft that is not empty, in the order of the plan."""
        room = item.reply.length - item.at - 1
        plan = plan.within(room, 1)
        evidence: list[Evidence] = []
        spent, last = 0.0, Drafted()
        for step in plan.steps:
            if step.probe:
                spent += self._probe(item, step, one, evidence)
                last = Drafted(step.source)
                continue
            if not step.budget.nodes:
                continue
            last = self._chain(item, step, one, evidence)
            spent += last.draft_ms
            if last.tokens:
                break
        return Drafted(
            last.source, last.tokens, last.accepted, last.considered, spent, tuple(evidence)
        )

    @staticmethod
    def _probe(item: Running, step: DraftStep, one: float, evidence: list[Evidence]) -> float:
        source = item.reply.sources[step.source]
        if not isinstance(source, Predictions):
            return 0.0
        read = item.read[step.source]
        for place in range(max(read, item.at - PROBED, 0), item.at):
            confidence, right = source.known(place)
            evidence.append(Evidence(item.seq, step.source, 0, confidence, right))
        item.read[step.source] = item.at
        return ASKING[step.source].token * one * (1 + BATCHED * (item.at - read))

    @staticmethod
    def _chain(item: Running, step: DraftStep, one: float, evidence: list[Evidence]) -> Drafted:
        asking, source = ASKING[step.source], item.reply.sources[step.source]
        chain = source.at(item.at) if item.at < item.reply.length else NO_CHAIN
        seen: list[float] = []
        tokens = 0
        limit = min(step.budget.depth, len(chain.confidences))
        while tokens < limit:
            seen.append(chain.confidences[tokens])
            if not step.pace.more(seen):
                break
            tokens += 1
            if asking.token and not step.pace.further(seen):
                break
        accepted = min(tokens, chain.accepted)
        room = item.reply.length - item.at - 1
        judged = min(len(seen), chain.accepted + 1, room)
        evidence += [
            Evidence(item.seq, step.source, i, seen[i], i < chain.accepted) for i in range(judged)
        ]
        missed = 0
        if asking.token and seen:
            missed = item.at - max(item.read[step.source], 0)
            missed += -min(item.read[step.source], 0)
            item.read[step.source] = item.at + tokens
        ms = asking.ask + asking.token * one * (len(seen) + BATCHED * max(0, missed - 1))
        return Drafted(step.source, tokens, accepted, len(seen), ms)
