"""The arithmetic of training: bfloat16 where the processor computes with it, float32 elsewhere."""

from __future__ import annotations

import torch


def arithmetic() -> torch.autocast:
    """A context for the forward pass. Where oneDNN has no kernels for bfloat16 (AVX2, for one), its
    matrix products are emulated, in a hundred times the time of float32.
    """
    quick = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return torch.autocast("cpu", torch.bfloat16, enabled=quick)
