"""The costs of passes on machines: milliseconds by width, and what disturbs them.

Each curve names its source. Where a source gives tokens per second of passes over n tokens, a pass
takes n divided by that; where it gives one matrix product, a pass is taken to scale like it.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from localspec.policy.costs import Costs

WIDEST = 520
"""Rows of a pass at most: 8 requests with 63 each, and some."""


def _speeds(*tokens_per_second: float) -> dict[int, float]:
    """Milliseconds by width, from the speed of passes over 1, 2, 3, ... tokens."""
    return {n: 1000 * n / speed for n, speed in enumerate(tokens_per_second, 1)}


def _batches(tokens_per_second: Mapping[int, float]) -> dict[int, float]:
    """Milliseconds by width, from the speed of passes by width."""
    return {n: 1000 * n / speed for n, speed in tokens_per_second.items()}


@dataclass(frozen=True)
class Launches:
    """Milliseconds that a pass takes on a GPU beside its kernels, by the passes before it."""

    new: float = 0.0
    """Milliseconds of a pass of another width than the last one, besides its table."""
    captured: float = 0.0
    """The second of a width in a row."""
    replayed: float = 0.0
    """Each one after."""

    def ms(self, equal: int) -> float:
        """Milliseconds after ``equal`` passes of the same width in a row."""
        return (self.new, self.captured)[equal] if equal < 2 else self.replayed


NO_LAUNCHES = Launches()


@dataclass(frozen=True)
class Curve:
    """Passes of one machine."""

    name: str
    source: str
    times: Mapping[int, float]
    """Milliseconds by width, as published or measured; beyond the widest, rows cost alike."""
    launches: Launches = NO_LAUNCHES

    def table(self) -> list[float]:
        """Milliseconds by width, from 0 to `WIDEST`."""
        return self._table

    @functools.cached_property
    def _table(self) -> list[float]:
        return [0.0, *Costs(self.times).passes_seconds(np.arange(1, WIDEST + 1)).tolist()]


CURVES = (
    Curve(
        "epyc",
        "measured, 2 cores of an AMD EPYC (AVX-512), 1 GB of Q4_0",
        {1: 28.5, 2: 54, 3: 76.5, 4: 73.5, 5: 99, 6: 124, 8: 142, 16: 212, 32: 420},
    ),
    Curve(
        "epyc-small",
        "measured, 2 cores of an AMD EPYC (AVX-512), 0.3 GB of Q4_0",
        {1: 11.8, 2: 23, 3: 31, 4: 27, 5: 37, 8: 49},
    ),
    Curve(
        "xeon",
        "measured, Xeon (AVX-512), a foreign 1 GB pair",
        {1: 67, 2: 114, 3: 144, 4: 94, 5: 147, 8: 178, 16: 263},
    ),
    Curve("amx", "measured, Xeon with AMX, 1 GB", {1: 45, 2: 82, 4: 88, 8: 108, 16: 188}),
    Curve(
        "own-avx2",
        "measured, our kernels, 2 cores of an AMD EPYC (AVX2 only), 1 GB of Q4_0, 2 threads",
        {1: 39, 2: 48, 3: 63, 4: 76, 5: 85, 6: 103, 7: 118, 8: 136, 10: 162, 12: 189}
        | {16: 255, 24: 384, 32: 509, 128: 1991},
    ),
    Curve(
        "own-vnni",
        "measured, our kernels, 2 cores of an AMD EPYC (AVX-512 VNNI), 1 GB of Q4_0, 1 thread",
        {1: 43.4, 2: 43.6, 3: 43.8, 4: 47.9, 5: 57.2, 6: 68.6, 7: 78.6, 8: 88.5, 9: 98.6}
        | {10: 105.9, 12: 127.9, 14: 153.5, 16: 172.8, 24: 257.1, 32: 348.5, 48: 520.8, 63: 691.4},
    ),
    Curve(
        "rtx3090",
        "llama.cpp#15802: RTX 3090, CUDA, 8B Q4_0, pp512 with microbatches of 1 to 8",
        _speeds(155.02, 277.36, 390.23, 468.95, 514.50, 529.37, 559.17, 570.67)
        | _batches({16: 914.1, 32: 1197.13}),
    ),
    Curve(
        "rtx3090-32k",
        "llama.cpp#17891: RTX 3090, CUDA, 7B Q4_0 after 32,768 tokens, pp512 with microbatches",
        _batches({1: 40.05, 2: 76.19, 4: 146.7, 8: 250.73, 16: 504.32, 32: 905.59, 64: 1475.74}),
    ),
    Curve(
        "rtx3090-vulkan-2024",
        "llama.cpp#10991: RTX 3090, Vulkan before that change, 8B Q4_0, batched-bench",
        {1: 12.1, 2: 67.7, 3: 69.4, 4: 70.2, 5: 70.9, 6: 71.6, 7: 78.8, 8: 80.2, 9: 52.9, 10: 53.5},
    ),
    Curve(
        "m3-max-2023",
        "llama.cpp#4624: Apple M3 Max, Metal of December 2023, 7B Q4_0, pp1 to pp8",
        _speeds(63.62, 25.92, 38.87, 51.93, 64.29, 77.40, 89.91, 102.94),
    ),
    Curve(
        "m4-pro",
        "llama.cpp#25250, #25377: Apple M4 Pro, Metal, one Q4_0 product (4096 x 14336), scaled",
        {1: 20, 2: 36.3, 4: 76.5, 5: 113, 8: 148.7, 16: 150, 32: 155},
    ),
    Curve(
        "m5-q8",
        "llama.cpp#29110: Apple GPU, Metal, one Q8_0 product (4096 x 14336), scaled",
        {1: 20, 2: 41, 8: 152, 16: 300},
    ),
    Curve(
        "radeon-8060s",
        "llama.cpp#16907: Radeon 8060S (integrated), RADV, one IQ1_M product, scaled; 8 on is ours",
        {1: 20, 2: 23, 3: 30.4, 4: 38.6, 5: 80.4, 8: 128},
    ),
    Curve(
        "server",
        "assumed, for a server whose memory is fast and whose arithmetic is faster still",
        {1: 10, 2: 10.2, 4: 10.5, 8: 11, 16: 12, 32: 14, 64: 18, 128: 27, 272: 50},
    ),
)


Factor = Callable[[float, int], float]
"""(Seconds since the beginning, width) -> factor on a pass."""


@dataclass(frozen=True)
class Disturbance:
    """A cause that makes passes slower or uncertain; all of it is fixed by the seed."""

    name: str
    noise: float = 0.02
    """Standard deviation of the logarithm of a pass."""
    stalls: float = 0.0
    """Share of passes that take five times as long."""
    factor: Factor = field(default=lambda _seconds, _width: 1.0)
    drafting: Callable[[float], float] = field(default=lambda _seconds: 1.0)
    """Seconds since the beginning -> factor on drafts beside that on a pass over one token."""

    def observed(self, rng: random.Random) -> float:
        """A random factor on one measurement, which is no property of the machine."""
        stall = 5.0 if self.stalls and rng.random() < self.stalls else 1.0
        return stall * math.exp(rng.gauss(0.0, self.noise))


def _drift(seconds: float, _width: int) -> float:
    return 1.0 + 0.15 * math.sin(seconds / 40)


def _throttled(seconds: float, _width: int) -> float:
    """Full speed for ten seconds, then down to 60 %."""
    return 1.0 + 0.67 * min(1.0, max(0.0, (seconds - 10) / 20))


def _neighbour(seconds: float, width: int) -> float:
    """Half of the time another program computes: passes over several tokens lose more."""
    if int(seconds // 15) % 2 == 0:
        return 1.0
    return 1.4 if width == 1 else 2.1


def _burst(seconds: float) -> float:
    """Ten times for two seconds of every sixty."""
    return 10.0 if 10 <= seconds % 60 < 12 else 1.0


def _wide_burst(seconds: float, width: int) -> float:
    return _burst(seconds) if width > 1 else 1.0


DISTURBANCES = (
    Disturbance("steady"),
    Disturbance("noisy", noise=0.15),
    Disturbance("drift", factor=_drift),
    Disturbance("throttled", factor=_throttled),
    Disturbance("neighbour", factor=_neighbour),
    Disturbance("stalls", stalls=0.01),
)
BURSTS = (
    Disturbance("slow-drafts", drafting=_burst),
    Disturbance("slow-passes", factor=_wide_burst),
    Disturbance("slow-both", factor=_wide_burst, drafting=_burst),
)
"""What drafts need takes ten times as long for a while, and plain passes do not."""
OVERRUN = Disturbance("overrun", noise=0.9)
"""Other programs compute on all cores: passes wait for whole time slices of theirs."""


def swept(curve: Curve, disturbance: Disturbance, seed: int) -> dict[int, float]:
    """The seconds that a sweep at load would have measured: the least of three visits. Widths take
    turns in it, but passes over one token are measured in a row, as plain decoding makes them.
    """
    rng, table, launches = random.Random(seed), curve.table(), curve.launches
    widths = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
    beside = {n: launches.new if n > 1 else launches.replayed for n in widths}
    least = {n: min(abs(rng.gauss(0, disturbance.noise)) for _ in range(3)) for n in widths}
    return {n: (table[n] + beside[n]) / 1000 * math.exp(least[n]) for n in widths}


def relative(table: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(WIDEST + 1,) cost of passes in plain passes."""
    return np.array(table) / table[1]
