"""A draft model of another vocabulary, as if it spoke the target's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.drafters.model import DraftModel
from localspec.pairs.translation import Translation
from localspec.values import Logits


class TranslatedModel:
    """A `DraftModel` over the target's ids; tokens the draft cannot propose have logit -inf."""

    def __init__(self, model: DraftModel, translation: Translation) -> None:
        """``model`` is over the draft's own ids."""
        self._model = model
        self._translation = translation
        self.vocabulary = len(translation.to_draft)
        known = translation.to_target[: model.vocabulary]
        self._from = np.flatnonzero(known >= 0)
        self._to = known[self._from]
        self._ends: dict[int, list[int]] = {}
        """Of each sequence: the draft's length after each token of the target."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold; of text that needs more of the draft's, fewer."""
        return self._model.capacity

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        """Append tokens of the target; (rows, V) logits after the last ``rows`` of each.

        Raises:
            ContextFullError: spelled in the draft's tokens it is too long; nothing was appended.
        """
        spelled = [[self._translation.read(t) for t in tokens] for _, tokens, _ in work]
        jobs: list[tuple[int, Sequence[int], int]] = []
        for (seq, _, rows), parts in zip(work, spelled, strict=True):
            flat = [token for part in parts for token in part]
            wanted = sum(len(part) for part in parts[len(parts) - rows :]) if rows else 0
            jobs.append((seq, flat, max(1, wanted) if rows else 0))
        found = self._model.extend(jobs)
        results = []
        for (seq, _, rows), parts, own in zip(work, spelled, found, strict=True):
            ends = self._ends.setdefault(seq, [])
            at = ends[-1] if ends else 0
            for part in parts:
                at += len(part)
                ends.append(at)
            results.append(self._translated(own, [ends[-1] - end for end in ends[-rows:]], rows))
        return results

    def _translated(self, own: Logits, back: Sequence[int], rows: int) -> Logits:
        """``back`` counts the draft's tokens from each wanted row to the last one."""
        wide = np.full((rows, self.vocabulary), -np.inf, np.float32)
        for row, n in enumerate(back[:rows]):
            wide[row, self._to] = own[len(own) - 1 - n, self._from]
        return wide

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the target's sequence."""
        ends = self._ends.setdefault(seq, [])
        if length < len(ends):
            del ends[length:]
            self._model.truncate(seq, ends[-1] if ends else 0)
