"""One transformer layer that drafts several tokens in a row from its own states.

Row k of a step stands for the token at position k and a state of the position before it; it
predicts token k + 1. In step 1 the states are the target's. In step s a row uses the output
of the row before it in step s - 1, as at drafting time, while everything further back in its KV
cache comes from the target's states ("training-time test" of EAGLE-3, Li et al. 2025, section 3.2).
"""

from __future__ import annotations

import torch
from demo.model import HEAD, Linear, rotate
from torch import Tensor, nn
from torch.nn import functional

Past = list[tuple[Tensor, Tensor]]


def shifted(x: Tensor, by: int, axis: int = 1) -> Tensor:
    """Shift by a number of positions along `axis`, with zeros in front."""
    if by == 0:
        return x
    x = x.narrow(axis, 0, x.shape[axis] - by)
    pad = [0, 0] * (x.ndim - axis - 1) + [by, 0]
    return functional.pad(x, pad)


class Attention(nn.Module):
    """Causal attention whose keys of all steps are kept in `past`."""

    def __init__(self, wide: int, width: int, heads: int, kv: int) -> None:
        super().__init__()
        self.heads, self.kv = heads, kv
        self.q = Linear(wide, heads * HEAD)
        self.k = Linear(wide, kv * HEAD)
        self.v = Linear(wide, kv * HEAD)
        self.o = Linear(heads * HEAD, width, 0.5)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, past: Past) -> Tensor:
        """`mask` (B, T, T) says which target-made keys a row of step 1 may see."""
        b, t, _ = x.shape
        group = self.heads // self.kv
        q = rotate(self._parts(self.q(x, quant=False), self.heads), *turns)
        k = rotate(self._parts(self.k(x, quant=False), self.kv), *turns)
        v = self._parts(self.v(x, quant=False), self.kv)
        past.append((k, v))
        step = len(past)
        (first_k, first_v), own = past[0], past[1:]
        old = torch.ones(t, t, dtype=torch.bool).tril(1 - step)
        packed = q.reshape(b, self.kv, group * t, HEAD)
        score = (packed @ first_k.transpose(-1, -2)).view(b, self.kv, group, t, t).float()
        score = score.masked_fill(~(mask & old)[:, None, None], float("-inf"))
        # A row sees one key of each later step: those of its own chain.
        chain = [
            (shifted(a, step - n, 2), shifted(c, step - n, 2)) for n, (a, c) in enumerate(own, 2)
        ]
        grouped = q.view(b, self.kv, group, t, HEAD)
        scores = [(grouped * a[:, :, None]).float().sum(-1, keepdim=True) for a, _ in chain]
        p = (torch.cat([score, *scores], -1) * HEAD**-0.5).softmax(-1).to(v.dtype)
        z = (p[..., :t].reshape(b, self.kv, group * t, t) @ first_v).view(grouped.shape)
        for n, (_, c) in enumerate(chain):
            z = z + p[..., t + n, None] * c[:, :, None]
        z = z.reshape(b, self.heads, t, HEAD).transpose(1, 2)
        return self.o(z.reshape(b, t, self.heads * HEAD), quant=False)

    @staticmethod
    def _parts(x: Tensor, heads: int) -> Tensor:
        b, t, _ = x.shape
        return x.view(b, t, heads, HEAD).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = Linear(width, hidden)
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.silu(self.gate(x, quant=False)) * self.up(x, quant=False)
        return self.down(inner, quant=False)
