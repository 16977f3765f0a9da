"""llama.cpp's sampler "infill": suggestions end where the model is not sure enough how to go on.

It comes after all other logits processing and looks at the tokens that are left: where those that
end a reply are likely enough, only they stay. Else tokens of which one is the beginning of another
count as one, and those below a fifth are dropped, then those below 1 / (n + 1), where n tokens were
left. Without any, the reply ends; under a grammar that forbids its end there, the likeliest stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.values import Distribution, Logits, one_hot

_LEAST = 0.2
"""Probability of a token that is kept, of the first of two thresholds."""
_ENDS = 3.0
"""Weight of the tokens that end a reply, times the number of candidates."""
_MOST = 256
"""Candidates that are compared with each other: the likeliest, where more are left."""


class InfillProcessor(LogitsProcessor):
    """Logits processing with that sampler at its end: as pure a function as without it."""

    __slots__ = ("_end", "_ends", "_piece")

    def __init__(
        self,
        others: LogitsProcessor,
        piece: Callable[[int], bytes],
        ends: frozenset[int],
        end: int,
    ) -> None:
        """After the processing ``others``. ``piece`` gives the bytes of a token; ``ends`` are all
        tokens that end a reply, and ``end`` the one that does where nothing else is left.
        """
        for name in LogitsProcessor.__slots__:
            setattr(self, name, getattr(others, name))
        self._piece, self._ends, self._end = piece, ends, end

    def __call__(self, row: Logits, before: Sequence[int]) -> Distribution:
        """See `LogitsProcessor.__call__`."""
        return self._sure(super().__call__(row, before), before)

    @property
    def together(self) -> int:
        """One row at a time."""
        return 1

    def warmed(self, sampling: Sampling) -> LogitsProcessor:
        """See `LogitsProcessor.warmed`."""
        return InfillProcessor(super().warmed(sampling), self._piece, self._ends, self._end)

    def _sure(self, found: Distribution, before: Sequence[int]) -> Distribution:
        if found.certain:
            return found
        if len(found.ids) > _MOST:
            few = np.zeros(len(found.ids), bool)
            few[np.argsort(-found.probs, kind="stable")[:_MOST]] = True
            found = _kept(found, found.probs, few)
        ids, probs = found.ids, found.probs.copy()
        ends = np.array([int(token) in self._ends for token in ids])
        of_ends = float(probs[ends].sum())
        if _ENDS * of_ends * len(ids) > float(probs[~ends].sum()):
            return _kept(found, probs, ends)
        self._merge(ids, probs)
        keep = (probs >= _LEAST) | ends
        others = int((keep & ~ends).sum())
        if others == 0:
            return one_hot(self._end_after(before, likeliest=int(ids[probs.argmax()])))
        probs /= probs[keep].sum()
        return _kept(found, probs, keep & ((probs >= 1 / (others + 1)) | ends))

    def _end_after(self, before: Sequence[int], *, likeliest: int) -> int:
        """The token that ends the reply there; the likeliest where the grammar allows no end."""
        mask = self.allowed(before)
        ends = (self._end, *sorted(self._ends))
        return next((end for end in ends if mask is None or mask.allows_token(end)), likeliest)

    def _merge(self, ids: np.ndarray, probs: np.ndarray) -> None:
        """Give the probability of a token to a likelier one where either begins with the other;
        that of a token which is left with none counts for nothing.
        """
        order = np.argsort(-probs, kind="stable")
        pieces = [self._piece(int(ids[i])) for i in order]
        gone: set[int] = set()
        for a, here in enumerate(pieces):
            for b, there in enumerate(pieces):
                if a in gone:
                    break
                if a == b or b in gone or not here or not there.startswith(here):
                    continue
                to, of = (b, a) if probs[order[b]] > probs[order[a]] else (a, b)
                probs[order[to]] += probs[order[of]]
                probs[order[of]] = 0.0
                gone.add(of)


def _kept(found: Distribution, probs: np.ndarray, keep: np.ndarray) -> Distribution:
    """The distribution of the tokens that are kept and have any probability."""
    keep = keep & (probs > 0)
    return Distribution(found.ids[keep], probs[keep] / probs[keep].sum())
