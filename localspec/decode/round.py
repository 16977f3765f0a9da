"""The round: draft, score, verify, keep, learn. Everything else serves these lines.

Invariant, checked after every round: the tokens of a request are prompt + emitted; the last one
is *pending* (known, but not yet in the KV cache), all before it are in the target's KV cache.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.plan import Outcome
from localspec.core.target import Target, Work
from localspec.core.values import Distribution, Draft, Emitted, Scores, Verdict
from localspec.decode.request import Request
from localspec.drafters.base import Committed, Drafter
from localspec.errors import AuditError
from localspec.policy import Policy
from localspec.verifiers import Verifier, require_exact


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What one round did for one request."""

    request: Request
    draft: Draft
    verdict: Verdict
    """Less what lies beyond the end of the reply."""
    emitted: list[Emitted]
    p: tuple[Distribution, ...]
    """The target's distributions that the verifier looked at on its way."""
    verify_seconds: float
    """Of the target's pass."""
    seconds: float
    """From the beginning of the round until all its tokens were kept: the same for all requests,
    since each of them waits for all."""

    def committed(self, scores: Scores) -> Committed:
        """What the drafter learns from it."""
        tokens = [e.token for e in self.emitted]
        return Committed(
            seq=self.request.seq,
            known=self.request.tokens,
            tokens=tokens,
            hidden=scores.hidden,
            p=self.p,
            draft=self.draft,
            logits=scores.logits,
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
) -> list[RoundResult]:
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

    judged: list[tuple[Verdict, list[Emitted], tuple[Distribution, ...]]] = []
    for r, d, s in zip(requests, drafts, scores, strict=True):
        p = r.rows(d, s)
        verdict = verifier(d, p, r.noise, r.position, r.end_ids)
        verdict, emitted = r.take(d, verdict)
        target.keep(r.seq, verdict.path[: len(emitted) - 1])  # the last one emitted is pending
        judged.append((verdict, emitted, p.along(verdict.path)))

    learning = time.perf_counter()
    turns = [
        RoundResult(r, d, *found, verify_s, learning - start)
        for r, d, found in zip(requests, drafts, judged, strict=True)
    ]
    evidence = drafter.commit([t.committed(s) for t, s in zip(turns, scores, strict=True)])
    policy.learn([t.outcome() for t in turns], evidence)
    beside_s = scoring - start + time.perf_counter() - learning
    for t in turns:
        t.request.tally.add(t.draft, t.verdict, verify_s, t.seconds)
        t.request.tally.beside_seconds += beside_s
    audit(requests, target, drafter)
    return turns


def audit(requests: Sequence[Request], target: Target, drafter: Drafter) -> None:
    """Committed length = KV length of the target, which is what it believes; the drafter's cache is
    no longer than that.

    Raises:
        AuditError: they disagree.
    """
    for r in requests:
        target.audit(r.seq)
        known, held = len(r.tokens), target.length(r.seq)
        if held != known - 1:
            raise AuditError(f"target holds {held} tokens of {known} known; expected {known - 1}")
        cached = drafter.length(r.seq)
        if cached > known:
            raise AuditError(f"drafter holds {cached} tokens, more than the {known} known")


__all__ = ["RoundResult", "audit", "decode_round"]
