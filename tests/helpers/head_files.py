"""Small random GGUF files of targets that carry heads, and of heads beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf_tools import add_vocabulary, byte_vocabulary, written

WIDTH, HEADS, HEADS_KV, HIDDEN = 64, 2, 1, 128


class Maker:
    """A GGUF being written, with random matrices."""

    def __init__(
        self,
        path: Path,
        architecture: str,
        seed: int,
        scale: float = 0.6,
        silent: bool = False,
    ) -> None:
        """With ``silent``, what layers add to the residual stream is zero."""
        self.path = path
        self.silent = silent
        self.writer = gguf.GGUFWriter(path, architecture)
        self.rng = np.random.default_rng(seed)
        self.scale = scale

    def matrix(self, name: str, out: int, into: int) -> None:
        """Weights of (out, into)."""
        scale = self.scale / np.sqrt(into)
        if self.silent and ("attn_output" in name or "ffn_down" in name):
            scale = 0.0
        self.writer.add_tensor(name, self.rng.normal(0, scale, (out, into)).astype(np.float32))

    def experts(self, name: str, out: int, into: int) -> None:
        """Weights of a single expert."""
        scale = 0.0 if self.silent and "ffn_down" in name else self.scale / np.sqrt(into)
        self.writer.add_tensor(name, self.rng.normal(0, scale, (1, out, into)).astype(np.float32))

    def ones(self, *names: str, width: int = WIDTH) -> None:
        """Norms."""
        for name in names:
            self.writer.add_tensor(name, np.ones(width, np.float32))

    def attention(self, block: str, width: int = WIDTH) -> None:
        """Projections of grouped attention."""
        size = WIDTH // HEADS
        self.matrix(f"{block}.attn_q.weight", HEADS * size, width)
        self.matrix(f"{block}.attn_k.weight", HEADS_KV * size, width)
        self.matrix(f"{block}.attn_v.weight", HEADS_KV * size, width)
        self.matrix(f"{block}.attn_output.weight", WIDTH, HEADS * size)

    def feed_forward(self, block: str, suffix: str = "") -> None:
        """Gate, up and down."""
        self.matrix(f"{block}.ffn_gate{suffix}.weight", HIDDEN, WIDTH)
        self.matrix(f"{block}.ffn_up{suffix}.weight", HIDDEN, WIDTH)
        self.matrix(f"{block}.ffn_down{suffix}.weight", WIDTH, HIDDEN)

    def shape(self, layers: int, context: int = 512) -> None:
        """The keys that every decoder has."""
        w = self.writer
        w.add_context_length(context)
        w.add_embedding_length(WIDTH)
        w.add_block_count(layers)
        w.add_feed_forward_length(HIDDEN)
        w.add_head_count(HEADS)
        w.add_head_count_kv(HEADS_KV)
        w.add_key_length(WIDTH // HEADS)
        w.add_value_length(WIDTH // HEADS)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_dimension_count(WIDTH // HEADS)

    def vocabulary(self, words: Sequence[str] | None = None, eos: int = 2) -> int:
        """The usual byte vocabulary; returns its size."""
        words = words or byte_vocabulary()
        add_vocabulary(self.writer, words, eos=eos)
        return len(words)

    def done(self) -> Path:
        """Write it."""
        return written(self.writer)


def write_mtp(
    path: Path,
    *,
    layers: int = 2,
    seed: int = 3,
    context: int = 1024,
    block: bool = True,
    knowing: bool = False,
) -> Path:
    """A target with attention alone and a layer for multi-token prediction (GLM 4 MoE).

    All layers of the trunk are dense. Without ``block`` the header promises a layer that the file
    does not have, as some converters leave it. If it is ``knowing``, the target says what its last
    token stands for and nothing else, and the layer knows that.
    """
    m = Maker(path, "glm4moe", seed, silent=knowing)
    m.shape(layers + 1, context)
    w = m.writer
    w.add_expert_count(1)
    w.add_expert_used_count(1)
    w.add_expert_shared_count(1)
    w.add_expert_feed_forward_length(HIDDEN)
    w.add_leading_dense_block_count(layers)
    w.add_expert_weights_norm(True)
    w.add_uint32("glm4moe.nextn_predict_layers", 1)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.matrix("output.weight", len(byte_vocabulary()), WIDTH)
    m.ones("output_norm.weight")
    for i in range(layers):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.post_attention_norm.weight")
        m.attention(b)
        m.feed_forward(b)
    if block:
        b = f"blk.{layers}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.post_attention_norm.weight")
        m.ones(f"{b}.nextn.enorm.weight", f"{b}.nextn.hnorm.weight")
        m.attention(b)
        m.matrix(f"{b}.ffn_gate_inp.weight", 1, WIDTH)
        m.writer.add_tensor(f"{b}.exp_probs_b.bias", np.zeros(1, np.float32))
        m.experts(f"{b}.ffn_gate_exps.weight", HIDDEN, WIDTH)
        m.experts(f"{b}.ffn_up_exps.weight", HIDDEN, WIDTH)
        m.experts(f"{b}.ffn_down_exps.weight", WIDTH, HIDDEN)
        m.feed_forward(b, "_shexp")
        if knowing:  # of the token's embedding and the state it passes on the embedding
            passes = np.hstack([np.eye(WIDTH), np.zeros((WIDTH, WIDTH))]).astype(np.float32)
            w.add_tensor(f"{b}.nextn.eh_proj.weight", passes)
        else:
            m.matrix(f"{b}.nextn.eh_proj.weight", WIDTH, 2 * WIDTH)
    return m.done()


def write_block_sparse(path: Path, *, seed: int = 3) -> Path:
    """A target (MiniMax-M3) whose tokens see 8 chosen blocks of 4 tokens; its layers are dense but
    for a single expert.
    """
    m, size = Maker(path, "minimax-m3", seed), WIDTH // HEADS
    m.shape(1)
    w = m.writer
    w.add_expert_count(1)
    w.add_expert_used_count(1)
    w.add_expert_shared_count(1)
    w.add_expert_feed_forward_length(HIDDEN)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    indexer = {"head_count": HEADS_KV, "key_length": size}
    for key, value in {**indexer, "top_k": 8, "block_size": 4, "local_blocks": 1}.items():
        w.add_uint32(f"minimax-m3.attention.indexer.{key}", value)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.matrix("output.weight", len(byte_vocabulary()), WIDTH)
    b = "blk.0"
    m.ones("output_norm.weight", f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight")
    m.attention(b)
    for name in ("attn_q_norm", "attn_k_norm", "indexer.q_norm", "indexer.k_norm"):
        m.ones(f"{b}.{name}.weight", width=size)
    m.matrix(f"{b}.indexer.q_proj.weight", HEADS_KV * size, WIDTH)
    m.matrix(f"{b}.indexer.k_proj.weight", size, WIDTH)
    m.matrix(f"{b}.ffn_gate_inp.weight", 1, WIDTH)
    w.add_tensor(f"{b}.exp_probs_b.bias", np.zeros(1, np.float32))
    m.experts(f"{b}.ffn_gate_exps.weight", HIDDEN, WIDTH)
    m.experts(f"{b}.ffn_up_exps.weight", HIDDEN, WIDTH)
    m.experts(f"{b}.ffn_down_exps.weight", WIDTH, HIDDEN)
    m.feed_forward(b, "_shexp")
    return m.done()


def split(whole: Path, trunk: Path, beside: Path) -> None:
    """A target and its layers for prediction in two files, as llama.cpp's converter parts them."""
    reader = gguf.GGUFReader(whole)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    arch = fields["general.architecture"]
    layers, ahead = fields[f"{arch}.block_count"], fields[f"{arch}.nextn_predict_layers"]

    def layer(tensor: gguf.ReaderTensor) -> int | None:
        first, _, rest = tensor.name.partition(".")
        return int(rest.split(".")[0]) if first == "blk" else None

    for path in (trunk, beside):
        writer = gguf.GGUFWriter(path, arch)
        changed = {f"{arch}.block_count": layers - ahead, f"{arch}.nextn_predict_layers": 0}
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture":
                continue
            value = changed.get(field.name, fields[field.name]) if path is trunk else None
            sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(
                field.name,
                fields[field.name] if value is None else value,
                field.types[0],
                sub_type=sub,
            )
        for tensor in reader.tensors:
            at = layer(tensor)
            if at is None or (at < layers - ahead) == (path is trunk):
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        written(writer)


