"""Small random GGUF files for tests: whole, damaged, and of kinds that cannot chat."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

FILLING = (
    *("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
"""Control tokens of Qwen's coders for a text with a gap."""


MATRICES = {
    "blk.0.attn_q.weight": (64, 64),
    "blk.0.ffn_down.weight": (64, 128),
    "blk.1.attn_v.weight": (32, 64),
    "blk.1.ffn_up.weight": (128, 64),
}
"""Some matrices of `write_llama`, for adapters."""


def written(writer: gguf.GGUFWriter) -> Path:
    """The file of a writer, which is whole now."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert writer.path is not None
    return writer.path


def byte_vocabulary(extra: int = 0) -> list[str]:
    """Three control tokens, the 256 bytes in GPT-2's spelling, and ``extra`` unused words."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = {b: chr(b) for b in printable}
    spare = 256
    for b in range(256):
        if b not in spelling:
            spelling[b] = chr(spare)
            spare += 1
    return [*SPECIALS, *(spelling[b] for b in range(256)), *(f"unused{i}" for i in range(extra))]


def add_vocabulary(
    writer: gguf.GGUFWriter,
    words: Sequence[str],
    controls: Collection[str] = (),
    *,
    eos: int = 2,
    bos: int = 0,
    template: str | None = CHATML,
) -> None:
    """Have a file split texts by ``words`` as qwen2 does; `SPECIALS` and ``controls`` are control
    tokens.
    """
    special = {*SPECIALS, *controls}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if w in special else gguf.TokenType.NORMAL for w in words]
    )
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(eos)
    writer.add_bos_token_id(bos)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)


def foreign_vocabulary(first: int) -> list[str]:
    """Differs from id ``first`` on and has little in common with the usual vocabulary."""
    words = byte_vocabulary()
    words[first], words[first + 1] = words[first + 1], words[first]
    return [*words[:160], *(f"foreign{i}" for i in range(160, len(words)))]


def write_llama(
    path: Path,
    *,
    vocabulary: list[str] | None = None,
    rows: Sequence[int] | None = None,
    seed: int = 0,
    width: int = 64,
    layers: int = 2,
    context: int = 512,
    scale: float = 0.6,
    eos: int = 2,
    template: str | None = CHATML,
    controls: Sequence[str] = (),
    pooling: int | None = None,
    added: Mapping[str, np.ndarray] | None = None,
    numbers: Mapping[str, int] | None = None,
    biases: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """A llama-architecture model of random weights with a byte vocabulary, and with more control
    tokens behind it. ``numbers`` are further whole numbers of its metadata, ``biases`` further
    tensors.

    ``added`` is added to the matrices of these names. With ``rows``, the tokens are those of the
    usual vocabulary at these ids, in this order, with the weights that they have there.
    """
    rng = np.random.default_rng(seed)
    words = [*(byte_vocabulary() if vocabulary is None else vocabulary), *controls]
    chosen = [*range(len(words))] if rows is None else [*rows]
    spelled = [words[i] for i in chosen]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // 2)
    add_vocabulary(
        writer, spelled, controls, eos=chosen.index(eos), bos=chosen.index(0), template=template
    )
    if pooling is not None:
        writer.add_uint32("llama.pooling_type", pooling)
    for key, value in (numbers or {}).items():
        writer.add_uint32(key, value)

    def matrix(name: str, out: int, into: int, order: Sequence[int] | None = None) -> None:
        weights = rng.normal(0, scale / np.sqrt(into), (out, into)).astype(np.float32)
        if added is not None and name in added:
            weights += added[name]
        writer.add_tensor(name, weights if order is None else weights[list(order)])

    matrix("token_embd.weight", len(words), width, chosen)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for i in range(layers):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(width, np.float32))
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", np.ones(width, np.float32))
        matrix(f"blk.{i}.attn_q.weight", width, width)
        matrix(f"blk.{i}.attn_k.weight", width // 2, width)
        matrix(f"blk.{i}.attn_v.weight", width // 2, width)
        matrix(f"blk.{i}.attn_output.weight", width, width)
        matrix(f"blk.{i}.ffn_gate.weight", 2 * width, width)
        matrix(f"blk.{i}.ffn_up.weight", 2 * width, width)
        matrix(f"blk.{i}.ffn_down.weight", width, 2 * width)
    for name, bias in (biases or {}).items():
        writer.add_tensor(name, bias)
    return written(writer)


def write_lora(
    path: Path,
    matrices: Mapping[str, tuple[int, int]],
    *,
    seed: int = 0,
    rank: int = 4,
    alpha: float = 8.0,
    strength: float = 0.5,
    arch: str = "llama",
    kind: str = "adapter",
    halves: Sequence[str] = ("lora_a", "lora_b"),
) -> dict[str, np.ndarray]:
    """A random adapter of some matrices, by name their (out, in); returns what it adds to each."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    added = {}
    for name, (out, into) in matrices.items():
        a = rng.normal(0, strength / np.sqrt(into), (rank, into)).astype(np.float32)
        b = rng.normal(0, strength / np.sqrt(rank), (out, rank)).astype(np.float32)
        for half, tensor in (("lora_a", a), ("lora_b", b)):
            if half in halves:
                writer.add_tensor(f"{name}.{half}", tensor)
        added[name] = alpha / rank * (b @ a)
    written(writer)
    return added


def write_control_vector(
    path: Path, directions: Mapping[int, np.ndarray], *, arch: str = "controlvector"
) -> Path:
    """A control vector, by layer its direction."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("controlvector.model_hint", "llama")
    for layer, direction in directions.items():
        writer.add_tensor(f"direction.{layer}", direction)
    return written(writer)


def write_spm(path: Path, template: str, words: Sequence[str] = ()) -> Path:
    """A model of random weights with a SentencePiece vocabulary: bytes, letters and ``words``, the
    best first.
    """
    kinds, width = gguf.TokenType, 32
    pieces = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    pieces += [(f"<0x{b:02X}>", kinds.BYTE) for b in range(256)]
    pieces += [
        (word, kinds.NORMAL)
        for word in dict.fromkeys([*words, "\u2581", *map(chr, range(33, 127))])
    ]
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in pieces])
    writer.add_token_scores([-float(i) for i in range(len(pieces))])
    writer.add_token_types([kind for _, kind in pieces])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(template)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    layer = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    sizes = {"token_embd": len(pieces), **{f"blk.0.{name}": width for name in layer}}
    for name, out in sizes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.1, (out, width)).astype(np.float32))
    return written(writer)


