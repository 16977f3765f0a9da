"""A forward pass of the llama architecture in numpy.

It is what llama.cpp's logits are compared with. It shares no code with llama.cpp, so a defect
of a compiler or of a kernel shows in one of the two only. It is slow for anything but small models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from localspec.core.values import Tokens
from localspec.llama.heads.tensors import Matrix, mapped
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile

_BASE = 10000.0
"""Base of rotary positions where the file names none."""


def logits(path: Path, tokens: Tokens) -> Matrix:
    """(n, V) float32: row i follows the first i + 1 of the (n,) tokens.

    Raises:
        ModelNotFoundError, ModelFileError: the file is not there or damaged.
        UnsupportedModelError: weights of a type that is not read here.
    """
    file = ModelFile(path)
    header = file.header
    weights = {
        name: weight.numbers()
        for name, weight in mapped(file, {tensor.name for tensor in header.tensors}).items()
    }
    epsilon = header.metadata["llama.attention.layer_norm_rms_epsilon"]
    assert isinstance(epsilon, float)
    x = weights["token_embd.weight"][list(tokens)]
    for i in range(header.n_layer):
        layer = {
            name.removeprefix(f"blk.{i}.").removesuffix(".weight"): weight
            for name, weight in weights.items()
            if name.startswith(f"blk.{i}.")
        }
        x = x + _attention(_normed(x, layer["attn_norm"], epsilon), layer, header)
        x = x + _feed_forward(_normed(x, layer["ffn_norm"], epsilon), layer)
    x = _normed(x, weights["output_norm.weight"], epsilon)
    output = weights.get("output.weight", weights["token_embd.weight"])
    return np.asarray(x @ output.T, np.float32)


def _normed(x: Matrix, scale: Matrix, epsilon: float) -> Matrix:
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean_square + epsilon) * scale, np.float32)


def _feed_forward(x: Matrix, layer: dict[str, Matrix]) -> Matrix:
    gate = x @ layer["ffn_gate"].T
    hidden = gate / (1 + np.exp(-gate)) * (x @ layer["ffn_up"].T)
    return np.asarray(hidden @ layer["ffn_down"].T, np.float32)


def _attention(x: Matrix, layer: dict[str, Matrix], header: Header) -> Matrix:
    n, heads, kv_heads = len(x), header.n_head, header.n_head_kv
    base = header.metadata.get("llama.rope.freq_base", _BASE)
    assert isinstance(base, float)
    q = _rotated((x @ layer["attn_q"].T).reshape(n, heads, -1), base)
    k = _rotated((x @ layer["attn_k"].T).reshape(n, kv_heads, -1), base)
    v = (x @ layer["attn_v"].T).reshape(n, kv_heads, -1)
    # (heads, n, size) from here on; several heads share a key and a value.
    q = q.transpose(1, 0, 2)
    k, v = (np.repeat(part, heads // kv_heads, axis=1).transpose(1, 0, 2) for part in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(q.shape[-1]))
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    seen = (shares @ v).transpose(1, 0, 2).reshape(n, -1)
    return np.asarray(seen @ layer["attn_output"].T, np.float32)


def _rotated(x: Matrix, base: float) -> Matrix:
    """Rotary positions on (n, heads, size): neighbouring numbers are turned as pairs."""
    n, size = len(x), x.shape[-1]
    angles = np.outer(np.arange(n), base ** (-np.arange(0, size, 2) / size))[:, None, :]
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], np.cos(angles), np.sin(angles)
    turned = np.empty_like(x)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned
