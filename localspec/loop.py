"""The round: draft, score, verify, keep, learn. Everything else serves these lines.

Invariant, checked after every round: the tokens of a request are prompt + emitted; the last one
is *pending* (known, but not yet in the KV cache), all before it are in the target's KV cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.drafters import Ask, Committed, Drafter
from localspec.errors import AuditError
from localspec.events import DrafterStats, FinishReason
from localspec.noise import Noise
from localspec.policy import Policy
from localspec.sampling import Processor
from localspec.values import (
    ANY,
    Budget,
    Distribution,
    Draft,
    Emitted,
    Outcome,
    Plan,
    Rows,
    Scores,
    Standing,
    Step,
    Verdict,
    origins,
)
from localspec.verifiers import Verifier, require_exact


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's share of a target pass."""

    seq: int
    pending: int
    draft: Draft


class Target(Protocol):
    """The model whose output is promised, and the only owner of its KV cache."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        ...

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score; 1 is chains only."""
        ...

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """One pass over every pending token and draft; logits are valid until the next."""
        ...

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the nodes of ``path`` of the last pass, forget the rest."""
        ...

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the KV cache."""
        ...


@dataclass(slots=True)
class Tally:
    """Running counts of one request. ``accepted <= verified <= drafted``."""

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    judged_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    plain_rounds: int = 0
    plain_seconds: float = 0.0
    plain_verify_seconds: float = 0.0
    """Of the rounds without a draft, the target's passes."""
    beside_seconds: float = 0.0
    """What plain decoding would not do: planning, asking drafters, learning."""

    def add(self, draft: Draft, verdict: Verdict, verify_seconds: float, seconds: float) -> None:
        """Count one round."""
        accepted = len(verdict.path)
        self.rounds += 1
        self.drafted += len(draft)
        self.verified += verdict.verified
        self.accepted += accepted
        self.draft_seconds += draft.seconds
        self.verify_seconds += verify_seconds
        if not len(draft):
            self.plain_rounds += 1
            self.plain_seconds += seconds
            self.plain_verify_seconds += verify_seconds
            return
        was = self.by_drafter.get(draft.source, DrafterStats())
        self.by_drafter[draft.source] = DrafterStats(
            was.drafted + len(draft),
            was.verified + verdict.verified,
            was.accepted + accepted,
            was.seconds + draft.seconds,
        )
        judged = verdict.verified if draft.is_chain else accepted
        while len(self.judged_at) < judged:
            self.judged_at.append(0)
            self.accepted_at.append(0)
        for i in range(judged):
            self.judged_at[i] += 1
            self.accepted_at[i] += i < accepted


class SeenRows:
    """`Rows` that are computed once, and remembered for the drafter to learn from."""

    def __init__(self, compute: Rows) -> None:
        self._compute = compute
        self._seen: dict[int, Distribution] = {}

    def __call__(self, i: int) -> Distribution:
        """The distribution of row i."""
        if i not in self._seen:
            self._seen[i] = self._compute(i)
        return self._seen[i]

    def along(self, path: Sequence[int]) -> tuple[Distribution, ...]:
        """Those after the pending token and after each node of the path."""
        return tuple(self._seen[i] for i in (0, *(1 + node for node in path)) if i in self._seen)


@dataclass(slots=True)
class Request:
    """One reply being generated."""

    seq: int
    tokens: list[int]
    """Prompt and emitted tokens; the last is pending. Never empty."""
    processor: Processor
    noise: Noise
    limit: int
    """Most tokens to emit."""
    ends: Callable[[int], FinishReason | None]
    """Called once with every emitted token, in order; says whether the reply ends with it."""
    emitted: list[Emitted] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    finish: FinishReason | None = None

    @property
    def position(self) -> int:
        """Of the first token that the next round may emit."""
        return len(self.tokens)

    @property
    def standing(self) -> Standing:
        """What the policy may know of it."""
        emitted, kind = len(self.emitted), self.processor.sampling.kind
        return Standing(self.seq, len(self.tokens), emitted, kind)

    def ask(self, plan: Plan, target: Target) -> Ask:
        """What the drafter may see, with no more budget than there is room for."""
        room = min(self.limit - len(self.emitted) - 1, target.capacity - len(self.tokens))
        plan = plan.within(room, target.leaves)
        first = plan.steps[0] if plan.steps else Step(ANY, Budget(0, 0, 0))
        return Ask(
            self.seq,
            self.tokens,
            first.budget,
            self.noise,
            self.processor,
            pace=first.pace,
            look=first.look,
            prompt=len(self.tokens) - len(self.emitted),
            plan=plan,
        )

    def rows(self, draft: Draft, scores: Scores) -> SeenRows:
        """The target's distribution of a row, with that row's own past."""
        lookback = self.processor.lookback
        before = self.tokens[-lookback:] if lookback else []

        def row(i: int) -> Distribution:
            past = [*before, *draft.prefix(i - 1)] if lookback else before
            return self.processor(scores.logits[i], past)

        return SeenRows(row)

    def take(self, draft: Draft, verdict: Verdict) -> tuple[Verdict, list[Emitted]]:
        """Emit the round's tokens up to the end of the reply; what lies beyond never was."""
        taken: list[Emitted] = []
        for item in origins(draft, verdict):
            taken.append(item)
            self.tokens.append(item.token)
            self.emitted.append(item)
            self.finish = self.ends(item.token)
            if self.finish is None and len(self.emitted) >= self.limit:
                self.finish = "length"
            if self.finish is not None:
                break
        if len(taken) <= len(verdict.path):
            # The end lies inside the accepted run: its last token stays pending.
            n = len(taken)
            verdict = Verdict(verdict.path[:n], taken[-1].token, min(verdict.verified, n))
        return verdict, taken