def write_mamba(path: Path, *, width: int = 32, layers: int = 2) -> Path:
    """A model with a recurrent state in place of a KV cache."""
    rng = np.random.default_rng(0)
    words, inner, state, rank, kernel = byte_vocabulary(), 2 * width, 8, 4, 4
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    add_vocabulary(writer, words)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, rng.normal(0, 0.3, shape).astype(np.float32))

    tensor("token_embd.weight", len(words), width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for i in range(layers):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(width, np.float32))
        tensor(f"blk.{i}.ssm_in.weight", 2 * inner, width)
        tensor(f"blk.{i}.ssm_conv1d.weight", inner, kernel)
        tensor(f"blk.{i}.ssm_conv1d.bias", inner)
        tensor(f"blk.{i}.ssm_x.weight", rank + 2 * state, inner)
        tensor(f"blk.{i}.ssm_dt.weight", inner, rank)
        tensor(f"blk.{i}.ssm_dt.bias", inner)
        writer.add_tensor(f"blk.{i}.ssm_a", -np.ones((inner, state), np.float32))
        writer.add_tensor(f"blk.{i}.ssm_d", np.ones(inner, np.float32))
        tensor(f"blk.{i}.ssm_out.weight", width, inner)
    return written(writer)


def write_gpt2(path: Path, *, positions: int, width: int = 64, seed: int = 0) -> Path:
    """A model that looks up what a position means in a table of so many, of random weights with
    the usual vocabulary.
    """
    rng, words = np.random.default_rng(seed), byte_vocabulary()
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(positions)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    add_vocabulary(writer, words)

    def linear(name: str, out: int) -> None:
        weights = rng.normal(0, 0.6 / np.sqrt(width), (out, width)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", weights)
        writer.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    for name, rows in (("token_embd", len(words)), ("position_embd", positions)):
        table = rng.normal(0, 0.1, (rows, width)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", table)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))
    linear("blk.0.attn_qkv", 3 * width)
    for name in ("attn_output", "ffn_up", "ffn_down"):
        linear(f"blk.0.{name}", width)
    return written(writer)


def write_unknown_architecture(path: Path) -> Path:
    """A whole GGUF that no llama.cpp knows."""
    writer = gguf.GGUFWriter(path, "abacus")
    writer.add_block_count(1)
    writer.add_tensor("beads", np.ones(8, np.float32))
    return written(writer)


def write_bert(path: Path) -> Path:
    """A small BERT: loads, but writes no text."""
    width, words = 32, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(words)
    writer.add_token_type_count(2)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, rng.normal(0, 0.1, shape).astype(np.float32))

    tensor("token_embd.weight", len(words), width)
    tensor("position_embd.weight", 64, width)
    tensor("token_types.weight", 2, width)
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        tensor(f"{name}.weight", width)
        tensor(f"{name}.bias", width)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensor(f"blk.0.{name}.weight", width, width)
        tensor(f"blk.0.{name}.bias", width)
    tensor("blk.0.ffn_up.weight", 2 * width, width)
    tensor("blk.0.ffn_up.bias", 2 * width)
    tensor("blk.0.ffn_down.weight", width, 2 * width)
    tensor("blk.0.ffn_down.bias", width)
    return written(writer)


def write_embedder(
    path: Path, *, pooling: int = 1, seed: int = 0, context: int = 128, rerank: str | None = None
) -> Path:
    """A BERT of random weights whose words are letters; pooling 4 has a head that ranks, with a
    template ``rerank`` of query and document.
    """
    width, hidden, layers = 32, 48, 2
    rng = np.random.default_rng(seed)
    kinds = gguf.TokenType
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [*"0123456789.,!?"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"\u2581{c}" for c in letters] + letters
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(words)
    writer.add_token_types([kinds.CONTROL] * 5 + [kinds.NORMAL] * (len(words) - 5))
    writer.add_token_type_count(2)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_mask_token_id(4)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    if rerank is not None:
        writer.add_string("tokenizer.chat_template.rerank", rerank)

    def matrix(name: str, *dims: int) -> None:
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.3, dims).astype(np.float32))

    def linear(name: str, out: int, into: int) -> None:
        matrix(name, out, into)
        writer.add_tensor(f"{name}.bias", rng.normal(0, 0.1, out).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", rng.normal(1, 0.1, width).astype(np.float32))
        writer.add_tensor(f"{name}.bias", rng.normal(0, 0.1, width).astype(np.float32))

    matrix("token_embd", len(words), width)
    matrix("token_types", 2, width)
    matrix("position_embd", context, width)
    norm("token_embd_norm")
    for i in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(f"blk.{i}.{name}", width, width)
        norm(f"blk.{i}.attn_output_norm")
        linear(f"blk.{i}.ffn_up", hidden, width)
        linear(f"blk.{i}.ffn_down", width, hidden)
        norm(f"blk.{i}.layer_output_norm")
    if pooling == gguf.PoolingType.RANK:
        linear("cls", width, width)
        linear("cls.output", 1, width)
    return written(writer)
