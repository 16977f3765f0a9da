"""A head without a KV cache of its own: it attends to the target's, as Gemma 4's assistants do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.core.errors import DecodeError
from localspec.core.values import Extension, Logits
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import States
from localspec.llama.library import c_api
from localspec.llama.limits import KV_TYPES
from localspec.llama.model import Model

_BATCH = 8
"""Tokens of a pass at least: it reads one of each sequence."""


class Assistant(Head):
    """Layers that look at what the last two layers of the target keep.

    It writes no keys and values. All drafted tokens are therefore computed at one position, that of
    the target's pending token, each from the token before and the state that was guessed for it.
    llama.cpp shares the cells too: it puts nothing in them and takes nothing out on the head's
    behalf, and what is called for its sequences (`truncate`) has no effect.
    """

    what = "an assistant that shares the target's cache"
    grows = False

    def __init__(self, model: Model, target: Context, **settings: Any) -> None:
        """``target`` must be empty: sharing its cells clears them.

        Raises:
            DecodeError: it is not.
            UnsupportedModelError, OutOfMemoryError: as `Head`.
        """
        if any(target.length(seq) for seq in range(target.sequences)):
            raise DecodeError("a head shares the target's cache before anything is read")
        n_batch = max(_BATCH, target.sequences)
        super().__init__(model, target, **{**settings, "n_batch": n_batch})
        self.capacity = target.capacity
        self._streams = list(range(target.sequences + target.branches))

    def _adjust(self, params: Any) -> None:
        other = self._other
        params.ctx_other = other.handle
        # Cells, streams and types must be the target's: llama.cpp makes views of them.
        params.n_ctx = int(c_api.llama_n_ctx(other.handle))
        params.n_seq_max = other.sequences + other.branches
        params.kv_unified = other.branches > 0
        params.type_k = params.type_v = KV_TYPES[other.kv_type]
        if other.least_rows > 1:  # a strict target; it decides how values lie in the cells
            params.flash_attn_type = c_api.LLAMA_FLASH_ATTN_TYPE_DISABLED

    def _width(self) -> int:
        return int(c_api.llama_model_n_embd_inp(self.model.handle))

    def truncate(self, seq: int, length: int) -> None:
        """Does nothing: the cells are the target's."""

    def guesses(self, work: Sequence[tuple[int, int, States]]) -> tuple[Logits, States]:
        """One pass over (sequence, token, (width,) state of the token before) of some sequences.

        Returns (n, V) logits of what follows, and (n, width) the states guessed for these tokens;
        both are views, overwritten by the next pass. The target's cache is as before.

        Raises:
            ContextFullError: llama.cpp wants a free cell, though it does not use it.
            Interrupted, DecodeError
        """
        batch, n = self._batch, len(work)
        if n > batch.capacity:
            raise DecodeError(f"a pass over {n} sequences; this head takes {batch.capacity}")
        for i, (seq, token, state) in enumerate(work):
            batch.tokens[i], batch.states[i] = token, state
            batch.positions[i], batch.seqs[i, 0] = self.length(seq), seq
        batch.seq_counts[:n], batch.outputs[:n] = 1, 1
        self._decode(n, n)
        (logits,) = self._logits.views([n])
        own = np.ctypeslib.as_array(self._calls.get_nextn(self.handle), (n, self.width))
        return logits, own

    def forward(
        self,
        work: Sequence[Extension],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        """`Context.forward`, token by token and with states of zeros: for measuring."""
        del states, padding
        state = np.zeros(self.width, np.float32)
        found = []
        for seq, tokens, outputs in work:
            rows = [self.guesses([(seq, int(token), state)])[0][0].copy() for token in tokens]
            found.append(np.stack(rows)[len(rows) - outputs :])
        return found
