"""The target of the demonstration pair in torch, with its quantized weights, frozen."""

from pathlib import Path

import gguf
import torch
from torch import Tensor
from torch.nn import functional

HEAD, EPS, THETA = 64, 1e-5, 1e4


class Frozen:
    """A llama-shaped transformer read from a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.w = {
            t.name: torch.tensor(gguf.dequantize(t.data, t.tensor_type)).float()
            for t in gguf.GGUFReader(path).tensors
        }
        self.layers = 1 + max(int(n.split(".")[1]) for n in self.w if n.startswith("blk."))
        self.embed = self.w["token_embd.weight"]
        self.width = self.embed.shape[1]

    def logits(self, x: Tensor) -> Tensor:
        """(b, t, V) of embeddings (b, t, width)."""
        t = x.shape[1]
        angle = torch.arange(t).float()[:, None] * THETA ** (
            -torch.arange(0, HEAD, 2).float() / HEAD
        )
        cos, sin = angle.cos(), angle.sin()

        def turned(y: Tensor) -> Tensor:
            a, b = y[..., 0::2], y[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)

        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, HEAD)).transpose(1, 2)

        def normed(y: Tensor, name: str) -> Tensor:
            return functional.rms_norm(y, (self.width,), self.w[f"{name}.weight"], EPS)

        for i in range(self.layers):
            b = f"blk.{i}."

            def part(name: str, y: Tensor, b: str = b) -> Tensor:
                return functional.linear(y, self.w[f"{b}{name}.weight"])

            y = normed(x, f"{b}attn_norm")
            q, k, v = (heads(part(f"attn_{n}", y)) for n in "qkv")
            group = q.shape[1] // k.shape[1]
            k, v = (z.repeat_interleave(group, 1) for z in (turned(k), v))
            z = functional.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
            x = x + part("attn_output", z.transpose(1, 2).flatten(-2))
            y = normed(x, f"{b}ffn_norm")
            x = x + part("ffn_down", functional.silu(part("ffn_gate", y)) * part("ffn_up", y))
        return functional.linear(normed(x, "output_norm"), self.embed)
