"""The target's choice at one position, and how far it is from another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

import numpy as np

from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise, Stream
from localspec.core.values import Logits, Probs


class TargetChoice:
    """The target's choice at one position under the verifier `match`, as a function of the row.

    ``before`` holds every token before the position, prompt included.
    """

    def __init__(self, before: list[int], processor: LogitsProcessor, noise: Noise) -> None:
        self._before, self._noise = before, noise
        self._processor = processor
        off = dataclasses.replace(
            processor.sampling,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            typical_p=1.0,
            top_n_sigma=0.0,
            xtc_probability=0.0,
        )
        self._whole = processor.warmed(off)
        self._greedy = processor.sampling.greedy

    def __call__(self, row: Logits) -> int:
        p = self._processor(row, self._before)
        return self._noise.draw(p, len(self._before), Stream.SAMPLE)

    def distance(self, row: Logits, token: int, go_on: Callable[[], None] = lambda: None) -> float:
        """The distance by which every logit must move for ``token`` to be chosen; 0 if it is.

        Two moves are tried, since the borders of top-k, top-p and min-p may have to let the token
        in or to shut its rivals out: all others down, or only those that score above it. Found to
        10 %; infinite above 16. All steps are gone through, since typical-p and XTC may shut a
        token out again that moves further; ``go_on`` is called before each, and may raise.
        """
        if self(row) == token:
            return 0.0
        scores = self._scores(row)
        alone = np.full(len(row), -1.0, np.float32)
        alone[token] = 1.0
        rivals = np.where(scores > scores[token], -1.0, 1.0).astype(np.float32)
        for step in np.geomspace(1e-6, 16.0, 175).astype(np.float32):
            go_on()
            if token in {self(row + step * alone), self(row + step * rivals)}:
                return float(step)
        return np.inf

    def gap(
        self, row: Logits, tokens: Collection[int], go_on: Callable[[], None] = lambda: None
    ) -> float:
        """The gap between tokens, of which one is chosen: twice the distance by which every logit
        must be able to move. ``go_on`` as in `distance`.
        """
        return 2 * max(self.distance(row, token, go_on) for token in tokens)

    def _scores(self, row: Logits) -> Probs:
        """(V,) what the choice maximises, before top-k, top-p and min-p."""
        if self._greedy:
            return row.astype(np.float64)
        p = self._whole(row, self._before)
        scores = np.full(len(row), -np.inf)
        scores[p.ids] = np.log(p.probs) + self._noise.gumbel(
            len(self._before), p.ids, Stream.SAMPLE
        )
        return scores
