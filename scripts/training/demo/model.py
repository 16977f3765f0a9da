"""A small llama-shaped transformer: RMS norm, rotary positions, grouped queries, SwiGLU, tied embeddings."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = 64
EPS = 1e-5
THETA = 1e4


@dataclass(frozen=True)
class Shape:
    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int

    def dict(self) -> dict[str, int]:
        return asdict(self)


def rounded(weight: Tensor) -> Tensor:
    """The weight as Q4_0 will store it; the gradient passes as if nothing had happened."""
    blocks = weight.detach().float().view(-1, 32)
    low, high = blocks.aminmax(dim=1, keepdim=True)
    top = torch.where(high > -low, high, low)
    scale = top / -8
    inverse = torch.where(top == 0, 0.0, -8 / top)
    steps = (blocks * inverse + 8.5).floor().clamp(0, 15) - 8
    return weight + ((steps * scale).view_as(weight) - weight).detach()


class Linear(nn.Module):
    def __init__(self, wide: int, out: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, wide) * scale * wide**-0.5)

    def forward(self, x: Tensor, quant: bool) -> Tensor:
        return functional.linear(x, rounded(self.weight) if quant else self.weight)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)


def turns(length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions, each (length, HEAD / 2)."""
    at = torch.arange(length, dtype=torch.float32)
    angle = at[:, None] * THETA ** (-torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads, self.kv = s.heads, s.kv_heads
        small = (2 * s.layers) ** -0.5
        self.norm1 = nn.Parameter(torch.ones(s.width))
        self.norm2 = nn.Parameter(torch.ones(s.width))
        self.q = Linear(s.width, s.heads * HEAD)
        self.k = Linear(s.width, s.kv_heads * HEAD)
        self.v = Linear(s.width, s.kv_heads * HEAD)
        self.o = Linear(s.heads * HEAD, s.width, small)
        self.gate = Linear(s.width, s.hidden)
        self.up = Linear(s.width, s.hidden)
        self.down = Linear(s.hidden, s.width, small)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, quant: bool) -> Tensor:
        b, t, _ = x.shape
        group = self.heads // self.kv
        y = norm(x, self.norm1)
        q = rotate(self.q(y, quant).view(b, t, self.heads, HEAD).transpose(1, 2), cos, sin)
        k = rotate(self.k(y, quant).view(b, t, self.kv, HEAD).transpose(1, 2), cos, sin)
        v = self.v(y, quant).view(b, t, self.kv, HEAD).transpose(1, 2)
        # The queries of a group are stacked along time, so keys and values need no copies.
        q = q.reshape(b, self.kv, group * t, HEAD)
        score = (q @ k.transpose(-1, -2)).view(b, self.kv, group, t, t).float() * HEAD**-0.5
        p = score.masked_fill(~mask[:, None, None], float("-inf")).softmax(-1).to(v.dtype)
        z = (p.view(b, self.kv, group * t, t) @ v).view(b, self.heads, t, HEAD)
        x = x + self.o(z.transpose(1, 2).reshape(b, t, self.heads * HEAD), quant)
        y = norm(x, self.norm2)
        return x + self.down(functional.silu(self.gate(y, quant)) * self.up(y, quant), quant)


class Model(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.shape = s
        self.embed = nn.Parameter(torch.randn(s.vocab, s.width) * 0.02)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.Parameter(torch.ones(s.width))

    def forward(self, tokens: Tensor, talk: Tensor | None = None, quant: bool = False) -> Tensor:
        """Logits; a token sees only earlier tokens of its own conversation (equal numbers in `talk`)."""
        return self.head(norm(self.stream(tokens, talk, quant)[-1], self.norm))

    def stream(
        self, tokens: Tensor, talk: Tensor | None = None, quant: bool = False
    ) -> list[Tensor]:
        """The residual stream as it enters each layer, and as it leaves the last one."""
        return self.through(functional.embedding(tokens, self.embed), talk, quant)

    def through(self, x: Tensor, talk: Tensor | None = None, quant: bool = False) -> list[Tensor]:
        """The same for rows (B, T, width) in place of embedded tokens."""
        t = x.shape[1]
        cos, sin = turns(t)
        mask = torch.ones(t, t, dtype=torch.bool).tril()[None]
        if talk is not None:
            mask = mask & (talk[:, :, None] == talk[:, None, :])
        if torch.is_autocast_enabled("cpu"):
            x = x.bfloat16()
        found = [x]
        for block in self.blocks:
            found.append(block(found[-1], cos, sin, mask, quant))
        return found

    def head(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.embed)

    def size(self) -> int:
        return sum(p.numel() for p in self.parameters())
