"""How many tokens of a prompt are read at once, by the time that such parts took.

A part is one pass of the target, and one of a draft model. While others wait, parts are short. A
request that runs alone is read in large parts where a running pass can be aborted. llama.cpp aborts
passes on the processor alone; a device computes a pass to its end, and the user who stops the reply
waits for it. There, parts grow only as long as they are short, or the larger ones read faster.
"""

from __future__ import annotations

import itertools
from collections import deque

PART = 256
"""Most tokens of a part, and between two Reading events."""
LEAST_PART = 16
"""Fewest, unless fewer are left: a pass over less costs nearly as much."""
_GROUP = 16
"""Parts are multiples of this: kernels compute rows in groups, and what is left one by one."""
FIRST_PART = 32
"""Tokens of a part that others wait for, before the speed of reading is known."""
SIZES = (64, 128, PART)
"""Sizes on a device. The least is where llama.cpp's products over many rows begin to pay."""
PAUSE_S = 0.25
"""Seconds that a part on a device may take although it reads no faster."""
_FASTER = 1.07
"""A longer part is justified if it reads by this factor faster."""
_MEASURED = 2
"""Parts of a size before its speed is known: the first one compiles kernels."""
_KEPT = 4
"""Parts of a size that its speed is the best of."""
_WEIGHT = 0.3
"""Weight of the newest part in the speed that parts for others go by."""


class PartSizes:
    """Chooses the sizes of parts, and learns from every part."""

    def __init__(self, *, aborts: bool) -> None:
        """``aborts``: whether a pass that nobody needs any more is aborted."""
        self._aborts = aborts
        self._rate = 0.0
        """Tokens read per second, lately; 0 where none were."""
        self._rates: dict[int, deque[float]] = {n: deque(maxlen=_KEPT) for n in SIZES}

    def within(self, seconds: float) -> int:
        """Tokens that are read in about ``seconds``."""
        if not self._rate:
            return FIRST_PART
        return max(LEAST_PART, int(min(PART, max(0.0, seconds * self._rate))) // _GROUP * _GROUP)

    @staticmethod
    def of(left: int, most: int) -> int:
        """Tokens of the next part, of ``left``: about ``most``. A small remainder is read along,
        since a pass of its own would cost much more.
        """
        return left if left - most < LEAST_PART // 2 else most

    def alone(self) -> int:
        """Tokens of a part that only its own reply waits for."""
        if self._aborts:
            return PART
        for size, larger in itertools.pairwise(SIZES):
            if len(self._rates[size]) < _MEASURED:
                return size
            rate = max(self._rates[size])
            if larger <= PAUSE_S * rate:
                continue
            if len(self._rates[larger]) < _MEASURED:
                return larger
            if max(self._rates[larger]) < _FASTER * rate:
                return size
        return SIZES[-1]

    def learn(self, tokens: int, seconds: float) -> None:
        """A part of ``tokens`` took ``seconds``."""
        rate = tokens / max(seconds, 1e-9)
        self._rate += (rate - self._rate) * (_WEIGHT if self._rate else 1.0)
        if tokens in self._rates:
            self._rates[tokens].append(rate)
