"""A single multi-token-prediction layer on llama.cpp."""

from __future__ import annotations

from localspec.llama.heads.base import Head
from localspec.llama.library import c_api

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
