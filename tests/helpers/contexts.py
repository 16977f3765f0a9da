"""Contexts that are freed with their models, and the logits of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from localspec.llama.context import Context
from localspec.llama.model import Model


@contextmanager
def opened(model: Model, **settings: Any) -> Iterator[Context]:
    """A context of one thread for the model; both are freed with the block."""
    context = Context(model, threads=1, **settings)
    try:
        yield context
    finally:
        context.close()
        model.close()


def logits(path: Path, text: str | Sequence[int], **settings: Any) -> np.ndarray:
    """(n, V) the logits after each token of a text, by the model in a file."""
    model = Model(path, **settings)
    with opened(model, n_ctx=128) as context:
        tokens = model.tokenize(text) if isinstance(text, str) else list(text)
        (rows,) = context.forward([(0, tokens, len(tokens))])
        found: np.ndarray = rows.copy()
        return found
