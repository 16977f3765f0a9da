"""A draft model of another vocabulary, as if it had the target's.

Its input is translated token by token; its output is restricted to the tokens that both
vocabularies have. The distribution that a token is drawn from is then q over these tokens alone,
normalised, which is the q that the verifier receives, so both verifiers stay exact (token-level
intersection, TLI, of Timor et al. 2025, "Accelerating LLM inference with lossless speculative
decoding algorithms for heterogeneous vocabularies").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localspec.core.media_rows import is_row
from localspec.core.values import Extension, Ids, Logits
from localspec.drafters.model.interface import DraftModel


class Translation(Protocol):
    """Between the vocabularies of a target and a draft."""

    @property
    def targets(self) -> Ids:
        """(n,) ids of the target that the draft has too."""
        ...

    @property
    def drafts(self) -> Ids:
        """(n,) the draft's ids of the same tokens."""
        ...

    @property
    def n_target(self) -> int:
        """Ids of the target's vocabulary."""
        ...

    @property
    def start(self) -> tuple[int, ...]:
        """The draft's tokens before any text."""
        ...

    def read(self, token: int) -> tuple[int, ...]:
        """A token of the target in the draft's vocabulary: at least one token."""
        ...


class TranslatedModel:
    """A `DraftModel` in the target's ids around one in the draft's."""

    def __init__(self, model: DraftModel, translation: Translation) -> None:
        """``model`` is over the draft's own ids."""
        self._model = model
        self._translation = translation
        self.vocabulary = translation.n_target
        self._ends: dict[int, list[int]] = {}
        """For each sequence: at each token of the target, how many the draft had read after it."""
        self._rows: Logits = np.empty((0, self.vocabulary), np.float32)
        """Tokens that only the target has stay impossible."""

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence; fewer where the draft's text has more tokens."""
        return self._model.capacity

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens; (rows, V) logits over the target's ids, -inf for those not shared.

        Raises:
            ContextFullError: spelled in the draft's tokens it is too long; nothing was appended.
        """
        parts = [self._translated(seq, tokens) for seq, tokens, _ in work]
        if all(_one_each(part, rows) for part, (_, _, rows) in zip(parts, work, strict=True)):
            found = self._model.extend(
                [
                    (seq, [i for ids in part for i in ids], rows)
                    for part, (seq, _, rows) in zip(parts, work, strict=True)
                ]
            )
            rows_out = self._over_target(found)
        else:
            rows_out = self._piecemeal(work, parts)
        for part, (seq, _, _) in zip(parts, work, strict=True):
            ends = self._ends.setdefault(seq, [])
            at = ends[-1] if ends else 0
            ends += (at + np.cumsum([len(ids) for ids in part])).tolist()
        return rows_out

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the target's."""
        ends = self._ends.setdefault(seq, [])
        if length < len(ends):
            self._model.truncate(seq, ends[length - 1] if length else 0)
            del ends[length:]

    def _translated(self, seq: int, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        read = self._translation.read
        parts = [(token,) if is_row(token) else read(token) for token in tokens]
        if parts and not self._ends.get(seq):
            parts[0] = self._translation.start + parts[0]
        return parts

    def _piecemeal(
        self,
        work: Sequence[Extension],
        parts: Sequence[list[tuple[int, ...]]],
    ) -> list[Logits]:
        """Logits where a requested row follows a token that is several tokens of the draft."""
        found: list[Logits] = []
        try:
            for part, (seq, _, rows) in zip(parts, work, strict=True):
                before = [i for ids in part[: len(part) - rows] for i in ids]
                if before:
                    self._model.extend([(seq, before, 0)])
                last = [self._model.extend([(seq, ids, 1)])[0].copy() for ids in part[-rows:]]
                found.append(np.concatenate(last))
        except BaseException:
            for seq, _, _ in work:
                ends = self._ends.get(seq)
                self._model.truncate(seq, ends[-1] if ends else 0)
            raise
        return self._over_target(found)

    def _over_target(self, found: Sequence[Logits]) -> list[Logits]:
        total = sum(map(len, found))
        if total > len(self._rows):
            self._rows = np.full((total, self.vocabulary), -np.inf, np.float32)
        rows_out, at = [], 0
        for rows in found:
            here = self._rows[at : at + len(rows)]
            here[:, self._translation.targets] = rows[:, self._translation.drafts]
            rows_out.append(here)
            at += len(rows)
        return rows_out


def _one_each(part: list[tuple[int, ...]], rows: int) -> bool:
    """Whether the last rows are those after the last ``rows`` tokens of the target."""
    return rows <= 1 or all(len(ids) == 1 for ids in part[len(part) - rows + 1 :])