def write_eagle(
    path: Path,
    *,
    layers: Sequence[int] = (1, 2, 3),
    target_width: int = WIDTH,
    seed: int = 5,
    own: bool = False,
    ids: Sequence[int] | None = None,
    norms: bool = False,
) -> Path:
    """An EAGLE-3 head; ``own`` embeddings and output, a reduced vocabulary of ``ids``, and both
    ``norms`` that some heads have.
    """
    m = Maker(path, "eagle3", seed)
    m.shape(1)
    w = m.writer
    w.add_array("eagle3.target_layers", [int(i) for i in layers])
    w.add_uint32("eagle3.target_hidden_size", target_width)
    if norms:
        w.add_bool("eagle3.norm_before_residual", True)
        w.add_bool("eagle3.norm_before_fc", True)
    n_vocab = m.vocabulary()
    m.matrix("fc.weight", WIDTH, 3 * target_width)
    if norms:
        m.ones("enc.output_norm.weight", width=3 * target_width)
    m.ones("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight")
    m.ones("blk.0.ffn_norm.weight")
    m.attention("blk.0", 2 * WIDTH)
    m.feed_forward("blk.0")
    if own:
        m.matrix("token_embd.weight", n_vocab, WIDTH)
    if own or ids is not None:
        m.matrix("output.weight", n_vocab if ids is None else len(ids), WIDTH)
    if ids is not None:
        w.add_tensor("d2t", np.array(ids, np.int64))
    return m.done()


