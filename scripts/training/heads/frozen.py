"""The embedded models as PyTorch modules, and what a head sees of the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
from demo.files import value
from demo.model import HEAD, Model, Shape, norm
from gguf.quants import dequantize
from torch import Tensor

from heads.compose import halves

LAYERS = (2, 4, 5)
"""Layers whose inputs EAGLE-3 fuses; llama.cpp gives out no later state for this architecture."""


@dataclass(frozen=True)
class Seen:
    """One pass of the target over a batch; T tokens, width E."""

    tokens: Tensor
    """(B, T) int64."""
    talk: Tensor
    """(B, T) int64: equal numbers belong to one conversation."""
    features: Tensor
    """(B, T, 3 E): inputs of `LAYERS`, side by side."""
    hidden: Tensor
    """(B, T, E): behind the final norm, what the output matrix is applied to."""


def load(path: Path) -> Model:
    """A llama-architecture GGUF with its weights as they are, in float32; it takes no gradients.

    Raises:
        ValueError: another architecture or head size.
    """
    reader = gguf.GGUFReader(path)
    number = lambda key: int(value(reader, f"llama.{key}"))  # noqa: E731
    shape = Shape(
        vocab=number("vocab_size"),
        width=number("embedding_length"),
        layers=number("block_count"),
        heads=number("attention.head_count"),
        kv_heads=number("attention.head_count_kv"),
        hidden=number("feed_forward_length"),
    )
    if number("rope.dimension_count") != HEAD:
        raise ValueError(f"{path}: heads are not of size {HEAD}")
    model = Model(shape)
    stored = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    state = {
        "embed": stored["token_embd.weight"],
        "norm": stored["output_norm.weight"],
    }
    for i in range(shape.layers):
        at, to = f"blk.{i}.", f"blocks.{i}."
        state[to + "norm1"] = stored[at + "attn_norm.weight"]
        state[to + "norm2"] = stored[at + "ffn_norm.weight"]
        state[to + "q.weight"] = halves(stored[at + "attn_q.weight"], shape.heads)
        state[to + "k.weight"] = halves(stored[at + "attn_k.weight"], shape.kv_heads)
        state[to + "v.weight"] = stored[at + "attn_v.weight"]
        state[to + "o.weight"] = stored[at + "attn_output.weight"]
        for name in ("gate", "up", "down"):
            state[f"{to}{name}.weight"] = stored[f"{at}ffn_{name}.weight"]
    model.load_state_dict({name: torch.tensor(data) for name, data in state.items()})
    return model.eval().requires_grad_(requires_grad=False)


@torch.no_grad()
def look(target: Model, tokens: Tensor, talk: Tensor) -> Seen:
    """The target's outputs for these tokens."""
    stream = target.stream(tokens, talk)
    hidden = norm(stream[-1], target.norm)
    features = torch.cat([stream[i] for i in LAYERS], -1)
    return Seen(tokens, talk, features, hidden)
