"""GGUF files: F16 from the checkpoints, then 4 or 8 bits by llama.cpp's own quantizer."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

from . import tokenizer as tok
from .files import finish, put_as
from .loop import Log
from .model import EPS, HEAD, THETA, Model, Shape

TRAINED_CONTEXT = 768


def permuted(weight: Tensor, heads: int) -> Tensor:
    """Rows of q or k in the order in which llama.cpp rotates neighbours instead of halves."""
    rows, wide = weight.shape
    return weight.view(heads, 2, rows // heads // 2, wide).swapaxes(1, 2).reshape(rows, wide)


def about(w: gguf.GGUFWriter, name: str, what: str) -> None:
    """The keys that say what a file is."""
    w.add_name(f"localspec demo {name}")
    w.add_author("localspec")
    w.add_license("mit")
    w.add_description(what)


def add_shape(w: gguf.GGUFWriter, shape: Shape, context: int = TRAINED_CONTEXT) -> None:
    """The keys of a transformer of that shape."""
    w.add_context_length(context)
    w.add_embedding_length(shape.width)
    w.add_block_count(shape.layers)
    w.add_feed_forward_length(shape.hidden)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_dimension_count(HEAD)
    w.add_rope_freq_base(THETA)
    w.add_vocab_size(shape.vocab)


def write_f16(
    model: Model,
    tokenizer: Path,
    path: Path,
    name: str,
    template: str = tok.TEMPLATE,
    more: Sequence[str] = (),
    context: int = TRAINED_CONTEXT,
) -> None:
    """``more`` are tokens behind those of the tokenizer, each found in any text that spells it."""
    shape = model.shape
    w = gguf.GGUFWriter(path, "llama")
    about(w, name, "A toy to prove the machine: the embedded demonstration pair of localspec.")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    add_shape(w, shape, context)
    tokens, merges = tok.pieces(tok.load(tokenizer))
    kinds = [gguf.TokenType.CONTROL if t in tok.SPECIAL else gguf.TokenType.NORMAL for t in tokens]
    kinds += [gguf.TokenType.USER_DEFINED] * len(more)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list([*tokens, *more])
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_bos_token_id(tok.BOS)
    w.add_eos_token_id(tok.END)
    w.add_eot_token_id(tok.END)
    w.add_pad_token_id(tok.BOS)
    w.add_add_bos_token(False)
    w.add_chat_template(template)
    for key, tensor in tensors(model).items():
        put_as(w, key, array(tensor), gguf.GGMLQuantizationType.F16)
    finish(w)


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()


def tensors(model: Model) -> dict[str, Tensor]:
    """By the names of llama.cpp."""
    shape = model.shape
    found = {"token_embd.weight": model.embed, "output_norm.weight": model.norm}
    for i, block in enumerate(model.blocks):
        found[f"blk.{i}.attn_norm.weight"] = block.norm1
        found[f"blk.{i}.ffn_norm.weight"] = block.norm2
        found[f"blk.{i}.attn_q.weight"] = permuted(block.q.weight, shape.heads)
        found[f"blk.{i}.attn_k.weight"] = permuted(block.k.weight, shape.kv_heads)
        found[f"blk.{i}.attn_v.weight"] = block.v.weight
        found[f"blk.{i}.attn_output.weight"] = block.o.weight
        found[f"blk.{i}.ffn_gate.weight"] = block.gate.weight
        found[f"blk.{i}.ffn_up.weight"] = block.up.weight
        found[f"blk.{i}.ffn_down.weight"] = block.down.weight
    return found


def quantize(source: Path, goal: Path, kind: str, log: Log) -> None:
    """`kind` is the name of a llama.cpp file type, such as Q4_0."""
    import llama_cpp

    lines: list[str] = []

    @llama_cpp.llama_log_callback
    def quiet(_level: int, text: bytes, _data: ctypes.c_void_p) -> None:
        lines.append(text.decode("utf-8", "replace"))

    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    # A tied embedding is also the output matrix: 8 bits there keep every batch width exact.
    params.token_embedding_type = llama_cpp.GGML_TYPE_Q8_0
    params.output_tensor_type = llama_cpp.GGML_TYPE_Q8_0
    code = llama_cpp.llama_model_quantize(
        str(source).encode(), str(goal).encode(), ctypes.byref(params)
    )
    if code:
        raise RuntimeError(f"llama_model_quantize failed with {code}: {''.join(lines[-5:])}")
    log(f"{goal.name}: {kind}, {goal.stat().st_size} bytes")


def export_pair(
    models: Mapping[str, Model], tokenizer: Path, out: Path, log: Log, plain: Path, of: str = ""
) -> None:
    """Target and draft by name, in 4 and 8 bits; files in F16 are left in the folder ``plain``."""
    out.mkdir(parents=True, exist_ok=True)
    for name, kind in (("target", "Q4_0"), ("draft", "Q8_0")):
        path = plain / f"{name}-f16.gguf"
        write_f16(models[name], tokenizer, path, f"{name}{of}")
        quantize(path, out / f"{name}.gguf", kind, log)
