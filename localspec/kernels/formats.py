"""The formats of weights that kernels are proved for: random blocks, and their numbers by numpy.

Written from the description of each format and from nothing else, in float64, so that an error of
the kernels shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.float64]
Random = np.random.Generator

_IQ4 = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64
)
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float64)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of weights."""

    name: str
    ggml_type: int
    block: int
    """Numbers of a block."""
    n_bytes: int
    """Bytes of a block."""
    _random: Callable[[int, float, Random], Bytes]
    _numbers: Callable[[Bytes], Numbers]
    rounds: bool = True
    """Whether products round activations to 8 bits."""

    def random(self, n: int, size: float, rng: Random) -> Bytes:
        """``n`` numbers around zero with a deviation of about ``size``, as flat bytes."""
        return self._random(n // self.block, size, rng).reshape(-1)

    def numbers(self, data: Bytes) -> Numbers:
        """The numbers of flat bytes, exactly."""
        return self._numbers(data.reshape(-1, self.n_bytes)).reshape(-1)


def _halves(data: Bytes) -> Numbers:
    """Float16 of the pairs of bytes in a row."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float64)


def _scales(blocks: int, size: float, rng: Random) -> Bytes:
    """(blocks, 2): a float16 of either sign for each block."""
    signs = rng.choice([-1.0, 1.0], (blocks, 1))
    values = signs * rng.uniform(0.5, 1.5, (blocks, 1)) * size
    return values.astype(np.float16).view(np.uint8)


def _any(blocks: int, n: int, rng: Random) -> Bytes:
    return rng.integers(0, 256, (blocks, n), np.uint8)


def _nibbles(data: Bytes) -> Bytes:
    """Low halves of the bytes, then high halves."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _bits(data: Bytes) -> Bytes:
    """The bits of bytes, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(data), axis=-1, bitorder="little")


def _random_q4_0(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_scales(blocks, size / 4.6, rng), _any(blocks, 16, rng)], axis=1)


def _q4_0(data: Bytes) -> Numbers:
    return np.asarray(_halves(data[:, :2]) * (_nibbles(data[:, 2:]).astype(np.float64) - 8))


def _additions(blocks: int, size: float, middle: float, rng: Random) -> Bytes:
    """(blocks, 4): a factor and what is added, by which numbers are around zero."""
    factor = rng.uniform(0.5, 1.5, (blocks, 1)) * size / (0.61 * middle)
    factor = factor * rng.choice([-1.0, 1.0], (blocks, 1))
    return np.concatenate([factor, -middle * factor], axis=1).astype(np.float16).view(np.uint8)


def _random_q4_1(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_additions(blocks, size, 7.5, rng), _any(blocks, 16, rng)], axis=1)


def _q4_1(data: Bytes) -> Numbers:
    codes = _nibbles(data[:, 4:]).astype(np.float64)
    return np.asarray(_halves(data[:, :2]) * codes + _halves(data[:, 2:4]))


def _random_q5_1(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_additions(blocks, size, 15.5, rng), _any(blocks, 20, rng)], axis=1)


def _q5_1(data: Bytes) -> Numbers:
    codes = _nibbles(data[:, 8:]) | (_bits(data[:, 4:8]) << 4)
    return np.asarray(_halves(data[:, :2]) * codes.astype(np.float64) + _halves(data[:, 2:4]))


def _random_q5_0(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_scales(blocks, size / 9.2, rng), _any(blocks, 20, rng)], axis=1)


def _q5_0(data: Bytes) -> Numbers:
    codes = _nibbles(data[:, 6:]) | (_bits(data[:, 2:6]) << 4)
    return np.asarray(_halves(data[:, :2]) * (codes.astype(np.float64) - 16))


def _random_q8_0(blocks: int, size: float, rng: Random) -> Bytes:
    codes = rng.integers(-127, 128, (blocks, 32), np.int8).view(np.uint8)
    return np.concatenate([_scales(blocks, size / 73, rng), codes], axis=1)


def _q8_0(data: Bytes) -> Numbers:
    return np.asarray(_halves(data[:, :2]) * data[:, 2:].view(np.int8).astype(np.float64))


def _random_k(blocks: int, size: float, rng: Random, codes: int, middle: float) -> Bytes:
    """Scales and minima of 6 bits are independent of each other; their means cancel."""
    scale = rng.uniform(0.5, 1.5, (blocks, 1)) * size / (0.61 * middle) / 55
    factors = np.concatenate([scale, middle * scale], axis=1).astype(np.float16).view(np.uint8)
    return np.concatenate([factors, _any(blocks, 12 + codes, rng)], axis=1)


def _six_bits(packed: Bytes) -> tuple[Numbers, Numbers]:
    """(blocks, 8) scales and minima of 12 bytes."""
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1)
    return scales.astype(np.float64), minima.astype(np.float64)


def _scaled(data: Bytes, codes: Bytes) -> Numbers:
    """(blocks, 8, 32) codes with the scales and minima before them."""
    factors, (scales, minima) = _halves(data[:, :4]), _six_bits(data[:, 4:16])
    scale, minimum = factors[:, :1] * scales, factors[:, 1:] * minima
    return np.asarray(scale[..., None] * codes - minimum[..., None])


def _random_q4_k(blocks: int, size: float, rng: Random) -> Bytes:
    return _random_k(blocks, size, rng, 128, 7.5)


def _q4_k(data: Bytes) -> Numbers:
    return _scaled(data, _nibbles(data[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _random_q5_k(blocks: int, size: float, rng: Random) -> Bytes:
    return _random_k(blocks, size, rng, 160, 15.5)


def _q5_k(data: Bytes) -> Numbers:
    low = _nibbles(data[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    fifth = _bits(data[:, 16:48].reshape(-1, 32, 1)).transpose(0, 2, 1)  # bit j is of group j
    return _scaled(data, np.asarray(low | (fifth << 4), np.uint8))


def _random_q6_k(blocks: int, size: float, rng: Random) -> Bytes:
    scales = rng.integers(-128, 128, (blocks, 16), np.int8).view(np.uint8)
    factor = _scales(blocks, size / 18.5 / 73, rng)
    return np.concatenate([_any(blocks, 192, rng), scales, factor], axis=1)


def _q6_k(data: Bytes) -> Numbers:
    low, high = data[:, :128].reshape(-1, 2, 64), data[:, 128:192].reshape(-1, 2, 1, 32)
    upper = (high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)) & 3
    codes = (_nibbles(low).reshape(-1, 2, 4, 32) | (upper << 4)).astype(np.float64) - 32
    scales = data[:, 192:208].view(np.int8).astype(np.float64)[..., None]
    return np.asarray(_halves(data[:, 208:])[..., None] * scales * codes.reshape(-1, 16, 16))


def _random_iq4_nl(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_scales(blocks, size / 70, rng), _any(blocks, 16, rng)], axis=1)


def _iq4_nl(data: Bytes) -> Numbers:
    return np.asarray(_halves(data[:, :2]) * _IQ4[_nibbles(data[:, 2:])])


def _random_iq4_xs(blocks: int, size: float, rng: Random) -> Bytes:
    return np.concatenate([_scales(blocks, size / 70 / 18.5, rng), _any(blocks, 134, rng)], axis=1)


def _iq4_xs(data: Bytes) -> Numbers:
    upper = _bits(data[:, 2:4]).reshape(-1, 8, 2)
    lower = np.stack([data[:, 4:8] & 15, data[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scales = (lower | (upper[..., 0] << 4) | (upper[..., 1] << 5)).astype(np.float64) - 32
    codes = _IQ4[_nibbles(data[:, 8:].reshape(-1, 8, 16))]
    return np.asarray((_halves(data[:, :2]) * scales)[..., None] * codes)


def _random_mxfp4(blocks: int, size: float, rng: Random) -> Bytes:
    power = 128 + int(np.rint(np.log2(size / 6))) + rng.integers(-1, 2, (blocks, 1))
    return np.concatenate([power.astype(np.uint8), _any(blocks, 16, rng)], axis=1)


def _mxfp4(data: Bytes) -> Numbers:
    power = data[:, :1].astype(np.float64) - 128
    return np.asarray(2.0**power * _FP4[_nibbles(data[:, 1:])])


def _random_f16(blocks: int, size: float, rng: Random) -> Bytes:
    return rng.normal(0, size, blocks).astype(np.float16).view(np.uint8)


def _random_bf16(blocks: int, size: float, rng: Random) -> Bytes:
    whole = rng.normal(0, size, blocks).astype(np.float32).view(np.uint32)
    return (whole >> 16).astype(np.uint16).view(np.uint8)


def _bf16(data: Bytes) -> Numbers:
    whole = np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16
    return whole.view(np.float32).astype(np.float64)


def _random_f32(blocks: int, size: float, rng: Random) -> Bytes:
    return rng.normal(0, size, blocks).astype(np.float32).view(np.uint8)


def _f32(data: Bytes) -> Numbers:
    return np.ascontiguousarray(data).view(np.float32).astype(np.float64)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("Q4_0", 2, 32, 18, _random_q4_0, _q4_0),
        Format("Q4_1", 3, 32, 20, _random_q4_1, _q4_1),
        Format("Q5_1", 7, 32, 24, _random_q5_1, _q5_1),
        Format("Q5_0", 6, 32, 22, _random_q5_0, _q5_0),
        Format("Q8_0", 8, 32, 34, _random_q8_0, _q8_0),
        Format("Q4_K", 12, 256, 144, _random_q4_k, _q4_k),
        Format("Q5_K", 13, 256, 176, _random_q5_k, _q5_k),
        Format("Q6_K", 14, 256, 210, _random_q6_k, _q6_k),
        Format("IQ4_NL", 20, 32, 18, _random_iq4_nl, _iq4_nl),
        Format("IQ4_XS", 23, 256, 136, _random_iq4_xs, _iq4_xs),
        Format("MXFP4", 39, 32, 17, _random_mxfp4, _mxfp4),
        Format("F16", 1, 1, 2, _random_f16, _halves, rounds=False),
        Format("BF16", 30, 1, 2, _random_bf16, _bf16, rounds=False),
        Format("F32", 0, 1, 4, _random_f32, _f32, rounds=False),
    )
}
"""The formats by name."""
