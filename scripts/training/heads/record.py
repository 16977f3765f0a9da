"""Draft logits of PyTorch, stored with the heads: the tests compare llama.cpp with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from heads import frozen
from heads.check import Kind, as_stored, held_out_ids
from heads.training import STEPS

Log = Callable[[str], None]
_LENGTH = 120
_STARTS = (40, 100)
"""Tokens that the target has read when a draft begins."""


@torch.no_grad()
def record(
    heads: Path, target: Path, data: Path, trained: Callable[[str], nn.Module | None], log: Log
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
    for name in ("eagle3", "mtp", "medusa"):
        head = trained(name)
        if head is None:
            continue
        as_stored(head, Kind.Q8_0)
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
