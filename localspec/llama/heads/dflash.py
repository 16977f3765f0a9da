"""DFlash heads: a whole block of tokens from one pass (Chen et al. 2026)."""

from __future__ import annotations

from typing import Any

import numpy as np

from localspec.core.errors import ContextFullError, DecodeError, LocalspecError
from localspec.core.values import Logits
from localspec.llama.batch import Batch
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import States
from localspec.llama.library import c_api
from localspec.llama.limits import decode_error
from localspec.llama.model import Model

_SEVERAL_DIMENSIONS = frozenset({8, 40})
"""LLAMA_ROPE_TYPE_MROPE and LLAMA_ROPE_TYPE_IMROPE."""


class Blocks(Head):
    """Layers that see the target's states of all its tokens, and fill in a block of masks.

    Their KV cache holds what these states are projected to; the tokens of a block see each other,
    and are forgotten after their pass.
    """

    what = "a DFlash head"
    grows = False

    def __init__(self, model: Model, target: Context, **settings: Any) -> None:
        """See `Head`; the head's file must have been checked."""
        super().__init__(model, target, **settings)
        facts = model.metadata
        self.block = int(facts["dflash.block_size"])
        """Tokens of a block: the pending one, and masks."""
        self._mask = int(c_api.llama_vocab_mask(c_api.llama_model_get_vocab(model.handle)))
        c_api.llama_set_causal_attn(self.handle, facts.get("dflash.attention.causal") == "true")
        several = c_api.llama_model_rope_type(model.handle) in _SEVERAL_DIMENSIONS
        self._dimensions = 4 if several else 1
        """Numbers of a position: drafts for targets that see images have four."""
        self._batch = Batch(self.n_batch)
        self._inputs: Batch | None = None

    def _adjust(self, params: Any) -> None:
        params.ctx_other = self._other.handle

    @property
    def depth(self) -> int:
        """Tokens that it can guess: those that are masked."""
        return self.block - 1

    def inject(self, seq: int, position: int, states: States) -> None:
        """Append the (n, width of the tap) target's states of the tokens from ``position`` on, at
        the sequence's end, or anywhere if it is empty. If it raises, whole passes stay.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        if self._inputs is None:
            self._inputs = Batch(
                self.n_batch, states=states.shape[1], tokens=False, dimensions=self._dimensions
            )
        if self._lengths[seq] == 0:
            self._lengths[seq] = position
        if self._lengths[seq] != position:
            raise DecodeError(f"states at {position}, after {self._lengths[seq]}")
        batch = self._inputs
        for at in range(0, len(states), self.n_batch):
            part = states[at : at + self.n_batch]
            n, start = len(part), position + at
            batch.states[:n], batch.outputs[:n] = part, 0
            for i in range(min(self._dimensions, 3)):  # of four the last one is not used
                batch.positions[i * n : (i + 1) * n] = np.arange(start, start + n)
            batch.positions[3 * n : self._dimensions * n] = 0
            batch.seqs[:n, 0], batch.seq_counts[:n] = seq, 1
            error = decode_error(c_api.llama_decode(self.handle, batch.first(n)))
            if error is not None:
                self._undo([seq])
                raise error
            self._lengths[seq] = start + n

    def fill(self, seq: int, position: int, token: int) -> Logits:
        """(n, V) logits of the tokens after the pending ``token``, which is at ``position``: n is
        ``depth``, or less where the context ends. A view, overwritten by the next pass.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        n = min(self.block, self.capacity - position)
        if n < 2:
            raise ContextFullError("the head's context is full")
        if self._lengths[seq] == 0:
            self._lengths[seq] = position
        tokens = [token, *[self._mask] * (n - 1)]
        try:
            (rows,) = Context.forward(self, [(seq, tokens, n)])
        except LocalspecError:
            self._lengths[seq] = self.length(seq)
            raise
        self.truncate(seq, position)
        return rows[1:]

    def truncate(self, seq: int, length: int) -> None:
        """See `Context`."""
        super().truncate(seq, length)
        if self.length(seq) == 0:
            self._lengths[seq] = 0
