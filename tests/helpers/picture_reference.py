"""Logits of models that see, computed by numpy alone: positions and attention by the papers.

Only the encoder is not computed here: its rows are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shown:
    """A picture in a prompt."""

    rows: Rows
    """(n, width)."""
    grid: tuple[int, int]
    """Columns and rows of M-RoPE; not used elsewhere."""


Part = Sequence[int] | Shown


class Reference:
    """A small decoder in a GGUF file, of the architectures llama, gemma3 and qwen2vl."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._w = {t.name: np.array(t.data, np.float64) for t in reader.tensors}
        fields: dict[str, Any] = {name: f.contents() for name, f in reader.fields.items()}
        self._arch = fields["general.architecture"]
        self._heads = fields[f"{self._arch}.attention.head_count"]
        self._heads_kv = fields[f"{self._arch}.attention.head_count_kv"]
        self._eps = fields[f"{self._arch}.attention.layer_norm_rms_epsilon"]
        self._layers = fields[f"{self._arch}.block_count"]
        self._sections = fields.get(f"{self._arch}.rope.dimension_sections", [])
        self._width = self._w["token_embd.weight"].shape[1]

    def logits(self, parts: Sequence[Part], *, mistaken: bool = False) -> Array:
        """(V,) after the last token of a prompt; ``mistaken``: as if pictures were text."""
        x, places, groups = self._inputs(parts)
        if mistaken:
            places, groups = np.arange(len(x), dtype=np.float64)[:, None].repeat(3, 1), 0 * groups
        seen = np.arange(len(x))[:, None] >= np.arange(len(x))[None, :]
        if self._arch == "gemma3":  # a picture sees all of itself
            seen |= (groups[:, None] == groups[None, :]) & (groups[:, None] > 0)
        for i in range(self._layers):
            x = self._layer(f"blk.{i}.", x, places, seen)
        return self._norm(x[-1], "output_norm") @ self._w["token_embd.weight"].T

    def _inputs(self, parts: Sequence[Part]) -> tuple[Array, Array, NDArray[np.int64]]:
        """Embeddings, (t, 3) positions, and the number of the picture that each row is of."""
        scale = np.sqrt(self._width) if self._arch == "gemma3" else 1.0
        xs, places, groups = list[Any](), list[tuple[int, int, int]](), list[int]()
        at, pictures = 0, 0
        for part in parts:
            if not isinstance(part, Shown):
                xs += [self._w["token_embd.weight"][token] * scale for token in part]
                places += [(at + i,) * 3 for i in range(len(part))]
                groups += [0] * len(part)
                at += len(part)
                continue
            pictures += 1
            columns, lines = part.grid
            xs += [*part.rows.astype(np.float64)]
            groups += [pictures] * len(part.rows)
            if self._sections:
                places += [(at, at + y, at + x) for y in range(lines) for x in range(columns)]
                at += max(columns, lines)
            else:
                places += [(at + i,) * 3 for i in range(len(part.rows))]
                at += len(part.rows)
        return np.array(xs), np.array(places, np.float64), np.array(groups)

    def _layer(self, b: str, x: Array, places: Array, seen: NDArray[np.bool_]) -> Array:
        y = self._norm(x, f"{b}attn_norm")
        size = len(self._w[f"{b}attn_q.weight"]) // self._heads
        q, k, v = (
            (y @ self._w[f"{b}attn_{n}.weight"].T + self._w.get(f"{b}attn_{n}.bias", 0.0))
            .reshape(len(x), -1, size)
            .transpose(1, 0, 2)
            for n in "qkv"
        )
        if f"{b}attn_q_norm.weight" in self._w:
            q, k = self._norm(q, f"{b}attn_q_norm"), self._norm(k, f"{b}attn_k_norm")
        q, k = self._turned(q, places), self._turned(k, places)
        k, v = (np.repeat(z, self._heads // self._heads_kv, axis=0) for z in (k, v))
        score = q @ k.transpose(0, 2, 1) / np.sqrt(size)
        score = np.where(seen, score, -np.inf)
        p = np.exp(score - score.max(-1, keepdims=True))
        z = (p / p.sum(-1, keepdims=True)) @ v
        z = z.transpose(1, 0, 2).reshape(len(x), -1) @ self._w[f"{b}attn_output.weight"].T
        x = x + self._maybe(z, f"{b}post_attention_norm")
        y = self._norm(x, f"{b}ffn_norm")
        gate = y @ self._w[f"{b}ffn_gate.weight"].T
        up = y @ self._w[f"{b}ffn_up.weight"].T
        z = (self._activated(gate) * up) @ self._w[f"{b}ffn_down.weight"].T
        return x + self._maybe(z, f"{b}post_ffw_norm")

    def _activated(self, x: Array) -> Array:
        if self._arch == "gemma3":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    def _maybe(self, x: Array, name: str) -> Array:
        return self._norm(x, name) if f"{name}.weight" in self._w else x

    def _norm(self, x: Array, name: str) -> Array:
        scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + self._eps)
        return x * scale * self._w[f"{name}.weight"]

    def _turned(self, x: Array, places: Array) -> Array:
        """Rotary positions: pairs of neighbours for llama, of halves for the others, with the
        dimensions in sections for M-RoPE.
        """
        half = x.shape[-1] // 2
        which = np.zeros(half, np.int64)
        if self._sections:
            ends = np.cumsum(self._sections)
            which = np.minimum(np.searchsorted(ends, np.arange(half), side="right"), 2)
        angle = places[:, which] * 10_000.0 ** (-np.arange(half) / half)
        cos, sin = np.cos(angle), np.sin(angle)
        if self._arch == "llama":
            a, b = x[..., 0::2], x[..., 1::2]
            return np.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)
