"""Metadata and tensors of a llama model without a tokenizer, for files that measure or prove."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a model of the llama architecture."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int

    def metadata(self) -> dict[str, str | int | float]:
        """GGUF metadata."""
        return {
            "general.architecture": "llama",
            "llama.context_length": 512,
            "llama.embedding_length": self.width,
            "llama.block_count": self.layers,
            "llama.feed_forward_length": self.hidden,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.dimension_count": self.width // self.heads,
            "llama.vocab_size": self.vocabulary,
            "tokenizer.ggml.model": "no_vocab",
        }

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name without ``.weight``: (inputs, outputs) of matrices, (width,) of norms."""
        width, hidden = self.width, self.hidden
        kv_width = width * self.kv_heads // self.heads
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd": (width, self.vocabulary),
            "output_norm": (width,),
            "output": (width, self.vocabulary),
        }
        for i in range(self.layers):
            shapes |= {
                f"blk.{i}.attn_norm": (width,),
                f"blk.{i}.attn_q": (width, width),
                f"blk.{i}.attn_k": (width, kv_width),
                f"blk.{i}.attn_v": (width, kv_width),
                f"blk.{i}.attn_output": (width, width),
                f"blk.{i}.ffn_norm": (width,),
                f"blk.{i}.ffn_gate": (width, hidden),
                f"blk.{i}.ffn_up": (width, hidden),
                f"blk.{i}.ffn_down": (hidden, width),
            }
        return shapes
