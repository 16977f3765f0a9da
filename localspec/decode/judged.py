"""The target's distributions along a draft, and what came of judging it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.emitted import Origin
from localspec.core.logits import LogitsProcessor
from localspec.core.round_counts import RoundFigures
from localspec.core.values import Distribution, Draft, Emitted, Logits, TokenView, Verdict


class CachedRows:
    """`TargetRows` that are computed once, and kept for the drafter to learn from."""

    def __init__(
        self, processor: LogitsProcessor, tokens: Sequence[int], draft: Draft, logits: Logits
    ) -> None:
        """``tokens`` are those before the draft; ``logits`` (1 + n, V) are its scores."""
        self._processor, self._tokens, self._length = processor, tokens, len(tokens)
        self._draft, self._logits = draft, logits
        self._together = processor.together > 1 and draft.is_chain
        """Whether a row is computed with those after it, which a correct chain will need too."""
        self._rows: dict[int, Distribution] = {}
        self._processors = {0: processor}
        """By row; only where it moves with each emitted token."""
        self.asked = 0
        """The row that was asked for last."""

    def __call__(self, i: int) -> Distribution:
        """The distribution of row i."""
        self.asked = i
        found = self._rows.get(i)
        if found is None and self._together:
            self._rows.update(enumerate(self._processor.ahead(self._logits[i:]), i))
            found = self._rows.get(i)
        if found is None:
            found = self._rows[i] = self._compute(i)
        return found

    def _compute(self, i: int) -> Distribution:
        drafted = self._draft.prefix(i - 1) if self._processor.reads_text else ()
        processor = self._moved(i) if self._processor.moves else self._processor
        return processor(self._logits[i], TokenView(self._tokens, drafted, self._length))

    def _moved(self, i: int) -> LogitsProcessor:
        """The processor of row i, moved on by the drafted tokens before it."""
        found = self._processors.get(i)
        if found is None:
            above = 1 + int(self._draft.parents[i - 1])
            if above not in self._rows:
                self._rows[above] = self._compute(above)
            p, token = self._rows[above], int(self._draft.tokens[i - 1])
            found = self._processors[i] = self._moved(above).after(p, token)
        return found

    @property
    def computed(self) -> int:
        """Rows that were computed."""
        return len(self._rows)

    def along(self, verdict: Verdict) -> tuple[Distribution, ...]:
        """The rows of the verdict that were computed."""
        return tuple(self._rows[i] for i in verdict.rows if i in self._rows)


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a draft and the emitted tokens, cut at the end of the reply."""

    verdict: Verdict
    emitted: list[Emitted]
    p: tuple[Distribution, ...]
    """The target's distributions along the accepted path."""

    def figures(self, draft: Draft, verify_seconds: float, seconds: float) -> RoundFigures:
        """Counts and times of the round in which ``draft`` was judged."""
        path = self.verdict.path
        return RoundFigures(
            drafted=len(draft),
            verified=self.verdict.verified,
            accepted=len(path),
            emitted=len(self.emitted),
            draft_seconds=draft.seconds,
            verify_seconds=verify_seconds,
            seconds=seconds,
            source=draft.source,
            forced=len(draft.forced),
            forced_accepted=len(draft.forced.intersection(path)),
            corrected=int(self.emitted[-1].origin is Origin.CORRECTED),
            probe_seconds=draft.seconds - draft.own_seconds,
        )
