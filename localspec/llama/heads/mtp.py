"""Multi-token prediction on llama.cpp: one layer, or several, each one token further ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core.errors import DecodeError
from localspec.core.values import Logits, Tokens
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import States
from localspec.llama.library import c_api
from localspec.llama.model import Model

_MTP = 1
"""LLAMA_CONTEXT_TYPE_MTP."""


_ALL_STATES = frozenset(
    {
        *("bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3"),
        *("nemotron_h_moe", "qwen35", "qwen35moe"),
    }
)
"""Architectures whose graph for prediction takes the states before it leaves rows out; asking the
others for all states would read beyond them. An output matrix is then spared most rows."""


class MtpLayer(Head):
    """The target's own layer for multi-token prediction (DeepSeek-AI 2024, section 2.2).

    It is in the target's file, and its KV cache is separate from the target's.
    """

    what = "multi-token prediction"
    context_type = _MTP

    @property
    def _all_states(self) -> bool:
        return self.model.architecture in _ALL_STATES

    def _width(self) -> int:
        return int(c_api.llama_model_n_embd_out(self.model.handle))


class MtpLayers(MtpLayer):
    """Several such layers, each for the token one further ahead.

    Every layer has a part of the KV cache. All of them read the pairs of the target's own states;
    the i-th one reads all guessed pairs before its token again, since no other filled its part.
    """

    grows = False

    def __init__(self, model: Model, target: Context, **settings: Any) -> None:
        """See `Head`."""
        super().__init__(model, target, **settings)
        self._layers = int(c_api.llama_model_n_layer_nextn(model.handle))
        self._guessed: dict[int, _Guessed] = {}

    @property
    def together(self) -> int:
        """None: the passes of a sequence are of one layer after the other."""
        return 0

    @property
    def depth(self) -> int:
        """Tokens that can be guessed: one for each layer."""
        return self._layers

    def extend(
        self, seq: int, position: int, tokens: Tokens, states: States, outputs: int
    ) -> tuple[Logits, States]:
        """Append pairs to the parts of all layers, see `Head`; logits are of the first layer."""
        for layer in range(self._layers - 1, 0, -1):
            self._calls.set_nextn_offset(self.handle, layer)
            super().extend(seq, position, tokens, states, 0)
            self.truncate(seq, position)
        self._calls.set_nextn_offset(self.handle, 0)
        found = super().extend(seq, position, tokens, states, outputs)
        self._guessed[seq] = _Guessed(position + len(tokens))
        return found

    def guess(self, seq: int, position: int, token: int, state: States) -> tuple[Logits, States]:
        """See `Head.guess`; computed by the layer for that place."""
        guessed = self._guessed[seq]
        layer, start = 1 + len(guessed.tokens), guessed.start
        if layer >= self._layers or position != start + len(guessed.tokens):
            raise DecodeError(f"a guess at {position} for layer {layer} of {self._layers}")
        tokens, states = (*guessed.tokens, token), (*guessed.states, state)
        super().truncate(seq, start)
        self._calls.set_nextn_offset(self.handle, layer)
        found = super().extend(seq, start, tokens, np.stack(states), 1)
        self._guessed[seq] = _Guessed(start, tokens, states)
        return found

    def truncate(self, seq: int, length: int) -> None:
        """See `Context`."""
        super().truncate(seq, length)
        guessed = self._guessed.get(seq, _Guessed(length))
        kept = max(0, length - guessed.start)
        self._guessed[seq] = _Guessed(
            min(guessed.start, length), guessed.tokens[:kept], guessed.states[:kept]
        )


@dataclass(frozen=True, slots=True)
class _Guessed:
    """Pairs of one sequence with states that were guessed, from position ``start`` on."""

    start: int
    tokens: tuple[int, ...] = ()
    states: tuple[States, ...] = ()
