"""Plays a policy on recorded evidence, under the costs of a machine, without llama.cpp.

Time is counted in plain tokens: the seconds of a round by the seconds that plain decoding would
take for one token of each running request at that moment. So a ratio is not disturbed by what makes
all passes slower, and two runs are compared without noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from localspec.core.plan import NO_LIMIT, DraftPlan, DraftStep, Evidence, Outcome, RequestState
from localspec.core.values import Probed
from localspec.policy import Policy
from localspec.policy.decide import BEHIND
from policy_lab.curves import WIDEST, Curve, Disturbance
from policy_lab.evidence import NO_CHAIN, Predictions, Recorded

LOOK, PART = 8, 64
"""Rounds after which drafters may read what they have missed, and tokens that they read at once."""
PROBED = 16
"""Tokens that a probe compares at most."""


@dataclass(frozen=True)
class Asking:
    """The cost of asking a drafter."""

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
    prompt_units: float = 0.0
    """Time for the prompt without drafters, in plain tokens, and for drafters that read it."""
    drafters_units: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Tokens of the reply that a drafter has read; the prompt's, if missing, count negative."""
    arrived: float = 0.0
    """Seconds on the clock of the world."""
    ended: float = 0.0
    limited: bool = False
    """Whether ``max_tokens`` ends the reply, and the policy knows it."""

    @property
    def done(self) -> bool:
        return self.at >= self.reply.length

    @property
    def state(self) -> RequestState:
        kind = "greedy" if self.reply.temperature == 0 else f"{self.reply.temperature:g}"
        unread = self.at - min(self.read.values(), default=0)
        left = self.reply.length - self.at if self.limited else NO_LIMIT
        return RequestState(
            self.seq, self.reply.prompt + self.at, self.at, kind, unread=unread, left=left
        )

    @property
    def ratio(self) -> float:
        """Times plain decoding."""
        return self.at / self.units

    @property
    def whole(self) -> float:
        """The same for the time from the beginning of the prompt."""
        plain = self.prompt_units + self.at
        return plain / (self.prompt_units + self.drafters_units + self.units)


@dataclass(frozen=True)
class Drafted:
    """The draft of one request in a round."""

    source: str = ""
    tokens: int = 0
    accepted: int = 0
    considered: int = 0
    draft_ms: float = 0.0
    passes_ms: float = 0.0
    """The part of ``draft_ms`` for drafted tokens, if their passes were for this request alone."""
    evidence: tuple[Evidence, ...] = ()
    probe: str = ""
    """Name of the drafter that probed."""
    probe_ms: float = 0.0
    rows: int = 1
    """Rows of the pass, padding included."""

    @property
    def apart_ms(self) -> float:
        """Drafting and a probe."""
        return self.draft_ms + self.probe_ms


Arrivals = Literal["queue", "waves", "staggered"]
"""A reply starts when another one has ended, when all have, or at fixed times."""