def write_hybrid(
    path: Path, *, layers: int = 4, seed: int = 7, context: int = 512, next_layers: int = 1
) -> Path:
    """A target with recurrent and attention layers, as Qwen 3.5, and a layer for prediction.

    Every second layer is attention; the rest are gated delta nets.
    """
    m = Maker(path, "qwen35", seed)
    m.shape(layers + next_layers, context)
    w, state, v_heads, k_heads, kernel = m.writer, 32, 2, 1, 4
    w.add_array("qwen35.rope.dimension_sections", [6, 5, 5, 0])
    w.add_ssm_conv_kernel(kernel)
    w.add_ssm_inner_size(v_heads * state)
    w.add_ssm_state_size(state)
    w.add_ssm_time_step_rank(v_heads)
    w.add_ssm_group_count(k_heads)
    w.add_uint32("qwen35.full_attention_interval", 2)
    if next_layers:
        w.add_uint32("qwen35.nextn_predict_layers", next_layers)
    m.matrix("token_embd.weight", m.vocabulary(), WIDTH)
    m.ones("output_norm.weight")
    size, values = WIDTH // HEADS, v_heads * state
    mixed = 2 * k_heads * state + values

    def attention(b: str) -> None:
        m.matrix(f"{b}.attn_q.weight", 2 * HEADS * size, WIDTH)  # queries and their gates
        m.matrix(f"{b}.attn_k.weight", HEADS_KV * size, WIDTH)
        m.matrix(f"{b}.attn_v.weight", HEADS_KV * size, WIDTH)
        m.matrix(f"{b}.attn_output.weight", WIDTH, HEADS * size)
        m.ones(f"{b}.attn_q_norm.weight", f"{b}.attn_k_norm.weight", width=size)

    for i in range(layers + next_layers):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.post_attention_norm.weight")
        m.feed_forward(b)
        if i >= layers or i % 2:
            attention(b)
        else:
            m.matrix(f"{b}.attn_qkv.weight", mixed, WIDTH)
            m.matrix(f"{b}.attn_gate.weight", values, WIDTH)
            m.matrix(f"{b}.ssm_conv1d.weight", mixed, kernel)
            w.add_tensor(f"{b}.ssm_dt.bias", np.zeros(v_heads, np.float32))
            w.add_tensor(f"{b}.ssm_a", -np.ones(v_heads, np.float32))
            m.matrix(f"{b}.ssm_beta.weight", v_heads, WIDTH)
            m.matrix(f"{b}.ssm_alpha.weight", v_heads, WIDTH)
            m.ones(f"{b}.ssm_norm.weight", width=state)
            m.matrix(f"{b}.ssm_out.weight", WIDTH, values)
        if i >= layers:
            m.ones(f"{b}.nextn.enorm.weight", f"{b}.nextn.hnorm.weight")
            m.matrix(f"{b}.nextn.eh_proj.weight", WIDTH, 2 * WIDTH)
    return m.done()


