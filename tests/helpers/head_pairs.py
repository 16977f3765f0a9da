"""Targets of random weights with heads that draft for them, as files and loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import head_files

from localspec import Options
from localspec.llama.context import Context
from localspec.llama.heads.base import Eagle, Head
from localspec.llama.heads.hidden_states import LayerInputs, NextStates, StoredStates
from localspec.llama.heads.mtp import MtpLayer
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget


@dataclass(frozen=True)
class Pair:
    """A target, and the file of its head where that is apart."""

    drafter: str
    target: Path
    head: Path | None = None

    def options(self, **changes: object) -> Options:
        draft = None if self.head is None else str(self.head)
        settings = {"model": str(self.target), "draft": draft, "draft_max": 3} | changes
        return Options(**{"drafter": (self.drafter,), **settings})


def write_pairs(folder: Path) -> dict[str, Pair]:
    """One of each kind by name."""
    dense = gguf_tools.write_llama(folder / "dense.gguf", layers=4, seed=3, context=1024)
    eagle = {
        "borrowing": head_files.write_eagle(folder / "eagle.gguf"),
        "owning": head_files.write_eagle(folder / "own.gguf", own=True),
        "normed": head_files.write_eagle(folder / "normed.gguf", norms=True),
        "few words": head_files.write_eagle(folder / "few.gguf", ids=[*range(3, 120)]),
    }
    return {
        "mtp": Pair("mtp", head_files.write_mtp(folder / "mtp.gguf")),
        "mtp on a hybrid": Pair("mtp", head_files.write_hybrid(folder / "hybrid.gguf")),
        **{f"eagle3, {name}": Pair("eagle3", dense, path) for name, path in eagle.items()},
    }


@dataclass(frozen=True)
class Loaded:
    """A pair's target, and its head beside it."""

    model: Model
    context: Context
    head: Head
    stored: StoredStates
    target: LlamaTarget


@contextlib.contextmanager
def loaded(pair: Pair, n_ctx: int = 1024, branches: int = 0, rollback: int = 0) -> Iterator[Loaded]:
    """A pair with its head, closed afterwards; with ``branches`` for trees."""
    inside = pair.head is None
    model = Model(pair.target, next_layers=True)
    own = model if pair.head is None else Model(pair.head, alone=False)
    sizes = {"n_ctx": n_ctx, "n_batch": 64, "threads": 1, "branches": branches}
    context = Context(model, **sizes, rollback=rollback)
    head = (MtpLayer if inside else Eagle)(own, context, **sizes)
    width = head_files.WIDTH
    stored = StoredStates(
        NextStates(width) if inside else LayerInputs((1, 2, 3), width), window=128
    )
    try:
        yield Loaded(model, context, head, stored, LlamaTarget(context, stored))
    finally:
        for part in (head, context, *({own, model})):
            part.close()