class World:
    """One machine and one policy; replies are played one after the other or at once."""

    def __init__(
        self,
        policy: Policy,
        curve: Curve,
        disturbance: Disturbance,
        seed: int,
        sources: Sequence[str] = (),
        *,
        limited: bool = False,
    ) -> None:
        """``sources`` are the drafters that read prompts where the policy expects drafts. All
        replies are ``limited`` by ``max_tokens``, or none is.
        """
        self._limited = limited
        self._policy = policy
        self._sources = sources
        self._table = curve.table()
        self._launches = curve.launches
        self._last = 0, 0
        """Width of the last pass, and how many of that width there were in a row."""
        self._disturbance = disturbance
        self._rng = random.Random(seed)
        self._rounds = 0
        self.seconds = 0.0

    def play(
        self, replies: Iterable[Recorded], at_once: int = 1, arrivals: Arrivals = "queue"
    ) -> list[Running]:
        """Every reply, so many at a time."""
        waiting = list(replies)[::-1]
        gap = self._gap(waiting, at_once) if arrivals == "staggered" else 0.0
        due = self.seconds
        free = list(range(at_once))[::-1]
        running: list[Running] = []
        done: list[Running] = []
        while waiting or running:
            if waiting and not running:
                self.seconds = max(self.seconds, due)
            if arrivals != "waves" or not running:
                while waiting and free and due <= self.seconds:
                    running.append(self._started(free.pop(), waiting.pop(), len(running), due))
                    due = due + gap if gap else self.seconds
            self._round(running)
            for item in [r for r in running if r.done]:
                item.ended = self.seconds
                running.remove(item)
                free.append(item.seq)
                done.append(item)
        return done

    def _gap(self, replies: Sequence[Recorded], at_once: int) -> float:
        """Seconds between arrivals at which plain decoding answers about half of ``at_once`` at a
        time.
        """
        tokens = sum(reply.length for reply in replies) / len(replies)
        return tokens * self._table[at_once] / 1000 / at_once * 2

    def _started(self, seq: int, reply: Recorded, others: int, arrived: float) -> Running:
        computing = [name for name in self._sources if ASKING[name].token]
        item = Running(seq, reply, arrived=arrived, limited=self._limited)
        item.read = dict.fromkeys(computing, -reply.prompt)
        state = replace(item.state, batch=others + 1)
        reads = self._policy.decide_reading(state)
        if reads:
            item.read = dict.fromkeys(computing, 0)
        dearest = max((ASKING[name].token for name in self._sources), default=0.0)
        reading = self._reading(reply.prompt)
        item.prompt_units = reading / self._table[1]
        item.drafters_units = reads * dearest * item.prompt_units
        self.seconds += reading * (1 + reads * dearest) / 1000
        return item

    def _reading(self, tokens: int) -> float:
        """Milliseconds for reading so many tokens in passes of the target."""
        whole, rest = divmod(tokens, WIDEST)
        return whole * self._table[WIDEST] + self._table[rest]

    def _catch_up(self, running: Sequence[Running]) -> float:
        """Milliseconds that drafters read what they have missed, where the policy tells them to."""
        spent = 0.0
        self._rounds += 1
        for item in running if self._rounds % LOOK == 0 else ():
            state = replace(item.state, batch=len(running))
            if state.unread > BEHIND and self._policy.decide_reading(state):
                for name, read in item.read.items():
                    part = min(PART, item.at - read)
                    item.read[name] += part
                    spent += self._reading(part) * ASKING[name].token
        return spent

    def _round(self, running: Sequence[Running]) -> None:
        reading = self._catch_up(running)
        table, factor = self._table, self._disturbance.factor
        plans = self._policy.plan([r.state for r in running])
        # Plain decoding makes equal passes, one after the other.
        plain = table[len(running)] * factor(self.seconds, len(running)) + self._launches.replayed
        one = table[1] * factor(self.seconds, 1) * self._disturbance.drafting(self.seconds)
        drafts = [self._draft(r, plan, one) for r, plan in zip(running, plans, strict=True)]
        width = len(running) * max(d.rows for d in drafts)
        alone = sum(d.apart_ms for d in drafts)
        drafting = alone - sum(d.passes_ms for d in drafts) + self._in_common(drafts)
        lasted = table[width] * factor(self.seconds, width) + self._launch(width) + drafting
        self.seconds += (lasted + reading) / 1000
        noise = self._disturbance.observed(self._rng)
        seen = (lasted - drafting) * noise / 1000 + drafting / 1000
        outcomes, evidence = [], list[Evidence]()
        for item, d in zip(running, drafts, strict=True):
            item.units += (lasted + reading) / plain
            item.rounds += 1
            item.drafted += d.tokens
            item.accepted += d.accepted
            item.at += 1 + d.accepted
            scale = (drafting / alone if alone else 0.0) / 1000
            outcomes.append(
                Outcome(
                    item.seq,
                    d.source,
                    d.tokens,
                    d.accepted,
                    d.considered,
                    d.draft_ms * scale,
                    seen,
                    padding=d.rows - 1 - d.tokens,
                    probed=Probed(d.probe, d.probe_ms * scale) if d.probe else None,
                )
            )
            evidence += d.evidence
        self._policy.learn(outcomes, evidence)

    def _in_common(self, drafts: Sequence[Drafted]) -> float:
        """Milliseconds of the passes of drafters, which the requests have in common: one for each
        place of the longest draft, over those that reach it.
        """
        spent = 0.0
        for source in {d.source for d in drafts if d.considered}:
            own = [d for d in drafts if d.source == source and d.considered]
            each = max(d.passes_ms / d.considered for d in own)
            for place in range(max(d.considered for d in own)):
                rows = sum(d.considered > place for d in own)
                spent += each * self._table[rows] / self._table[1]
        return spent

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
        probe, probe_ms = "", 0.0
        for step in plan.steps:
            if step.probe:
                probe, probe_ms = step.source, self._probe(item, step, one, evidence)
                continue
            if not step.budget.nodes:
                continue
            last = self._chain(item, step, one, evidence)
            spent += last.draft_ms
            if last.tokens:
                break
        rows = plan.rows(1 + last.tokens)
        return Drafted(
            last.source,
            last.tokens,
            last.accepted,
            last.considered,
            spent,
            last.passes_ms,
            tuple(evidence),
            probe,
            probe_ms,
            rows,
        )

    def _probe(self, item: Running, step: DraftStep, one: float, evidence: list[Evidence]) -> float:
        source = item.reply.sources[step.source]
        if not isinstance(source, Predictions):
            return 0.0
        read = item.read[step.source]
        upto = min(item.at, read + step.reads)
        for place in range(max(read, upto - PROBED, 0), upto):
            confidence, right = source.known(place)
            evidence.append(Evidence(item.seq, step.source, confidence, right))
        item.read[step.source] = upto
        read_ms = self._reading(upto - read) / self._table[1]
        return ASKING[step.source].token * one * max(1.0, read_ms)

    def _chain(
        self, item: Running, step: DraftStep, one: float, evidence: list[Evidence]
    ) -> Drafted:
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
            Evidence(item.seq, step.source, seen[i], i < chain.accepted) for i in range(judged)
        ]
        missed = 0
        if asking.token and seen:
            missed = item.at - max(item.read[step.source], 0)
            missed += -min(item.read[step.source], 0)
            item.read[step.source] = item.at + tokens
        catching_up = self._reading(missed) / self._table[1] - 1 if missed > 1 else 0.0
        passes = asking.token * one * len(seen)
        ms = asking.ask + passes + asking.token * one * catching_up
        return Drafted(step.source, tokens, accepted, len(seen), ms, passes)
