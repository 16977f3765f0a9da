"""One reply being generated: its tokens, and what each step of a round may know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.core.events import FinishReason
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import ANY, Budget, Plan, Standing, Step
from localspec.core.target import Target
from localspec.core.values import Distribution, Draft, Emitted, Rows, Scores, Verdict, origins
from localspec.decode.stats import RequestStats
from localspec.drafters.base import Ask


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
    processor: LogitsProcessor
    noise: Noise
    limit: int
    """Most tokens to emit."""
    ends: Callable[[int], FinishReason | None]
    """Called once with every emitted token, in order; says whether the reply ends with it."""
    end_ids: frozenset[int] = frozenset()
    """Tokens that end the reply wherever they are emitted."""
    emitted: list[Emitted] = field(default_factory=list)
    tally: RequestStats = field(default_factory=RequestStats)
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


__all__ = ["Request", "SeenRows"]
