"""Counter-based randomness: a pure function of (seed, position, stream, index, token id).

Nothing is consumed, so the same request gives the same text with any drafter, any draft length,
any tree and in any company. Streams separate the purposes: a number that chose a token never
takes part in a test of that token.

The mixing function is the 64-bit finalizer of SplitMix64 with Stafford's variant 13 constants
(Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"; Stafford 2011,
"Better bit mixing"), applied once per word of the key and twice per token id.
"""

from __future__ import annotations

import enum

import numpy as np

from localspec.core import kernel
from localspec.core.values import Distribution, Ids, Probs

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB
_U1, _U2, _UG = np.uint64(_M1), np.uint64(_M2), np.uint64(_GOLDEN)
_S30, _S27, _S31, _S12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)


class Stream(enum.IntEnum):
    """The purposes of randomness. Values are part of the reproducibility promise."""

    SAMPLE = 1
    """The target's own choice of a token, and the coupled draft of it."""
    DRAFT = 2
    """A drafter's independent draw from q."""
    ACCEPT = 3
    """The p/q test of rejection sampling."""
    RESIDUAL = 4
    """The draw from the residual after a rejection."""
    EXCLUDE = 5
    """XTC's coin, the same for target and draft."""


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _M1) & _MASK
    z = ((z ^ (z >> 27)) * _M2) & _MASK
    return z ^ (z >> 31)


def _mix_array(z: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
    """The same mix, in place on uint64."""
    z ^= z >> _S30
    z *= _U1
    z ^= z >> _S27
    z *= _U2
    z ^= z >> _S31


class Noise:
    """The randomness of one request."""

    __slots__ = ("_kernel", "_keys", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._kernel = kernel.loaded()
        self._keys = {stream: _mix((seed & _MASK) + stream * _GOLDEN & _MASK) for stream in Stream}

    def by_reference(self) -> Noise:
        """The same noise without the compiled kernel."""
        found = Noise(self.seed)
        found._kernel = None
        return found

    def key(self, position: int, stream: Stream, index: int = 0) -> int:
        """The number that all noise of one purpose at one position is made from."""
        key = _mix((self._keys[stream] ^ (position + 1) * _GOLDEN) & _MASK)
        return _mix((key ^ (index + 1) * _M1) & _MASK) if index else key

    def uniforms(self, position: int, ids: Ids, stream: Stream, index: int = 0) -> Probs:
        """One uniform in the open (0, 1) per token id: (s,) float64 of 52 random bits."""
        z = ids.astype(np.uint64)
        z += np.uint64(1)
        z *= _UG
        z ^= np.uint64(self.key(position, stream, index))
        _mix_array(z)
        z += _UG
        _mix_array(z)
        z >>= _S12
        u = z.astype(np.float64)
        u += 0.5
        u *= 2.0**-52
        return u

    def gumbel(self, position: int, ids: Ids, stream: Stream, index: int = 0) -> Probs:
        """Standard Gumbel noise per token id: (s,) float64, -log(-log(u))."""
        u = self.uniforms(position, ids, stream, index)
        np.log(u, out=u)
        np.negative(u, out=u)
        np.log(u, out=u)
        np.negative(u, out=u)
        return u

    def uniform(self, position: int, index: int, stream: Stream) -> float:
        """A single uniform in (0, 1)."""
        z = _mix((self.key(position, stream, index) + _GOLDEN) & _MASK)
        return ((z >> 12) + 0.5) * 2.0**-52

    def draw(
        self, distribution: Distribution, position: int, stream: Stream, index: int = 0
    ) -> int:
        """A token from the distribution by the Gumbel-max trick: argmax(log p + gumbel).

        Two distributions drawn with the same arguments are coupled: the more they overlap, the
        more often they give the same token (at least (1 - TV) / (1 + TV); Daliri et al. 2025,
        "Coupling without communication and drafter-invariant speculative decoding").
        """
        if distribution.certain:
            return int(distribution.ids[0])
        if self._kernel is not None:
            return self._kernel.draw(distribution, self.key(position, stream, index))
        g = self.gumbel(position, distribution.ids, stream, index)
        g += np.log(distribution.probs)
        return int(distribution.ids[int(np.argmax(g))])
