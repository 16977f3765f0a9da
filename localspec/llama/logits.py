"""The logits of a context's last pass, as arrays over llama.cpp's own buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.core.values import Logits
from localspec.llama.library import c_api
from localspec.llama.model import Model

_PLACES = 256
"""Most arrays that are cached; llama.cpp moves its buffer now and then."""


class LastLogits:
    """Views of a context's rows; the next pass overwrites them."""

    def __init__(self, context: Any, model: Model) -> None:
        """``context`` is the llama_context pointer, of that model."""
        self._context = context
        self._model, self._n_vocab = model, model.n_vocab
        self._arrays: dict[tuple[int, int], Logits] = {}
        """Arrays by address and number of rows: looking one up is cheaper than making it."""

    def views(self, counts: Sequence[int]) -> list[Logits]:
        """The rows of the pass in order, as (count, V) views, one for each count."""
        total = sum(counts)
        if total == 0:
            return [np.empty((0, self._n_vocab), np.float32) for _ in counts]
        # Waits for the device; llama_decode alone may return before a GPU is done.
        with self._model.answering():
            pointer = c_api.llama_get_logits(self._context)
        key = (ctypes.addressof(pointer.contents), total)
        rows = self._arrays.get(key)
        if rows is None:
            if len(self._arrays) > _PLACES:
                self._arrays.clear()
            rows = np.ctypeslib.as_array(pointer, shape=(total, self._n_vocab))
            self._arrays[key] = rows
        if len(counts) == 1:
            return [rows]
        views, at = [], 0
        for count in counts:
            views.append(rows[at : at + count])
            at += count
        return views
