"""Choose K from what passes cost and what drafts achieve on this machine.

The rate of a draft length K is E[emitted | K] / t(K) (Leviathan et al. 2023, section 3.3, with
measured times in place of a cost ratio):

    E[emitted | K] = 1 + sum over i <= K of the product of survival_1 .. survival_i
    t(K)           = verify(K + 1) + K * draft

`verify` is a measured curve and not a fit, because it has steps: on AVX-512 a Q4_0 pass over four
tokens is cheaper than one over two. Where K = 0 has the best rate, drafting is parked, and probed
now and then with growing pauses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.events import Speculation
from localspec.values import Budget, Outcome

K_MAX = 15
_SMOOTHING = 0.1
"""Weight of a new time; times settle within about ten rounds."""
_DECAY = 0.97
"""What remains of the evidence on a position's survival after each new judgement."""
_PRIOR = (0.7, 4.0)
"""Survival assumed at first, and for how many judgements that counts."""
_CLAMP = 3.0
"""A pass is taken to have lasted at most this many times its usual time: the rest is the
machine's."""
_MARGIN = 1.02
"""Drafting must promise this much more than plain decoding."""
_PLAIN_EVERY = 64
"""While drafting, one round in this many is plain, to keep the comparison honest."""
_CURVE_EVERY = 16
"""Rounds between two looks at the curve of pass times."""
_PROBE_FIRST, _PROBE_LAST = 8, 512
"""Plain rounds between probes while parked: the first pause and the longest."""


class _Mean:
    """A moving average that outliers cannot carry away."""

    __slots__ = ("value",)

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def add(self, x: float) -> None:
        if self.value is None:
            self.value = x
        else:
            self.value += _SMOOTHING * (min(x, _CLAMP * self.value) - self.value)


class Auto:
    """Drafts as long as it pays."""

    def __init__(
        self, verify: Mapping[int, float], draft: float | None = None, k_max: int = K_MAX
    ) -> None:
        """Costs as measured at load.

        ``verify`` holds seconds of a target pass by number of tokens, ``draft`` seconds for one
        drafted token (None where drafting costs next to nothing).
        """
        self._verify = {n: _Mean(seconds) for n, seconds in verify.items()}
        self._draft = _Mean(draft)
        self._hits = [_PRIOR[0] * _PRIOR[1]] * k_max
        self._tries = [_PRIOR[1]] * k_max
        self._k_max = k_max
        self._curve = [self.verify_seconds(k + 1) for k in range(k_max + 1)]
        """Seconds of a pass by draft length, refreshed now and then: it changes slowly."""
        self._round = 0
        self._pause = _PROBE_FIRST
        self._until_probe = 0
        self.speculation = Speculation("on")

    def plan(self, seqs: Sequence[int]) -> list[Budget]:
        """The best K for everyone; zero while parked, but for probes."""
        return [Budget.chain(self._choose())] * len(seqs)

    def _choose(self) -> int:
        self._round += 1
        if self._round % _PLAIN_EVERY == 1:
            return 0
        rates = self.rates()
        k = max(range(1, self._k_max + 1), key=rates.__getitem__)
        if rates[k] > _MARGIN * rates[0]:
            self._pause, self._until_probe = _PROBE_FIRST, 0
            self.speculation = Speculation("on")
            return k
        self.speculation = Speculation(
            "parked", f"plain decoding is faster here ({self._survival(0):.0%} of drafts stand)"
        )
        if self._until_probe > 0:
            self._until_probe -= 1
            return 0
        self._until_probe = self._pause
        self._pause = min(2 * self._pause, _PROBE_LAST)
        return k

    def rates(self) -> list[float]:
        """Expected tokens per second with draft lengths 0, 1, ..., k_max."""
        if self._round % _CURVE_EVERY == 2:
            self._curve = [self.verify_seconds(k + 1) for k in range(self._k_max + 1)]
        draft = self._draft.value or 0.0
        emitted, reach = 1.0, 1.0
        found = [1.0 / self._curve[0]]
        for k in range(1, self._k_max + 1):
            reach *= self._survival(k - 1)
            emitted += reach
            found.append(emitted / (self._curve[k] + k * draft))
        return found

    def verify_seconds(self, width: int) -> float:
        """Of a pass over ``width`` tokens: measured, or interpolated between measured widths."""
        known = self._verify
        here = known.get(width)
        if here is not None and here.value is not None:
            return here.value
        below = max((n for n in known if n < width), default=None)
        above = min((n for n in known if n > width), default=None)
        if below is None and above is None:
            return 1.0
        if below is None or above is None:
            n = above if below is None else below
            assert n is not None
            seconds = known[n].value or 1.0
            return seconds * max(1.0, width / n)
        low, high = known[below].value or 0.0, known[above].value or 0.0
        return low + (high - low) * (width - below) / (above - below)

    def _survival(self, i: int) -> float:
        return self._hits[i] / self._tries[i]

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Times by width, survival by position."""
        if not outcomes:
            return
        width = sum(1 + o.proposed for o in outcomes)
        self._verify.setdefault(width, _Mean()).add(outcomes[0].verify_s)
        for o in outcomes:
            if o.proposed:
                self._draft.add(o.draft_s / o.proposed)
            for i in range(min(o.verified, self._k_max)):
                stood = float(i < o.accepted)
                self._tries[i] = 1 + _DECAY * self._tries[i]
                self._hits[i] = stood + _DECAY * self._hits[i]
