"""Draft logits of PyTorch, stored with the heads: the tests compare llama.cpp with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
from demo import tokenizer as tok
from demo.loop import Log
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from torch import nn
from torch.nn import functional

from heads import frozen
from heads.training import STEPS

_LENGTH = 120
_STARTS = (40, 100)
"""Tokens that the target has read when a draft begins."""


def held_out_ids(data: Path, length: int) -> list[int]:
    """Tokens of the held-out prompts in the chat format, one conversation."""
    coder = tok.load(data / "tokenizer.json")
    entries = json.loads((data / "heldout.json").read_text(encoding="utf-8"))
    talk = [(m["role"], m["content"]) for e in entries[::7] for m in e["messages"]]
    return list(coder.encode(tok.render(talk)).ids[:length])


@torch.no_grad()
def _stored(head: nn.Module) -> nn.Module:
    """The head with its own matrices as 8 bits store them."""
    for p in head.parameters():
        if p.requires_grad and p.ndim == 2:
            data = gguf.quants.quantize(p.numpy(force=True), Kind.Q8_0)
            p.copy_(torch.from_numpy(dequantize(data, Kind.Q8_0).reshape(p.shape)))
    return head


@torch.no_grad()
def record(
    heads: Path, target: Path, data: Path, trained: Mapping[str, nn.Module], log: Log
) -> None:
    """Write `logits.npz`: `tokens` (N,), `starts` (S,), and logits (S, places, V) of each head.

    Row (s, i) is what the head says after the tokens up to `starts[s] + i`, the later ones given,
    while the target has read `starts[s]` of them; for Medusa's heads, of which each guesses from
    the same state, after the tokens up to `starts[s]`. Target and heads have the numbers of the
    kept files, all computed in float32.
    """
    ids = held_out_ids(data, _LENGTH)
    tokens = torch.tensor([ids])
    model = frozen.load(target)
    seen = frozen.look(model, tokens, torch.ones_like(tokens))
    found: dict[str, np.ndarray] = {}
    for name, head in trained.items():
        _stored(head)
        steps = [
            functional.linear(state, head.matrix(n))[0]
            for n, state in enumerate(head(seen, STEPS), 1)
        ]
        found[name] = np.stack(
            [[step[start + i].numpy() for i, step in enumerate(steps)] for start in _STARTS]
        )
    path = heads / "logits.npz"
    np.savez_compressed(path, tokens=np.array(ids, np.int32), starts=np.array(_STARTS), **found)
    log(f"{path.name}: {path.stat().st_size} bytes, {', '.join(found)}")
