"""Small random GGUF files, one for every kind of memory that a target may have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf_tools
import head_files
import numpy as np
from gguf import GGMLQuantizationType, quantize
from head_files import HEADS, HIDDEN, WIDTH, Maker

CHUNK = 8192
"""Tokens of a chunk of Llama 4: llama.cpp knows no other."""


def write_llama4(path: Path, *, layers: int = 4, seed: int = 23, context: int = 16_384) -> Path:
    """A target of Llama 4's kind: three of four layers see the chunk that a token is in."""
    m = Maker(path, "llama4", seed)
    m.shape(layers, context)
    w = m.writer
    w.add_expert_count(1)
    w.add_expert_used_count(1)
    w.add_expert_feed_forward_length(HIDDEN)
    w.add_interleave_moe_layer_step(0)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.ones("output_norm.weight")
    for i in range(layers):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight")
        m.attention(b)
        m.feed_forward(b)
    return m.done()


def write_mla(
    path: Path,
    *,
    layers: int = 2,
    seed: int = 29,
    context: int = 1024,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
) -> Path:
    """A target with latent attention, as DeepSeek 2: keys and values come from one small vector, by
    matrices of that ``kind``.
    """
    m, latent, rotated, plain = Maker(path, "deepseek2", seed), 64, 32, 32
    w = m.writer
    w.add_context_length(context)
    w.add_embedding_length(WIDTH)
    w.add_block_count(layers)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_key_length(latent + rotated)
    w.add_value_length(latent)
    w.add_key_length_mla(plain + rotated)
    w.add_value_length_mla(plain)
    w.add_kv_lora_rank(latent)
    w.add_q_lora_rank(32)
    w.add_rope_dimension_count(rotated)
    w.add_leading_dense_block_count(layers)
    w.add_expert_count(1)
    w.add_expert_used_count(1)
    w.add_expert_shared_count(1)
    w.add_expert_feed_forward_length(HIDDEN)
    w.add_expert_weights_scale(1.0)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.ones("output_norm.weight")
    for i in range(layers):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight")
        m.ones(f"{b}.attn_q_a_norm.weight", width=32)
        m.ones(f"{b}.attn_kv_a_norm.weight", width=latent)
        m.matrix(f"{b}.attn_q_a.weight", 32, WIDTH)
        m.matrix(f"{b}.attn_q_b.weight", HEADS * (plain + rotated), 32)
        m.matrix(f"{b}.attn_kv_a_mqa.weight", latent + rotated, WIDTH)
        for name, shape in (("k_b", (HEADS, latent, plain)), ("v_b", (HEADS, plain, latent))):
            weights = m.rng.normal(0, m.scale / np.sqrt(shape[2]), shape).astype(np.float32)
            w.add_tensor(f"{b}.attn_{name}.weight", quantize(weights, kind), raw_dtype=kind)
        m.matrix(f"{b}.attn_output.weight", WIDTH, HEADS * plain)
        m.feed_forward(b)
    return m.done()


def write_dream(path: Path) -> Path:
    """A model that fills places in any order (diffusion), as its converter writes it."""
    m = Maker(path, "dream", 31)
    m.shape(1)
    m.writer.add_causal_attention(False)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.ones("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight")
    m.attention("blk.0")
    m.feed_forward("blk.0")
    return m.done()


def write_cogvlm(path: Path) -> Path:
    """A target of which llama.cpp gives right rows of logits only where it is asked for all."""
    m = Maker(path, "cogvlm", 37)
    m.shape(1)
    m.writer.add_head_count_kv(HEADS)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.ones("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight")
    for prefix in ("", "vis_"):  # those for pictures are never used
        m.matrix(f"blk.0.{prefix}attn_qkv.weight", 3 * WIDTH, WIDTH)
        m.matrix(f"blk.0.{prefix}attn_output.weight", WIDTH, WIDTH)
    m.feed_forward("blk.0")
    m.matrix("blk.0.vis_gate.weight", HIDDEN, WIDTH)
    m.matrix("blk.0.vis_up.weight", HIDDEN, WIDTH)
    m.matrix("blk.0.vis_down.weight", WIDTH, HIDDEN)
    return m.done()


def write_sliding(path: Path) -> Path:
    """Every second layer sees 16 tokens."""
    return head_files.write_gemma(path, window=16)


KINDS: dict[str, Callable[[Path], Path]] = {
    "full": lambda path: gguf_tools.write_llama(path, seed=3, context=1024),
    "sliding": write_sliding,
    "chunked": write_llama4,
    "recurrent": gguf_tools.write_mamba,
    "hybrid": head_files.write_hybrid,
    "latent": write_mla,
}
"""Writers by kind of memory."""
