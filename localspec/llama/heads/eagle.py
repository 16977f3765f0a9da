"""EAGLE-3 heads on llama.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np

from localspec.llama.batch import Batch
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import Rows
from localspec.llama.library import c_api
from localspec.llama.limits import OUTPUTS, decode_error
from localspec.llama.model import Model


class Eagle(Head):
    """An EAGLE-3 head (Li et al. 2025): one layer over the target's states of three depths."""

    what = "an EAGLE-3 head"

    def __init__(self, model: Model, target: Context, **settings: Any) -> None:
        """See `Head`; passes are of no more pairs than can have logits."""
        super().__init__(model, target, **{**settings, "n_batch": OUTPUTS})
        self._features: Batch | None = None

    def fuse(self, features: Rows) -> Rows:
        """The head's fusion of three depths into one state (section 3.1, "g")."""
        return np.concatenate(
            [
                self._fused(features[at : at + self.n_batch])
                for at in range(0, len(features), self.n_batch)
            ]
        )

    def _fused(self, features: Rows) -> Rows:
        n, width = features.shape
        if self._features is None:
            self._features = Batch(self.n_batch, states=width, tokens=False)
        batch = self._features
        batch.states[:n] = features
        # The fusion has no positions, but llama.cpp wants the next ones.
        batch.positions[:n] = np.arange(n) + self.length(0)
        batch.seqs[:n, 0], batch.seq_counts[:n], batch.outputs[:n] = 0, 1, 1
        error = decode_error(c_api.llama_encode(self.handle, batch.first(n)))
        if error is not None:
            raise error
        return np.ctypeslib.as_array(self._calls.get_nextn(self.handle), (n, self.width)).copy()
