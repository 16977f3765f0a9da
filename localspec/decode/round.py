"""The round: draft, score, verify, keep, learn.

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
from localspec.decode.routing import propose
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
    """Cut at the end of the reply."""
    emitted: list[Emitted]
    p: tuple[Distribution, ...]
    """The target's distributions along the accepted path."""
    verify_seconds: float
    """Seconds of the target's pass."""
    seconds: float
    """From the beginning of the round until all its tokens were kept: the same for all requests,
    since each of them waits for all."""

    def committed(self, scores: Scores) -> Committed:
        """What the drafter learns from it."""
        return Committed(
            seq=self.request.seq,
            all_tokens=self.request.tokens,
            new_tokens=[e.token for e in self.emitted],
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
    plans = policy.plan([r.state for r in requests])
    drafts = propose(drafter, requests, plans, target)
    for draft in drafts:
        require_exact(verifier, draft)

    scoring = time.perf_counter()
    work = [Work(r.seq, r.tokens[-1], d) for r, d in zip(requests, drafts, strict=True)]
    scores = target.score(work)
    verify_s = time.perf_counter() - scoring

    verified: list[tuple[Verdict, list[Emitted], tuple[Distribution, ...]]] = []
    for r, d, s in zip(requests, drafts, scores, strict=True):
        p = r.rows(d, s)
        verdict = verifier(d, p, r.noise, r.position, r.stop.end_ids)
        verdict, emitted = r.take(d, verdict)
        target.keep(r.seq, verdict.path[: len(emitted) - 1])  # the last one emitted is pending
        verified.append((verdict, emitted, p.along(verdict.path)))

    learning = time.perf_counter()
    results = [
        RoundResult(r, d, *one, verify_s, learning - start)
        for r, d, one in zip(requests, drafts, verified, strict=True)
    ]
    evidence = drafter.commit([t.committed(s) for t, s in zip(results, scores, strict=True)])
    policy.learn([t.outcome() for t in results], evidence)
    for t in results:
        t.request.tally.add(t.draft, t.verdict, verify_s, t.seconds)
    audit(requests, target, drafter)
    return results


def audit(requests: Sequence[Request], target: Target, drafter: Drafter) -> None:
    """Check that the target has cached all tokens but the pending one, and the drafter no more.

    Raises:
        AuditError: a cache disagrees with the tokens of its request.
    """
    for r in requests:
        target.audit(r.seq)
        tokens, cached = len(r.tokens), target.length(r.seq)
        if cached != tokens - 1:
            raise AuditError(
                f"target has cached {cached} of {tokens} tokens; expected {tokens - 1}"
            )
        cached = drafter.length(r.seq)
        if cached > tokens:
            raise AuditError(f"drafter has cached {cached} tokens; the request has only {tokens}")


__all__ = ["RoundResult", "audit", "decode_round"]
