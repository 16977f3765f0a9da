"""The sizes of a model of the llama architecture, for models that are written here."""

from __future__ import annotations

from dataclasses import dataclass

_OUTSIDE = ("token_embd", "output_norm", "output")
_BLOCK = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The dimensions that cost depends on."""

    width: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int

    def tensor(self, kind: str) -> tuple[int, ...]:
        """Shape of a tensor by the last part of its name: (inputs, outputs) of a matrix, (width,)
        of a norm.
        """
        if kind.endswith("norm"):
            return (self.width,)
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "token_embd": (self.width, self.vocabulary),
            "output": (self.width, self.vocabulary),
            "attn_q": (self.width, queries),
            "attn_k": (self.width, keys),
            "attn_v": (self.width, keys),
            "attn_output": (queries, self.width),
            "ffn_gate": (self.width, self.feed_forward),
            "ffn_up": (self.width, self.feed_forward),
            "ffn_down": (self.feed_forward, self.width),
        }[kind]

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors by name without ``.weight``."""
        blocks = [f"blk.{i}.{kind}" for i in range(self.layers) for kind in _BLOCK]
        return {name: self.tensor(name.rpartition(".")[2]) for name in (*_OUTSIDE, *blocks)}

    def sizes(self) -> dict[str, int]:
        """The part of the GGUF metadata that states these dimensions, but for the vocabulary."""
        return {
            "llama.embedding_length": self.width,
            "llama.block_count": self.layers,
            "llama.feed_forward_length": self.feed_forward,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.key_length": self.head_size,
            "llama.attention.value_length": self.head_size,
            "llama.rope.dimension_count": self.head_size,
        }

    def metadata(self) -> dict[str, str | int | float]:
        """GGUF metadata of a model without a tokenizer."""
        return {
            "general.architecture": "llama",
            "llama.context_length": 512,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.vocab_size": self.vocabulary,
            "tokenizer.ggml.model": "no_vocab",
            **self.sizes(),
        }
