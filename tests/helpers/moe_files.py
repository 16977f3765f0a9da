"""Targets of random weights with experts, of several architectures and any size.

Their tokenizer and chat template are those of the embedded pair, whose draft can draft for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import gguf_tools
import numpy as np

from localspec.core.files.paths import DEMO_DIR

ARCHITECTURES = ("qwen3moe", "llama", "olmoe", "gpt-oss")
"""The architectures of Qwen3-30B-A3B, Mixtral, OLMoE and gpt-oss."""
_BIASED = "gpt-oss"
_HEAD = 64


@dataclass(frozen=True)
class Size:
    """The dimensions of a target on which the cost of its passes depends."""

    layers: int = 2
    width: int = 128
    experts: int = 16
    used: int = 2
    hidden: int = 64
    """Neurons of an expert."""


def write_moe(path: Path, architecture: str, size: Size | None = None, seed: int = 0) -> Path:
    """Write a complete GGUF of that architecture, F16."""
    size = size or Size()
    writer = gguf.GGUFWriter(path, architecture)
    vocabulary = _copy_tokenizer(writer)
    heads = size.width // _HEAD
    writer.add_context_length(8192)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_expert_feed_forward_length(size.hidden)
    writer.add_expert_count(size.experts)
    writer.add_expert_used_count(size.used)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_rope_freq_base(10_000.0)
    if architecture == _BIASED:
        writer.add_sliding_window(128)
    tensors = _Tensors(writer, np.random.default_rng(seed), biased=architecture == _BIASED)
    tensors.matrix("token_embd", vocabulary, size.width, scale=1.0)
    tensors.norm("output_norm", size.width)
    tensors.matrix("output", vocabulary, size.width)
    for i in range(size.layers):
        _layer(tensors, f"blk.{i}.", architecture, size)
    return gguf_tools.written(writer)


@dataclass(frozen=True)
class _Tensors:
    writer: gguf.GGUFWriter
    rng: np.random.Generator
    biased: bool
    """Whether the matrices of layers have biases."""

    def norm(self, name: str, width: int) -> None:
        self.writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))

    def zeros(self, name: str, *shape: int) -> None:
        self.writer.add_tensor(name, np.zeros(shape, np.float32))

    def matrix(self, name: str, *shape: int, scale: float | None = None) -> None:
        """Add a random matrix; ``shape`` is numpy's, inputs last."""
        weights = self.rng.standard_normal(shape, np.float32)
        weights *= shape[-1] ** -0.5 if scale is None else scale
        self.writer.add_tensor(f"{name}.weight", weights.astype(np.float16))

    def inner(self, name: str, *shape: int) -> None:
        self.matrix(name, *shape)
        if self.biased:
            self.zeros(f"{name}.bias", *shape[:-1])


def _layer(tensors: _Tensors, at: str, architecture: str, size: Size) -> None:
    width, hidden, experts = size.width, size.hidden, size.experts
    tensors.norm(f"{at}attn_norm", width)
    tensors.norm(f"{at}{'post_attention_norm' if tensors.biased else 'ffn_norm'}", width)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors.inner(f"{at}{part}", width, width)
    if architecture in {"qwen3moe", "olmoe"}:
        over = _HEAD if architecture == "qwen3moe" else width
        tensors.norm(f"{at}attn_q_norm", over)
        tensors.norm(f"{at}attn_k_norm", over)
    if tensors.biased:
        tensors.zeros(f"{at}attn_sinks.weight", width // _HEAD)
    router = tensors.rng.standard_normal((experts, width), np.float32) * width**-0.5
    tensors.writer.add_tensor(f"{at}ffn_gate_inp.weight", router)
    if tensors.biased:
        tensors.zeros(f"{at}ffn_gate_inp.bias", experts)
    tensors.inner(f"{at}ffn_gate_exps", experts, hidden, width)
    tensors.inner(f"{at}ffn_up_exps", experts, hidden, width)
    tensors.inner(f"{at}ffn_down_exps", experts, width, hidden)


def _copy_tokenizer(writer: gguf.GGUFWriter) -> int:
    """Copy the embedded target's tokenizer; returns the number of its tokens."""
    reader = gguf.GGUFReader(DEMO_DIR / "target.gguf")

    def value(name: str) -> object:
        return reader.fields[f"tokenizer.{name}"].contents()

    tokens = value("ggml.tokens")
    assert isinstance(tokens, list)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    return len(tokens)
