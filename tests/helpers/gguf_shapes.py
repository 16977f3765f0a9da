"""Files with the header of a large model and weights of zeros that take no disk: sparse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf_tools import add_vocabulary, byte_vocabulary


@dataclass(frozen=True)
class Shape:
    """Dimensions of a decoder with grouped attention."""

    layers: int
    width: int
    hidden: int
    """Width of the feed-forward part."""
    heads: int
    heads_kv: int
    head_size: int = 128
    vocabulary: int = 32_000
    context: int = 32_768
    tied: bool = False
    """The embedding is the output matrix too."""


SMALL = Shape(28, 1024, 3072, 16, 8, vocabulary=151_936, tied=True)
"""The shape of Qwen3 0.6B."""
MEDIUM = Shape(36, 4096, 12_288, 32, 8, vocabulary=151_936)
"""The shape of Qwen3 8B."""
LARGE = Shape(64, 5120, 25_600, 64, 8, vocabulary=151_936)
"""The shape of Qwen3 32B."""


def write_shape(
    path: Path,
    shape: Shape,
    *,
    quant: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_K,
    architecture: str = "qwen3",
    extra: dict[str, int] | None = None,
) -> Path:
    """A whole GGUF of that shape; ``extra`` are further whole numbers of its metadata."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads_kv)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(shape.head_size)
    for key, value in (extra or {}).items():
        writer.add_uint32(f"{architecture}.{key}", value)
    words = byte_vocabulary(shape.vocabulary - len(byte_vocabulary()))
    add_vocabulary(writer, words)
    end = 0

    def tensor(name: str, *dims: int, kind: gguf.GGMLQuantizationType = quant) -> None:
        """``dims`` as numpy has them: rows first."""
        nonlocal end
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(dims)) // block * size
        raw = dims if kind is _F32 else (*dims[:-1], dims[-1] // block * size)
        dtype = np.dtype(np.float32 if kind is _F32 else np.uint8)
        writer.add_tensor_info(name, raw, dtype, n_bytes, raw_dtype=kind)
        end = -(-end // 32) * 32 + n_bytes

    q_width, kv_width = shape.heads * shape.head_size, shape.heads_kv * shape.head_size
    tensor("token_embd.weight", shape.vocabulary, shape.width)
    tensor("output_norm.weight", shape.width, kind=_F32)
    if not shape.tied:
        tensor("output.weight", shape.vocabulary, shape.width)
    for i in range(shape.layers):
        tensor(f"blk.{i}.attn_norm.weight", shape.width, kind=_F32)
        tensor(f"blk.{i}.ffn_norm.weight", shape.width, kind=_F32)
        if architecture == "qwen3":
            tensor(f"blk.{i}.attn_q_norm.weight", shape.head_size, kind=_F32)
            tensor(f"blk.{i}.attn_k_norm.weight", shape.head_size, kind=_F32)
        tensor(f"blk.{i}.attn_q.weight", q_width, shape.width)
        tensor(f"blk.{i}.attn_k.weight", kv_width, shape.width)
        tensor(f"blk.{i}.attn_v.weight", kv_width, shape.width)
        tensor(f"blk.{i}.attn_output.weight", shape.width, q_width)
        tensor(f"blk.{i}.ffn_gate.weight", shape.hidden, shape.width)
        tensor(f"blk.{i}.ffn_up.weight", shape.hidden, shape.width)
        tensor(f"blk.{i}.ffn_down.weight", shape.width, shape.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        start = -(-file.seek(0, 2) // 32) * 32
        file.truncate(start + end)
    return path


_F32 = gguf.GGMLQuantizationType.F32