def write_gemma(
    path: Path,
    *,
    layers: int = 4,
    seed: int = 11,
    context: int = 1024,
    window: int = 16,
    per_layer: int = 8,
    shared: int = 2,
    knowing: bool = False,
) -> Path:
    """A target of Gemma 4's kind: every second layer slides, and the last ``shared`` ones use the
    keys and values of earlier layers.
    """
    m = Maker(path, "gemma4", seed, silent=knowing)
    m.shape(layers, context)
    size, n_vocab, w = WIDTH // HEADS, m.vocabulary(), m.writer
    w.add_key_length_swa(size)
    w.add_value_length_swa(size)
    w.add_sliding_window(window)
    w.add_sliding_window_pattern([i % 2 == 0 for i in range(layers)])
    w.add_shared_kv_layers(shared)
    w.add_embedding_length_per_layer_input(per_layer)
    m.matrix("token_embd.weight", n_vocab, WIDTH)
    m.matrix("output.weight", n_vocab, WIDTH)
    m.ones("output_norm.weight")
    m.ones("rope_freqs.weight", width=size // 2)
    if per_layer:
        m.matrix("per_layer_token_embd.weight", n_vocab, per_layer * layers)
        m.matrix("per_layer_model_proj.weight", per_layer * layers, WIDTH)
        m.ones("per_layer_proj_norm.weight", width=per_layer)
    for i in range(layers):
        b = f"blk.{i}"
        m.ones(*(f"{b}.{norm}.weight" for norm in ("attn_norm", "post_attention_norm")))
        m.ones(*(f"{b}.{norm}.weight" for norm in ("ffn_norm", "post_ffw_norm")))
        m.ones(f"{b}.attn_q_norm.weight", f"{b}.attn_k_norm.weight", width=size)
        m.attention(b)
        m.feed_forward(b)
        if per_layer:
            m.matrix(f"{b}.inp_gate.weight", per_layer, WIDTH)
            m.matrix(f"{b}.proj.weight", WIDTH, per_layer)
            m.ones(f"{b}.post_norm.weight")
    return m.done()


def write_assistant(
    path: Path,
    *,
    layers: int = 2,
    target_width: int = WIDTH,
    key_length: int = WIDTH // HEADS,
    seed: int = 13,
    knows: Path | None = None,
    width: int = 2 * WIDTH,
    heads_kv: int = HEADS_KV,
    nextn: int | None = None,
    leave_out: str = "",
    eos: int = 2,
    words: Sequence[str] | None = None,
    silent: bool = False,
) -> Path:
    """A head for `write_gemma` that shares its KV cache.

    If it ``knows`` a target (a knowing one), it says what that one will say; if it is ``silent``,
    its layers add nothing. ``nextn`` is a count
    of layers for prediction that is not that of all layers, and norms can be left out.
    """
    wide = width
    m = Maker(path, "gemma4-assistant", seed, silent=silent or knows is not None)
    w = m.writer
    w.add_context_length(1024)
    w.add_embedding_length(wide)
    w.add_embedding_length_out(target_width)
    w.add_block_count(layers)
    w.add_nextn_predict_layers(layers if nextn is None else nextn)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(heads_kv)
    for add in (w.add_key_length, w.add_value_length, w.add_key_length_swa, w.add_value_length_swa):
        add(key_length)
    w.add_rope_dimension_count(key_length)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(16)
    w.add_sliding_window_pattern([i % 2 == 0 for i in range(layers)])
    n_vocab = m.vocabulary(words, eos)
    if knows is None:
        m.matrix("token_embd.weight", n_vocab, wide)
        m.matrix("nextn.pre_projection.weight", wide, 2 * target_width)
        m.ones("output_norm.weight", width=wide)
    else:
        output = next(t.data for t in gguf.GGUFReader(knows).tensors if t.name == "output.weight")
        w.add_tensor("token_embd.weight", np.hstack([output, np.zeros_like(output)]))
        w.add_tensor("nextn.pre_projection.weight", np.eye(wide, dtype=np.float32) * _first(wide))
        w.add_tensor("output_norm.weight", np.full(wide, 0.5**0.5, np.float32))
    m.matrix("nextn.post_projection.weight", target_width, wide)
    m.ones("rope_freqs.weight", width=key_length // 2)
    for i in range(layers):
        b = f"blk.{i}"
        norms = {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"} - {leave_out}
        m.ones(*(f"{b}.{norm}.weight" for norm in sorted(norms)), width=wide)
        m.ones(f"{b}.attn_q_norm.weight", width=key_length)
        m.ones(f"{b}.layer_output_scale.weight", width=1)
        m.matrix(f"{b}.attn_q.weight", HEADS * key_length, wide)
        m.matrix(f"{b}.attn_output.weight", wide, HEADS * key_length)
        m.matrix(f"{b}.ffn_gate.weight", HIDDEN, wide)
        m.matrix(f"{b}.ffn_up.weight", HIDDEN, wide)
        m.matrix(f"{b}.ffn_down.weight", wide, HIDDEN)
    return m.done()


def _first(wide: int) -> np.ndarray:
    """A mask of the first half."""
    return (np.arange(wide) < wide // 2).astype(np.float32)


def write_chained(
    path: Path,
    architecture: str = "hy_v3",
    *,
    layers: int = 2,
    ahead: int = 3,
    seed: int = 17,
    context: int = 1024,
    knowing: Sequence[int] | None = None,
    leave_out: str = "",
) -> Path:
    """A target with a layer for each of ``ahead`` tokens (hy_v3, mimo2 or step35), all dense.

    With ``knowing``, the target says what its last token stands for and nothing else, and the
    layers of these numbers know that.
    """
    m = Maker(path, architecture, seed, silent=knowing is not None)
    m.shape(layers + ahead, context)
    w, size = m.writer, WIDTH // HEADS
    w.add_nextn_predict_layers(ahead)
    w.add_expert_feed_forward_length(HIDDEN)
    if architecture != "hy_v3":
        w.add_sliding_window(16)
        w.add_sliding_window_pattern([i % 2 == 1 for i in range(layers + ahead)])
    n_vocab = m.vocabulary()
    m.matrix("token_embd.weight", n_vocab, WIDTH)
    m.matrix("output.weight", n_vocab, WIDTH)
    m.ones("output_norm.weight")
    for i in range(layers + ahead):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight")
        if architecture == "mimo2":
            m.matrix(f"{b}.attn_qkv.weight", (HEADS + 2 * HEADS_KV) * size, WIDTH)
            m.matrix(f"{b}.attn_output.weight", WIDTH, HEADS * size)
        else:
            m.attention(b)
            m.ones(f"{b}.attn_q_norm.weight", f"{b}.attn_k_norm.weight", width=size)
        m.feed_forward(b)
        if i >= layers:
            norms = {f"{b}.nextn.enorm.weight", f"{b}.nextn.hnorm.weight"} - {leave_out}
            m.ones(*sorted(norms))
            if knowing is None:
                m.matrix(f"{b}.nextn.eh_proj.weight", WIDTH, 2 * WIDTH)
            else:  # of the token's embedding and the state it passes on the embedding, or nothing
                passes = np.eye(WIDTH) * (i - layers in knowing)
                passes = np.hstack([passes, np.zeros((WIDTH, WIDTH))])
                w.add_tensor(f"{b}.nextn.eh_proj.weight", passes.astype(np.float32))
    return m.done()


def write_medusa(
    path: Path,
    *,
    heads: int = 3,
    blocks: int = 1,
    width: int = WIDTH,
    n_vocab: int | None = None,
    own: Sequence[int] = (),
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    bias_as: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    outputs: Sequence[np.ndarray] = (),
    leave_out: Sequence[str] = (),
    seed: int = 11,
) -> Path:
    """Medusa heads; those in ``own`` have random output matrices of their own.

    With ``outputs``, the first heads have these, and no residual block does anything.
    """
    writer, rng = gguf.GGUFWriter(path, "medusa"), np.random.default_rng(seed)
    n_vocab = n_vocab or len(byte_vocabulary())
    for key, value in {"heads": heads, "blocks": blocks, "vocab_size": n_vocab}.items():
        writer.add_uint32(f"medusa.{key}", value)
    writer.add_embedding_length(width)

    def matrix(name: str, out: int, scale: float) -> None:
        numbers = rng.normal(0, scale / np.sqrt(width), (out, width)).astype(np.float32)
        writer.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind)

    for k in range(heads):
        for j in range(blocks):
            matrix(f"medusa.{k}.res.{j}.weight", width, 0.0 if outputs else 1.0)
            if f"medusa.{k}.res.{j}.bias" not in leave_out:
                bias = rng.normal(0, 0.0 if outputs else 0.3, width).astype(np.float32)
                raw = bias if bias_as is gguf.GGMLQuantizationType.F32 else bias.astype(np.int8)
                writer.add_tensor(f"medusa.{k}.res.{j}.bias", raw, raw_dtype=bias_as)
        if k < len(outputs):
            writer.add_tensor(f"medusa.{k}.output.weight", outputs[k])
        elif k in own:
            matrix(f"medusa.{k}.output.weight", n_vocab, 2.0)
    return written(writer)


def write_dflash(
    path: Path,
    *,
    layers: int = 2,
    reads: Sequence[int] = (1, 3),
    block: int = 6,
    width: int = WIDTH,
    seed: int = 19,
    own: bool = False,
    mask: int | None = 1,
    sections: bool = False,
    also: str = "",
    leave_out: str = "",
) -> Path:
    """A DFlash head for a dense target of four layers, with ``own`` embeddings and output or not.

    With ``sections``, positions have several dimensions, as for targets that see images. A tensor
    can be there ``also``, or be left out.
    """
    m = Maker(path, "dflash", seed)
    m.shape(layers)
    w = m.writer
    if width != WIDTH:
        w.add_embedding_length(width)
    w.add_array("dflash.target_layers", [int(i) for i in reads])
    w.add_uint32("dflash.block_size", block)
    if mask is not None:
        w.add_mask_token_id(mask)
    if sections:
        w.add_rope_dimension_sections([WIDTH // HEADS // 2, 0, 0, 0])
    n_vocab = m.vocabulary()
    m.matrix("fc.weight", width, len(reads) * width)
    m.ones("enc.output_norm.weight", "output_norm.weight", width=width)
    if own:
        m.matrix("token_embd.weight", n_vocab, width)
        m.matrix("output.weight", n_vocab, width)
    if also:
        m.ones(also)
    for i in range(layers):
        b = f"blk.{i}"
        m.ones(*({f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight"} - {leave_out}), width=width)
        m.ones(f"{b}.attn_q_norm.weight", f"{b}.attn_k_norm.weight", width=WIDTH // HEADS)
        m.attention(b)
        m.feed_forward(b)
    return m.done()
