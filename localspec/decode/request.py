"""One reply being generated: its tokens and rules, and its part in each step of a round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from localspec.core.emitted import Origin, TokenLogprobs
from localspec.core.errors import ContextFullError, Interrupted, NotNumbersError
from localspec.core.events import FinishReason
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import DraftPlan, DraftStep, RequestState
from localspec.core.round_counts import RoundCounts
from localspec.core.target import Target
from localspec.core.values import ROOT, Draft, Emitted, Scores, Verdict, origins
from localspec.decode.judged import CachedRows, Judged
from localspec.decode.logprobs import TokenScorer
from localspec.decode.verifiers import Match, Verifier
from localspec.drafters.base import Ask
from localspec.drafters.lookup.predicted_text import PredictedText
from localspec.policy import Policy

_T = TypeVar("_T")


class StopRule:
    """Turns emitted tokens into text and says where the reply ends. This one never ends it."""

    end_ids: frozenset[int] = frozenset()
    """Tokens that end the reply wherever they are emitted."""

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """Take the next emitted token: the text that is final now, and why the reply ends here."""
        del token
        return "", None

    def finish(self) -> str:
        """Text held back so far, once no token follows."""
        return ""


NEVER = StopRule()
MATCH = Match()
ROWS_MOST_SECONDS = 0.1
"""Seconds of computing that the rows of a draft may take, where samplers look at all of a large
vocabulary: others wait for them. A first row is computed whatever it takes."""


@dataclass(frozen=True, slots=True)
class DraftRules:
    """The limits on drafting for one request."""

    drafters: frozenset[str] | None = None
    """Names of those that may draft for it; None: all of them."""
    most: int | None = None
    """Most tokens of a draft, one after the other; None: no limit of its own."""
    prediction: PredictedText | None = None
    """The text that the client expects as the reply."""
    recalls: str | None = None
    """Owner whose earlier requests may be drafted from; None: nobody's."""

    def may_use(self, drafter: str) -> bool:
        """Whether that drafter may draft."""
        return self.drafters is None or drafter in self.drafters


ANY_DRAFT = DraftRules()


