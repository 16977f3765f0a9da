"""Small random targets of any architecture with a layer for multi-token prediction.

Only the numbers of the header are given; llama.cpp says tensor by tensor what it misses and which
shape that should have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import head_files
import numpy as np

from localspec.llama import library
from localspec.llama.library import c_api

Shapes = dict[str, tuple[int, ...]]
"""By tensor, the fastest dimension first."""

_TRUNK = 2
_ABSENT = re.compile(r"tensor '([^']+)' not found")
_SHAPE = re.compile(r"tensor '([^']+)' has wrong shape; expected\s+([\d, ]+), got")
_EXPERTS = {
    "expert_count": 2,  # both are used: a choice among more can flip by rounding
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 48,
    "expert_shared_feed_forward_length": 48,
    "leading_dense_block_count": 1,
    "expert_gating_func": 2,
}
_MLA = {
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.kv_lora_rank": 64,
    "attention.q_lora_rank": 48,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
}
_INDEXER = {
    "attention.indexer.head_count": 4,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 2048,
}
_DELTA_NET = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 32,
    "ssm.time_step_rank": 2,
    "ssm.group_count": 1,
    "full_attention_interval": 2,
    "rope.dimension_sections": [6, 5, 5, 0],
}
_SLIDING = {"attention.sliding_window": 16, "attention.sliding_window_pattern": [0, 1, 0]}
NUMBERS: dict[str, dict[str, object]] = {
    "bailingmoe3": _MLA
    | _EXPERTS
    | {
        "ssm.conv_kernel": 4,
        "kda.head_dim": 32,
        "kda.gate_lower_bound": -5.0,
        "attention.head_count_kv": [0, 1, 1],
    },
    "cohere2moe": _EXPERTS | _SLIDING | {"logit_scale": 1.0},
    "deepseek2": _MLA | _EXPERTS,
    "deepseek32": _MLA | _EXPERTS | _INDEXER,
    "glm-dsa": _MLA | _EXPERTS | _INDEXER,
    "glm4moe": _EXPERTS,
    "hy_v3": _EXPERTS,
    "mimo2": _EXPERTS | _SLIDING,
    "qwen35": _DELTA_NET,
    "qwen35moe": _DELTA_NET | _EXPERTS,
    "qwen3next": _DELTA_NET | _EXPERTS,
    "step35": _EXPERTS | _SLIDING,
}
"""Fields of an architecture's header beside the shape that all have."""
_INDEXER_PARTS = ("k_norm.weight", "k_norm.bias", "proj.weight", "attn_k.weight", "attn_q_b.weight")
_OPTIONAL: dict[str, Sequence[str]] = {
    "glm-dsa": [f"blk.{i}.indexer.{part}" for i in (0, 1) for part in _INDEXER_PARTS],
    "mimo2": [f"blk.2.{part}.weight" for part in ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down")],
    **dict.fromkeys(
        ("qwen35", "qwen35moe", "qwen3next"), ("blk.0.attn_qkv.weight", "blk.0.attn_gate.weight")
    ),
}
"""Tensors that llama.cpp can load without, but not run."""


def write_asked(path: Path, architecture: str, *, own: bool = False) -> Path:
    """A target of two layers and one for prediction, which has its ``own`` embeddings, norm and
    output matrix or not.
    """
    always = ("output.weight", "blk.0.attn_norm.weight", "blk.2.nextn.eh_proj.weight")
    parts = ("embed_tokens", "shared_head_head", "shared_head_norm") if own else ()
    optional = (f"blk.2.nextn.{part}.weight" for part in parts)
    shapes: Shapes = dict.fromkeys((*always, *optional, *_OPTIONAL.get(architecture, ())), (1,))
    while (missing := _missing(_written(path, architecture, shapes))) is not None:
        name, shape = missing
        assert shapes.get(name) != shape, f"{name} stays {shape}"
        shapes[name] = shape
    return path


def _missing(path: Path) -> tuple[str, tuple[int, ...]] | None:
    """The first tensor that llama.cpp wants otherwise; None if it loads the file."""
    library.start()
    params = c_api.llama_model_default_params()
    params.load_mtp = True
    library.forget_errors()
    model = c_api.llama_model_load_from_file(os.fsencode(path), params)
    if model:
        c_api.llama_model_free(model)
        return None
    said = "\n".join(library.errors())
    if absent := _ABSENT.search(said):
        return absent[1], (1,)
    wrong = _SHAPE.search(said)
    assert wrong is not None, said
    shape = [int(n) for n in wrong[2].split(",")]
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return wrong[1], tuple(shape)


def _written(path: Path, architecture: str, shapes: Shapes) -> Path:
    m = head_files.Maker(path, architecture, seed=23)
    numbers = {"nextn_predict_layers": 1, **NUMBERS[architecture]}
    m.shape(_TRUNK + 1, 1024)
    m.writer.kv_data[0] = {
        key: value
        for key, value in m.writer.kv_data[0].items()
        if key.removeprefix(f"{architecture}.") not in numbers
    }
    for key, value in numbers.items():
        name = f"{architecture}.{key}"
        if isinstance(value, list):
            m.writer.add_array(name, value)
        elif isinstance(value, float):
            m.writer.add_float32(name, value)
        else:
            m.writer.add_uint32(name, value)
    m.vocabulary()
    for tensor, shape in shapes.items():
        m.writer.add_tensor(tensor, _numbers(m.rng, tensor, shape))
    return m.done()


def _numbers(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    dims = shape[::-1]
    if "norm" in name and len(shape) == 1:
        found = np.ones(dims)
    elif "ssm_a" in name and "alpha" not in name:  # how fast a state decays
        found = -np.abs(rng.normal(1, 0.3, dims))
    else:
        found = rng.normal(0, 0.9 / np.sqrt(shape[0]), dims)
    return found.astype(np.float32)
