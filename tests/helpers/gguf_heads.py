"""Random drafting heads as GGUF files."""

from __future__ import annotations

from pathlib import Path

import gguf
import gguf_tools
import numpy as np


def write_mtp_block(
    path: Path, *, layer: int = 6, width: int = 256, seed: int = 0, hidden: int = 64
) -> Path:
    """A multi-token prediction block of random weights for a target with ``layer`` layers."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "mtp-block")

    def matrix(name: str, *shape: int) -> None:
        weights = rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float16)
        writer.add_tensor(f"blk.{layer}.{name}.weight", weights)

    for name in ("nextn.enorm", "nextn.hnorm", "attn_norm", "post_attention_norm"):
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    matrix("nextn.eh_proj", width, 2 * width)
    matrix("attn_q", width, width)
    matrix("attn_k", width // 2, width)
    matrix("attn_v", width // 2, width)
    matrix("attn_output", width, width)
    writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", np.zeros((1, width), np.float32))
    writer.add_tensor(f"blk.{layer}.exp_probs_b.bias", np.zeros(1, np.float32))
    for part in ("exps", "shexp"):
        one = (1,) if part == "exps" else ()
        matrix(f"ffn_gate_{part}", *one, hidden, width)
        matrix(f"ffn_up_{part}", *one, hidden, width)
        matrix(f"ffn_down_{part}", *one, width, hidden)
    return gguf_tools.written(writer)
