"""GPUs as the laboratory has them: classes of kernels, captured graphs, launches, clocks.

The figures are constructed, from what llama.cpp's source does and from usual bandwidths; no GPU was
measured. Reports of `scripts/device_check` will have measured ones, under "Cost of passes".
"""

from __future__ import annotations

from policy_lab.curves import Curve, Disturbance, Launches

_CLASSES = "constructed: products by rows up to 8 columns, then in tiles of 16 and 32"

GPU_CURVES = (
    Curve(
        "gpu-classes",
        f"{_CLASSES}; 2.5 GB at 450 GB/s, CUDA: a new width is launched kernel by kernel, the "
        "second equal pass captures a graph, later ones replay it",
        {1: 5.6, 2: 5.7, 4: 6.1, 8: 7.6, 9: 9.8, 16: 10, 17: 12.2, 32: 12.8, 33: 17, 64: 18},
        Launches(new=1.4, captured=2.4, replayed=0.1),
    ),
    Curve(
        "gpu-launches",
        "constructed: a 0.5 GB target whose passes are mostly launches, without captured graphs",
        {1: 1.2, 2: 1.25, 4: 1.3, 8: 1.6, 9: 2.0, 16: 2.1, 32: 2.6, 64: 3.6},
        Launches(new=2.0, captured=1.5, replayed=1.5),
    ),
    Curve(
        "integrated-classes",
        "constructed: Vulkan on memory shared with the processor, by rows up to 8, then by 32",
        {1: 60, 2: 64, 4: 78, 8: 120, 9: 150, 16: 152, 32: 158, 33: 300, 64: 310},
        Launches(new=2.0, captured=1.0, replayed=1.0),
    ),
)

_BY_ROWS = 8
"""Widest pass whose time is that of reading the weights."""


def _core_clock(seconds: float, width: int) -> float:
    """After 5 s the core is throttled to 55 %: passes that compute suffer most."""
    share = min(1.0, max(0.0, (seconds - 5) / 5))
    return 1.0 + share * (0.1 if width <= _BY_ROWS else 0.8)


def _memory_clock(seconds: float, width: int) -> float:
    """Two of every five seconds the memory runs at half of its clock."""
    if seconds % 5 < 3:
        return 1.0
    return 1.9 if width <= _BY_ROWS else 1.25


GPU_DISTURBANCES = (
    Disturbance("core-clock", factor=_core_clock),
    Disturbance("memory-clock", factor=_memory_clock),
)
