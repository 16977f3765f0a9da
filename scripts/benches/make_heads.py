"""Heads for grown targets: they compute what the small heads compute.

An EAGLE-3 head keeps its own width and reads the states of the grown target, whose new dimensions
are zeros. It has the small embeddings and output matrix, and feed-forward neurons without effect,
for the requested size. A block for multi-token prediction is as wide as its target, and grows as
the target's layers do. Medusa heads are as wide as the target too.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import gguf
import numpy as np
from demo.files import copy_keys, finish, put, value
from heads.compose import compose_mtp

from localspec.core.files.paths import DEMO_DIR, cache_dir


def grow_eagle(head: Path, small: Path, width: int, n_bytes: int, out: Path) -> None:
    """A head for the target ``small`` grown to ``width``, of about ``n_bytes``."""
    reader, target = gguf.GGUFReader(head), gguf.GGUFReader(small)
    tensors = {t.name: t for t in reader.tensors}
    lent = next(t for t in target.tensors if t.name == "token_embd.weight")
    per_neuron = sum(_row_bytes(tensors[f"blk.0.ffn_{n}.weight"]) for n in ("gate", "up"))
    per_neuron += tensors["blk.0.ffn_down.weight"].n_bytes // int(
        tensors["blk.0.ffn_gate.weight"].shape[1]
    )
    rest = sum(t.n_bytes for t in reader.tensors) + 2 * lent.n_bytes
    neurons = int(tensors["blk.0.ffn_gate.weight"].shape[1])
    neurons += 256 * max(0, round((n_bytes - rest) / per_neuron / 256))
    partial = out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "eagle3")
    copy_keys(
        reader,
        writer,
        {"eagle3.target_hidden_size": width, "eagle3.feed_forward_length": neurons},
    )
    for name, tensor in tensors.items():
        if name == "fc.weight":
            put(writer, tensor, _padded(tensor, parts=3, part=width), name)
        elif "ffn_down" in name:
            put(writer, tensor, _padded(tensor, part=neurons), name)
        elif "ffn_gate" in name or "ffn_up" in name:
            put(writer, tensor, _padded(tensor, rows=neurons), name)
        else:
            put(writer, tensor, tensor.data, name)
    for name in ("token_embd.weight", "output.weight"):
        if name not in tensors:
            put(writer, lent, lent.data, name)
    finish(writer, partial, out)


def grow_block(block: Path, small: Path, big: Path, out: Path) -> None:
    """A block for multi-token prediction, made for ``small``, grown for the target ``big``."""
    reader, before, after = gguf.GGUFReader(block), gguf.GGUFReader(small), gguf.GGUFReader(big)
    was, width = (value(r, "llama.embedding_length") for r in (before, after))
    layers = [value(r, "llama.block_count") for r in (before, after)]
    queries, keys = (
        value(after, f"llama.attention.head_count{kind}") * (was // value(before, _HEADS))
        for kind in ("", "_kv")
    )
    rows = {
        **dict.fromkeys(("attn_output", "ffn_down_exps", "ffn_down_shexp", "eh_proj"), width),
        "attn_q": queries,
        **dict.fromkeys(("attn_k", "attn_v"), keys),
    }
    columns = {
        **dict.fromkeys(("attn_q", "attn_k", "attn_v", "eh_proj", "ffn_gate_inp"), width),
        **dict.fromkeys(("ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp"), width),
        "attn_output": queries,
    }
    partial = out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "glm4moe")
    for tensor in reader.tensors:
        name = tensor.name.replace(f"blk.{layers[0]}.", f"blk.{layers[1]}.")
        kind = name.removesuffix(".weight").rsplit(".", 1)[-1]
        if kind.endswith("norm"):
            row = np.ones(width, np.float32)
            row[:was] = np.asarray(tensor.data, np.float32) * math.sqrt(was / width)
            writer.add_tensor(name, row)
        elif kind in rows or kind in columns:
            parts = 2 if kind == "eh_proj" else 1
            data = _padded(tensor, rows=rows.get(kind), part=columns.get(kind), parts=parts)
            put(writer, tensor, data, name)
        else:
            put(writer, tensor, tensor.data, name)
    finish(writer, partial, out)


def grow_medusa(heads: Path, width: int, out: Path) -> None:
    """Medusa heads of a target grown to ``width``: new dimensions remain zero in every block."""
    reader, partial = gguf.GGUFReader(heads), out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "medusa")
    copy_keys(reader, writer, {"medusa.embedding_length": width})
    for tensor in reader.tensors:
        if tensor.name.endswith(".bias"):
            bias = np.zeros(width, np.float32)
            bias[: len(tensor.data)] = tensor.data
            writer.add_tensor(tensor.name, bias)
        else:
            rows = width if ".res." in tensor.name else None
            put(writer, tensor, _padded(tensor, rows=rows, part=width), tensor.name)
    finish(writer, partial, out)


_HEADS = "llama.attention.head_count"


def _padded(
    tensor: gguf.ReaderTensor, *, rows: int | None = None, part: int | None = None, parts: int = 1
) -> np.ndarray:
    """A matrix with more rows of zeros, and each part of its columns with more columns of zeros."""
    data = np.ascontiguousarray(tensor.data)
    n_rows, n_columns = data.shape[-2], int(tensor.shape[0])
    stored = data.view(np.uint8).reshape(*data.shape[:-1], -1)
    wide = n_columns // parts if part is None else part
    each = stored.shape[-1] // parts
    grown = each * wide * parts // n_columns
    made = np.zeros((*data.shape[:-2], rows or n_rows, grown * parts), np.uint8)
    for i in range(parts):
        at = i * grown
        made[..., :n_rows, at : at + each] = stored[..., i * each : (i + 1) * each]
    return made.view(data.dtype)


def _row_bytes(tensor: gguf.ReaderTensor) -> int:
    return int(tensor.n_bytes) // int(tensor.shape[1])


def main() -> None:
    """Grow the embedded target's heads for a grown target, into the cache."""
    data = Path(__file__).resolve().parents[2] / "tests" / "data" / "heads"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("big", type=Path, help="the target, grown by `scripts/bench make_pair`")
    parser.add_argument("--small", type=Path, default=DEMO_DIR / "target.gguf")
    parser.add_argument("--eagle", type=Path, default=data / "eagle3.gguf")
    parser.add_argument("--block", type=Path, default=data / "mtp-block.gguf")
    parser.add_argument("--medusa", type=Path, default=data / "medusa.gguf")
    parser.add_argument("--head-gb", type=float, default=0.05, help="of the EAGLE-3 head")
    parser.add_argument("--out", type=Path, default=cache_dir() / "bench")
    a = parser.parse_args()
    width = value(gguf.GGUFReader(a.big), "llama.embedding_length")
    eagle, block = a.out / f"{a.big.stem}-eagle3.gguf", a.out / f"{a.big.stem}-block.gguf"
    whole = a.out / f"{a.big.stem}-mtp.gguf"
    medusa = a.out / f"{a.big.stem}-medusa.gguf"
    grow_eagle(a.eagle, a.small, width, int(a.head_gb * 1e9), eagle)
    grow_medusa(a.medusa, width, medusa)
    grow_block(a.block, a.small, a.big, block)
    compose_mtp(a.big, block, whole)
    block.unlink()
    print(f"try: scripts/localspec bench {a.big} --draft {eagle}")
    print(f"     scripts/localspec bench {a.big} --draft {medusa}")
    print(f"     scripts/localspec bench {whole}")


if __name__ == "__main__":
    main()
