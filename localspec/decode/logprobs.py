"""Log-probabilities of tokens, from the target's own logits.

A row of a pass is the target's logits at one place, whether the token there was drafted and
accepted or is the target's own. So under speculation logprobs are those of plain decoding, as far
as the rows of both passes are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from localspec.core.emitted import LogprobsMode, TokenLogprob, TokenLogprobs
from localspec.core.selection import require_finite, top_ids
from localspec.core.values import Distribution, Ids, Logits, TargetRows

TokenText = Callable[[int], str]
"""Returns the text of a token, see `TokenLogprob.text`."""


class TokenScorer:
    """Scores the tokens of one request."""

    def __init__(self, alternatives: int, mode: LogprobsMode, text: TokenText) -> None:
        """``alternatives`` is the number of top tokens for each place."""
        self._alternatives = alternatives
        self._mode = mode
        self._text = text
        self._weights: Logits = np.empty(0, np.float32)

    def at(self, i: int, token: int, logits: Logits, p: TargetRows) -> TokenLogprobs:
        """Logprobs of a token by row i of a pass: ``logits`` (1 + n, V) are its rows, and ``p`` the
        processed ones.

        Raises:
            NotNumbersError: the row contains NaN.
        """
        if self._mode == "processed":
            return self.drawn(p(i), token)
        return self.scored(logits[i], token)

    def scored(self, row: Logits, token: int) -> TokenLogprobs:
        """Logprobs at one place, by the log-softmax of its row (V,); ``token`` is the one chosen.

        Raises:
            NotNumbersError: the row contains NaN.
        """
        norm = self._norm(row)
        top: list[TokenLogprob] = []
        if self._alternatives:
            ids = top_ids(row, self._alternatives)
            top = self._ranked(ids, row[ids].astype(np.float64) - norm)
        return TokenLogprobs(self._one(token, float(row[token]) - norm), tuple(top))

    def drawn(self, p: Distribution, token: int) -> TokenLogprobs:
        """Logprobs at one place, by the distribution that ``token`` was drawn from."""
        top: list[TokenLogprob] = []
        if self._alternatives:
            likeliest = np.argsort(-p.probs, kind="stable")[: self._alternatives]
            top = self._ranked(p.ids[likeliest], np.log(p.probs[likeliest]))
        chance = p.probability(token)
        return TokenLogprobs(
            self._one(token, math.log(chance) if chance > 0 else -math.inf), tuple(top)
        )

    def _norm(self, row: Logits) -> float:
        """log(sum(exp(row))). Its rounding does not depend on where the row lies in memory."""
        highest = row.max()
        require_finite(float(highest))
        if len(self._weights) != len(row):
            self._weights = np.empty(len(row), np.float32)
        np.subtract(row, highest, out=self._weights)
        np.exp(self._weights, out=self._weights)
        return float(highest) + math.log(float(self._weights.sum()))

    def _ranked(
        self, ids: Ids, logprobs: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> list[TokenLogprob]:
        """Tokens, the likeliest first; ties go to the smaller id."""
        order = np.argsort(-logprobs, kind="stable")
        return [self._one(int(ids[i]), float(logprobs[i])) for i in order]

    def _one(self, token: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(token, self._text(token), logprob)