@dataclass(slots=True)
class Request:
    """One reply being generated, by its own rules: no two requests of a round need to agree."""

    seq: int
    tokens: list[int]
    """Prompt and emitted tokens; the last is pending. Never empty."""
    processor: LogitsProcessor
    """The processing of the next token; only what was emitted moves it on."""
    noise: Noise
    limit: int
    """Most tokens to emit."""
    stop: StopRule = NEVER
    verifier: Verifier = MATCH
    policy: Policy | None = None
    """Plans its drafts; None: the policy that all requests of the round share."""
    guided: bool = True
    """Whether drafts go on through what the grammar forces; without a grammar it has no effect."""
    scorer: TokenScorer | None = None
    """Computes the logprobs of emitted tokens, if they were asked for."""
    drafting: DraftRules = ANY_DRAFT
    emitted: list[Emitted] = field(default_factory=list)
    tally: RoundCounts = field(default_factory=RoundCounts)
    last_rows_seconds: float = 0.0
    """Seconds of computing that its rows took in the last round."""
    row_seconds: float = 0.0
    """The smaller of the last two rounds' seconds a row: one may have been interrupted."""
    _last_rows: int = 0
    finish: FinishReason | None = None
    error: Exception | None = None
    """Why it failed; it is then over, and none of its tokens are cached."""

    @property
    def running(self) -> bool:
        """Whether more tokens are to come."""
        return self.finish is None and self.error is None

    @property
    def position(self) -> int:
        """Position of the first token that the next round may emit."""
        return len(self.tokens)

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.tokens) - len(self.emitted)

    def state(self, target: Target, *, unread: int, batch: int) -> RequestState:
        """The request as the policy sees it. ``unread`` and ``batch``: see `RequestState`."""
        emitted = len(self.emitted)
        return RequestState(
            self.seq,
            len(self.tokens),
            emitted,
            self.processor.sampling.kind,
            batch=batch,
            unread=unread,
            left=self.limit - emitted,
            room=max(0, self._room(target, batch)),
            drafters=frozenset() if self.drafting.most == 0 else self.drafting.drafters,
        )

    def require_room(self, target: Target) -> None:
        """Check that the pending token has room in the KV cache.

        Raises:
            ContextFullError: it has none.
        """
        if len(self.tokens) > target.capacity:
            raise ContextFullError

    def limited(self, plan: DraftPlan, target: Target, batch: int) -> DraftPlan:
        """The plan with budgets no larger than the rest of the reply and of the context, and than
        the target's passes over ``batch`` requests have room for.
        """
        if not plan.steps:
            return plan
        leaves = target.leaves if batch == 1 else 1
        return plan.within(self._room(target, batch), leaves, target.deepest(batch))

    def _room(self, target: Target, batch: int) -> int:
        """Most tokens that may be drafted one after the other."""
        left = min(self.limit - len(self.emitted) - 1, target.capacity - len(self.tokens))
        own = left if self.drafting.most is None else min(left, self.drafting.most)
        if self.row_seconds > 0:
            own = min(own, max(0, int(ROWS_MOST_SECONDS / self.row_seconds) - 1))
        return min(own, target.deepest(batch))

    def ask(self, step: DraftStep, target: Target, batch: int) -> Ask:
        """The ask to a drafter for one step of a plan."""
        guided = self.guided and self.processor.constraint is not None
        return Ask(
            self.seq,
            self.tokens,
            step.budget,
            self.noise,
            self.processor,
            pace=step.pace,
            probe=step.probe,
            reads=step.reads,
            prompt=self.prompt,
            room=self._room(target, batch) if guided else 0,
            exact=self.verifier.proposals,
            favoured=self.verifier.favours,
            prediction=self.drafting.prediction,
            recalls=self.drafting.recalls,
        )

    def expect(self, draft: Draft) -> None:
        """Have the grammar's masks of a draft computed while the target scores it."""
        if self.processor.constraint is not None:
            self.processor.constraint.expect(self.tokens, draft)

    def attempt(self, step: Callable[[], _T]) -> _T | None:
        """What a step gives that concerns this request alone; where it raises, this request has
        failed, and no other.
        """
        try:
            return step()
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised to whoever reads this reply
            self.error = error
            return None

    def verify(self, draft: Draft, scores: Scores) -> Judged | None:
        """Judge a draft by its scores and emit the round's tokens. None where that is impossible:
        the request has then failed, alone. It may also have failed after some of the tokens: they
        are emitted as plain decoding would have emitted them.
        """
        p, began = self.rows(draft, scores), time.thread_time()
        judged = self.attempt(partial(self._judged, draft, scores, p))
        known = self.last_rows_seconds / self._last_rows if self._last_rows else math.inf
        self.last_rows_seconds, self._last_rows = time.thread_time() - began, max(1, p.computed)
        self.row_seconds = min(known, self.last_rows_seconds / self._last_rows)
        return judged

    def _judged(self, draft: Draft, scores: Scores, p: CachedRows) -> Judged:
        verdict, emitted = self._take(draft, self._verdict(draft, p), scores, p)
        if self.processor.moves:
            for row, one in zip(verdict.rows, emitted, strict=False):
                self.processor = self.processor.after(p(row), one.token)
        return Judged(verdict, emitted, p.along(verdict))

    def _verdict(self, draft: Draft, p: CachedRows) -> Verdict:
        """The verdict; up to the last accepted token where nothing can follow it. The reply may end
        with that token or before it, and plain decoding would not have looked further.

        Raises:
            Exception: nothing can follow the pending token.
        """
        try:
            return self.verifier(draft, p, self.noise, self.position, self.stop.end_ids)
        except Interrupted:
            raise
        except Exception:
            *above, last = (ROOT, *draft.path(p.asked - 1))  # its row was asked for: it is accepted
            if last == ROOT:
                raise
            return Verdict(tuple(above[1:]), int(draft.tokens[last]), len(above) - 1)

    def rows(self, draft: Draft, scores: Scores) -> CachedRows:
        """The target's distribution of each row, given the tokens before that row."""
        return CachedRows(self.processor, self.tokens, draft, scores.logits)

    def _take(
        self, draft: Draft, verdict: Verdict, scores: Scores, p: CachedRows
    ) -> tuple[Verdict, list[Emitted]]:
        """Emit the round's tokens. Those past the end of the reply are dropped, and those from one
        on that cannot be emitted.

        Raises:
            Exception: the first one cannot.
        """
        taken: list[Emitted] = []
        tokens = zip(verdict.rows, origins(draft, verdict), strict=True)
        for row, (token, origin, source) in tokens:
            try:
                place = None
                if self.scorer is not None:
                    place = self.scorer.at(row, token, scores.logits, p)
                taken.append(self._emit(token, origin, source, place))
            except NotNumbersError:
                if not taken:
                    raise
                break  # it is found again in the next round, as the first one
            except Exception as error:
                if not taken or isinstance(error, Interrupted):
                    raise
                self.error = error
                break
            if self.finish is not None:
                break
        if len(taken) <= len(verdict.path):
            # The end lies inside the accepted run: its last token stays pending.
            n = len(taken)
            verdict = Verdict(verdict.path[:n], taken[-1].token, min(verdict.verified, n))
        return verdict, taken

    def _emit(
        self, token: int, origin: Origin, source: str | None, place: TokenLogprobs | None
    ) -> Emitted:
        """Emit one token, and say why the reply ends with it, if it does."""
        constraint = self.processor.constraint
        text, finish = self.stop.take(token)
        self.tokens.append(token)
        try:
            if constraint is not None and constraint.take(self.tokens):
                finish = finish or "stop"
            if finish is None and len(self.emitted) + 1 >= self.limit:
                finish = "length"
            if finish is not None:
                text += self.stop.finish()
        except Exception:
            self.tokens.pop()
            raise
        self.finish = finish
        emitted = Emitted(token, origin, source, text, place)
        self.emitted.append(emitted)
        return emitted