@dataclass(frozen=True, slots=True)
class Turn:
    """What one round did for one request."""

    request: Request
    draft: Draft
    verdict: Verdict
    emitted: list[Emitted]
    p: tuple[Distribution, ...]
    verify_seconds: float
    seconds: float

    def committed(self, scores: Scores) -> Committed:
        """What the drafter learns from it."""
        tokens = [e.token for e in self.emitted]
        return Committed(
            self.request.seq,
            self.request.tokens,
            tokens,
            scores.hidden,
            self.p,
            self.draft,
            scores.logits,
        )

    def outcome(self) -> Outcome:
        """What the policy learns from it."""
        return Outcome(
            seq=self.request.seq,
            source=self.draft.source,
            proposed=len(self.draft),
            verified=self.verdict.verified,
            accepted=len(self.verdict.path),
            considered=self.draft.considered,
            draft_s=self.draft.seconds,
            round_s=self.seconds,
        )


def decode_round(
    requests: Sequence[Request],
    target: Target,
    drafter: Drafter,
    verifier: Verifier,
    policy: Policy,
) -> list[Turn]:
    """One round for every request (Leviathan et al. 2023, algorithm 1, over lists and trees).

    Raises:
        ProposalError: a draft that the verifier is not exact for.
        AuditError: lengths disagree afterwards.
    """
    start = time.perf_counter()
    plans = policy.plan([r.standing for r in requests])
    asks = [r.ask(p, target) for r, p in zip(requests, plans, strict=True)]
    drafts = drafter.propose(asks)
    for draft in drafts:
        require_exact(verifier, draft)

    scoring = time.perf_counter()
    work = [Work(r.seq, r.tokens[-1], d) for r, d in zip(requests, drafts, strict=True)]
    scores = target.score(work)
    verify_s = time.perf_counter() - scoring

    turns: list[Turn] = []
    for r, d, s in zip(requests, drafts, scores, strict=True):
        p = r.rows(d, s)
        verdict = verifier(d, p, r.noise, r.position)
        verdict, emitted = r.take(d, verdict)
        target.keep(r.seq, verdict.path[: len(emitted) - 1])  # the last one emitted is pending
        seconds = time.perf_counter() - start
        turns.append(Turn(r, d, verdict, emitted, p.along(verdict.path), verify_s, seconds))

    learning = time.perf_counter()
    evidence = drafter.commit([t.committed(s) for t, s in zip(turns, scores, strict=True)])
    policy.learn([t.outcome() for t in turns], evidence)
    beside_s = scoring - start + time.perf_counter() - learning
    for t in turns:
        t.request.tally.add(t.draft, t.verdict, verify_s, t.seconds)
        t.request.tally.beside_seconds += beside_s
    audit(requests, target, drafter)
    return turns


def audit(requests: Sequence[Request], target: Target, drafter: Drafter) -> None:
    """Committed length = KV length of the target; the drafter's cache is no longer than that.

    Raises:
        AuditError: they disagree.
    """
    for r in requests:
        known, held = len(r.tokens), target.length(r.seq)
        if held != known - 1:
            raise AuditError(f"target holds {held} tokens of {known} known; expected {known - 1}")
        cached = drafter.length(r.seq)
        if cached > known:
            raise AuditError(f"drafter holds {cached} tokens, more than the {known} known")


__all__ = [
    "Request",
    "Tally",
    "Target",
    "Turn",
    "Work",
    "audit",
    "decode_round",
]
