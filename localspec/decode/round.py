"""The round: plan, propose, score, verify, keep, learn.

Invariant, checked after every round: the tokens of a request are prompt + emitted; the last one
is *pending* (known, but not yet in the KV cache), all before it are in the target's KV cache.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from localspec.core.errors import AuditError, ContextFullError, LocalspecError, PassRefusedError
from localspec.core.plan import Outcome
from localspec.core.round_counts import RoundFigures
from localspec.core.target import Target, Work
from localspec.core.values import Draft, Emitted, Scores, Verdict
from localspec.decode.judged import Judged
from localspec.decode.request import Request
from localspec.decode.routing import learn, plan, propose
from localspec.decode.verifiers import require_exact
from localspec.drafters.base import Committed, Drafter
from localspec.policy import Policy


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of one round for one request."""

    request: Request
    draft: Draft
    judged: Judged
    scores: Scores
    figures: RoundFigures
    """``verify_seconds`` are those of the target's pass; ``seconds`` those from the start of the
    round until all its tokens were kept: the same for all requests, since each of them waits for
    all."""

    @property
    def verdict(self) -> Verdict:
        """The verdict, cut at the end of the reply."""
        return self.judged.verdict

    @property
    def emitted(self) -> list[Emitted]:
        """Tokens of the reply."""
        return self.judged.emitted

    def committed(self) -> Committed:
        """What the round emitted, for the drafter."""
        return Committed(
            seq=self.request.seq,
            all_tokens=self.request.tokens,
            new_tokens=[e.token for e in self.emitted],
            p=self.judged.p,
            draft=self.draft,
            logits=self.scores.logits,
            forced=frozenset(
                i for i, node in enumerate(self.verdict.path) if node in self.draft.forced
            ),
        )

    def outcome(self) -> Outcome:
        """The counts and times of the round for the policy."""
        found = self.figures
        return Outcome(
            seq=self.request.seq,
            source=found.source,
            proposed=found.drafted - found.forced,
            accepted=found.accepted - found.forced_accepted,
            considered=self.draft.considered,
            draft_s=self.draft.own_seconds,
            round_s=found.seconds,
            forced=found.forced,
            padding=self.scores.padding,
            probed=self.draft.probed,
        )


def decode_round(
    requests: Sequence[Request], target: Target, drafter: Drafter, policy: Policy
) -> list[RoundResult]:
    """One round for every request (Leviathan et al. 2023, algorithm 1, over lists and trees).

    Requests need not agree in anything. One that fails (a row of NaN, all tokens forbidden, a full
    context, a draft that its verifier is not exact for, a defect of its grammar, lengths that
    disagree) ends alone: it has an error, and nothing of it stays cached. It has a result only
    where it emitted tokens before it failed.

    Raises:
        Interrupted, DecodeError: the pass failed, for all of them.
        Exception: a defect of what they share, policy and drafters.
    """
    start = time.perf_counter()
    for r in requests:
        r.attempt(partial(r.require_room, target))
    running = [r for r in requests if r.error is None]
    plans = plan(policy, running, drafter, target)
    drafts = propose(drafter, running, plans, target)
    for r, d in zip(running, drafts, strict=True):
        if r.error is None:
            r.attempt(partial(require_exact, r.verifier, d))
    drafted = [
        (r, Work(r.seq, r.tokens[-1], d, planned.rows(1 + len(d))))
        for r, planned, d in zip(running, plans, drafts, strict=True)
        if r.error is None
    ]

    scoring = time.perf_counter()
    for r, work in drafted:
        r.attempt(partial(r.expect, work.draft))
    scored = score([(r, work) for r, work in drafted if r.error is None], target)
    verify_s = time.perf_counter() - scoring

    verified: list[tuple[Request, Draft, Judged, Scores]] = []
    for r, work, s in scored:
        judged = r.verify(work.draft, s)
        if judged is not None:
            kept = len(judged.emitted) - 1  # the last one emitted is pending
            r.attempt(partial(target.keep, r.seq, judged.verdict.path[:kept]))
            verified.append((r, work.draft, judged, s))

    kept_at = time.perf_counter()
    results = [
        RoundResult(r, draft, judged, s, judged.figures(draft, verify_s, kept_at - start))
        for r, draft, judged, s in verified
    ]
    evidence = drafter.commit([t.committed() for t in results])
    learn(policy, [t.request for t in results], [t.outcome() for t in results], evidence)
    for t in results:
        t.request.tally.add(t.figures)
    return _end_failed(requests, results, target, drafter)


def score(
    drafted: Sequence[tuple[Request, Work]], target: Target
) -> list[tuple[Request, Work, Scores]]:
    """The target's pass. Where it is refused before anything is computed, since one of the requests
    asks for what cannot be, each has a pass of its own, and that one fails.

    Raises:
        Interrupted, DecodeError: the pass failed, for all of them.
    """
    try:
        scores = target.score([work for _, work in drafted])
    except (PassRefusedError, ContextFullError) as refused:
        found = []
        for r, work in drafted:
            if target.length(r.seq) != len(r.tokens) - 1:  # a recurrent state is lost with a pass
                r.error = refused
                continue
            try:
                (own,) = target.score([work])
            except (PassRefusedError, ContextFullError) as error:
                r.error = error
            else:
                found.append((r, work, replace(own, logits=own.logits.copy())))
        return found
    return [(r, work, s) for (r, work), s in zip(drafted, scores, strict=True)]


def _end_failed(
    requests: Sequence[Request], results: Sequence[RoundResult], target: Target, drafter: Drafter
) -> list[RoundResult]:
    """The results without those whose caches disagree with their tokens: these requests have failed
    too. Nothing of a request that failed stays cached.
    """
    unsound = set()
    for r in (t.request for t in results if t.request.error is None):
        r.attempt(partial(audit, r, target, drafter))
        if r.error is not None:
            unsound.add(r.seq)
    for r in requests:
        if r.error is not None:
            empty(r.seq, target, drafter)
    return [t for t in results if t.request.seq not in unsound]


def empty(seq: int, target: Target, drafter: Drafter) -> None:
    """Empty the caches of a sequence: after a failure they are not trusted."""
    with contextlib.suppress(LocalspecError):
        target.truncate(seq, 0)
    with contextlib.suppress(LocalspecError):
        drafter.close(seq)


def audit(request: Request, target: Target, drafter: Drafter) -> None:
    """Check that the target has cached all tokens but the pending one, and the drafter no more.

    Raises:
        AuditError: a cache disagrees with the tokens of the request.
    """
    target.audit(request.seq)
    tokens, cached = len(request.tokens), target.length(request.seq)
    if cached != tokens - 1:
        raise AuditError(f"target has cached {cached} of {tokens} tokens; expected {tokens - 1}")
    cached = drafter.length(request.seq)
    if cached > tokens:
        raise AuditError(f"drafter has cached {cached} tokens; the request has only {tokens}")
