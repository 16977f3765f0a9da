"""Heads as GGUF files, as llama.cpp and localspec read them."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from demo.export import about, add_shape, array, permuted
from demo.files import copy_keys, finish, put_as
from demo.model import Shape
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from heads.frozen import LAYERS
from heads.models import Eagle3, Medusa, Mtp

_FOR = "for the embedded demonstration target of localspec."


def _write_eagle3(head: Eagle3, target: Path, path: Path) -> None:
    """Architecture `eagle3`; token embeddings and output matrix are those of the target."""
    writer = gguf.GGUFWriter(path, "eagle3")
    about(writer, "eagle3", f"An EAGLE-3 head {_FOR}")
    a, (vocab, width) = head.attention, head.embed.shape
    hidden = head.ffn.gate.weight.shape[0]
    add_shape(writer, Shape(vocab, width, 1, a.heads, a.kv, hidden))
    writer.add_array("eagle3.target_layers", LAYERS)
    writer.add_uint32("eagle3.target_hidden_size", width)
    copy_keys(gguf.GGUFReader(target), writer, only="tokenizer.")
    tensors = {
        "fc.weight": head.fc.weight,
        "output_norm.weight": head.norm_out,
        "blk.0.attn_norm.weight": head.norm_token,
        "blk.0.attn_norm_2.weight": head.norm_state,
        "blk.0.attn_q.weight": permuted(a.q.weight, a.heads),
        "blk.0.attn_k.weight": permuted(a.k.weight, a.kv),
        "blk.0.attn_v.weight": a.v.weight,
        "blk.0.attn_output.weight": a.o.weight,
        "blk.0.ffn_norm.weight": head.norm_ffn,
        "blk.0.ffn_gate.weight": head.ffn.gate.weight,
        "blk.0.ffn_up.weight": head.ffn.up.weight,
        "blk.0.ffn_down.weight": head.ffn.down.weight,
    }
    _finish(writer, tensors)


def _write_mtp(head: Mtp, _target: Path, path: Path, layer: int = 6) -> None:
    """Write only the block; `compose_mtp` adds it to the target. Its heads rotate halves."""
    writer = gguf.GGUFWriter(path, "mtp-block")
    about(writer, "mtp-block", f"A multi-token prediction block {_FOR}")
    a, f = head.attention, head.ffn
    half = f.gate.weight.shape[0] // 2
    tensors = {
        "nextn.eh_proj.weight": head.join.weight,
        "nextn.enorm.weight": head.norm_token,
        "nextn.hnorm.weight": head.norm_state,
        "nextn.shared_head_norm.weight": head.norm_out,
        "attn_norm.weight": head.norm_in,
        "attn_q.weight": a.q.weight,
        "attn_k.weight": a.k.weight,
        "attn_v.weight": a.v.weight,
        "attn_output.weight": a.o.weight,
        "post_attention_norm.weight": head.norm_ffn,
        # One expert needs no choice: its gate says nothing.
        "ffn_gate_inp.weight": torch.zeros(1, head.embed.shape[1]),
        "exp_probs_b.bias": torch.zeros(1),
        "ffn_gate_exps.weight": f.gate.weight[None, :half],
        "ffn_up_exps.weight": f.up.weight[None, :half],
        "ffn_down_exps.weight": f.down.weight[None, :, :half],
        "ffn_gate_shexp.weight": f.gate.weight[half:],
        "ffn_up_shexp.weight": f.up.weight[half:],
        "ffn_down_shexp.weight": f.down.weight[:, half:],
    }
    _finish(writer, {f"blk.{layer}.{name}": t for name, t in tensors.items()})


def _write_medusa(head: Medusa, _target: Path, path: Path) -> None:
    """Architecture `medusa`, which localspec computes itself."""
    writer = gguf.GGUFWriter(path, "medusa")
    about(writer, "medusa", f"{len(head.weights)} Medusa heads {_FOR}")
    vocab, width = head.outputs[0].shape
    writer.add_uint32("medusa.heads", len(head.weights))
    writer.add_uint32("medusa.blocks", 1)
    writer.add_embedding_length(width)
    writer.add_vocab_size(vocab)
    tensors: dict[str, Tensor] = {}
    for k in range(len(head.weights)):
        tensors[f"medusa.{k}.res.0.weight"] = head.weights[k]
        tensors[f"medusa.{k}.res.0.bias"] = head.biases[k]
        tensors[f"medusa.{k}.output.weight"] = head.outputs[k]
    _finish(writer, tensors)


def _finish(writer: gguf.GGUFWriter, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        put_as(writer, name, array(tensor), Kind.Q8_0)
    finish(writer)


WRITERS = {"eagle3": _write_eagle3, "mtp": _write_mtp, "medusa": _write_medusa}
"""From head, target and path: its file with matrices of 8 bits."""
