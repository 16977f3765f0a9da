"""Machines and model files for tests of what fits."""

from __future__ import annotations

from gguf_shapes import Shape

from localspec.models.memory.machine import Gpu, Memory

GB = 1 << 30
OTHER = Shape(8, 1024, 4096, 8, 2, vocabulary=32_000, context=4096)


def machine(*gpus: float, host: float = 60, shared: bool = False) -> Memory:
    """Free gigabytes of each GPU and of the host."""
    cards = tuple(Gpu(f"CUDA{i}", "a card", int(g * GB), int(g * GB)) for i, g in enumerate(gpus))
    return Memory(cards, int(host * GB), int(host * 1.2 * GB), shared)
