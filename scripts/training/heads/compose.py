"""The embedded target as a `glm4moe` model with a multi-token prediction block.

llama.cpp has no such block for the llama architecture. `glm4moe` with only dense layers in front
computes the same function: its feed-forward norm has another name, and its rotary embedding turns
halves of a head instead of neighbours, so the rows of q and k change places. All weights keep
their bytes, because a row of a quantized matrix is a whole number of blocks.

Needs numpy and gguf only.
"""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
from demo.files import copy_keys, finish, put, value
from gguf import ReaderTensor

ARCH = "glm4moe"
_NEEDED = (
    "nextn.eh_proj.weight",
    "nextn.enorm.weight",
    "nextn.hnorm.weight",
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "post_attention_norm.weight",
    "ffn_gate_inp.weight",
    "exp_probs_b.bias",
    "ffn_gate_exps.weight",
    "ffn_down_exps.weight",
    "ffn_up_exps.weight",
    "ffn_gate_shexp.weight",
    "ffn_down_shexp.weight",
    "ffn_up_shexp.weight",
)


def compose_mtp(target: Path, block: Path, out: Path) -> None:
    """Write the target with the block behind its last layer.

    Args:
        target: a GGUF of the llama architecture without biases.
        block: a GGUF with only tensors `blk.N.*`, N the target's number of layers,
            the rows of its q and k as `glm4moe` rotates them.
        out: the new file; it never exists incomplete.

    Raises:
        ValueError: another architecture, or tensors that are missing or do not fit.
    """
    source, head = gguf.GGUFReader(target), gguf.GGUFReader(block)
    if value(source, "general.architecture") != "llama":
        raise ValueError(f"{target}: not of the llama architecture")
    layers = int(value(source, "llama.block_count"))
    added = {tensor.name.removeprefix(f"blk.{layers}."): tensor for tensor in head.tensors}
    if missing := [name for name in _NEEDED if name not in added]:
        raise ValueError(f"{block}: lacks blk.{layers}.{missing[0]}")
    width = int(value(source, "llama.embedding_length"))
    if [int(n) for n in added["nextn.eh_proj.weight"].shape] != [2 * width, width]:
        raise ValueError(f"{block}: nextn.eh_proj is not of a target of width {width}")
    partial = out.with_name(f"{out.name}.partial")
    writer = gguf.GGUFWriter(partial, ARCH)
    _copy_keys(source, writer, layers, added)
    heads = {
        "attn_q": int(value(source, "llama.attention.head_count")),
        "attn_k": int(value(source, "llama.attention.head_count_kv")),
    }
    for tensor in source.tensors:
        kind = tensor.name.removesuffix(".weight").rsplit(".", 1)[-1]
        data = halves(tensor.data, heads[kind]) if kind in heads else tensor.data
        name = tensor.name.replace("ffn_norm", "post_attention_norm")
        put(writer, tensor, data, name)
    for tensor in head.tensors:
        put(writer, tensor, tensor.data, tensor.name)
    finish(writer, partial, out)


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows of q or k from rotated neighbours to rotated halves."""
    count, *rest = rows.shape
    pairs = rows.reshape(heads, count // heads // 2, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _copy_keys(
    source: gguf.GGUFReader, writer: gguf.GGUFWriter, layers: int, added: dict[str, ReaderTensor]
) -> None:
    count = {"llama.block_count": layers + 1}
    copy_keys(source, writer, count, lambda name: re.sub(r"^llama\.", f"{ARCH}.", name))
    experts = added["ffn_gate_exps.weight"].shape
    writer.add_nextn_predict_layers(1)
    writer.add_leading_dense_block_count(layers)
    writer.add_expert_count(int(experts[2]) if len(experts) > 2 else 1)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(int(experts[1]))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    # The weight of the only expert is then 1, whatever its gate says.
    writer.add_expert_weights_norm(value=True)
