"""PyTorch against llama.cpp: the draft logits of the exported files on held-out text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from demo import tokenizer as tok
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from heads import frozen, llama
from heads.compose import compose_mtp
from heads.frozen import Seen
from heads.training import STEPS

Log = Callable[[str], None]
Array = NDArray[np.float32]
_LENGTH = 320
_STARTS = list(range(20, _LENGTH - 10, 15))
"""Rows behind which the later places are looked at too."""


def held_out_ids(data: Path, length: int = _LENGTH) -> list[int]:
    """Tokens of the held-out prompts in the chat format, one conversation."""
    coder = tok.load(data / "tokenizer.json")
    entries = json.loads((data / "heldout.json").read_text(encoding="utf-8"))
    talk = [(m["role"], m["content"]) for e in entries[::7] for m in e["messages"]]
    return list(coder.encode(tok.render(talk)).ids[:length])


def write_plain(source: Path, goal: Path) -> None:
    """The same model with all weights in float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(goal, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        kept = field.contents() if field.name != "general.file_type" else gguf.LlamaFileType.ALL_F32
        writer.add_key_value(field.name, kept, field.types[0], sub_type=sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def as_stored(head: nn.Module, kind: gguf.GGMLQuantizationType) -> nn.Module:
    """The head with its own matrices rounded as that type stores them."""
    for p in head.parameters():
        if p.requires_grad and p.ndim == 2:
            data = gguf.quants.quantize(p.numpy(), kind)
            p.copy_(torch.from_numpy(dequantize(data, kind).reshape(p.shape)))
    return head


@torch.no_grad()
def in_torch(head: nn.Module, target: nn.Module, ids: list[int], got: llama.Drafted) -> list[Array]:
    """Logits (N, V) of each step, on the states that llama.cpp's target gave."""
    tokens = torch.tensor([ids])
    stream = frozen.look(target, tokens, torch.ones_like(tokens))
    features = stream.features if got.features is None else torch.from_numpy(got.features)[None]
    hidden = stream.hidden if got.hidden is None else torch.from_numpy(got.hidden)[None]
    seen = Seen(tokens, torch.ones_like(tokens), features, hidden)
    return [
        functional.linear(state, head.matrix(n))[0].numpy()
        for n, state in enumerate(head(seen, STEPS), 1)
    ]


def compare(name: str, want: list[Array], got: llama.Drafted, log: Log) -> float:
    """Log the differences; the largest one."""
    gaps = [np.abs(want[step - 1][row] - logits) for step, row, logits in got.rows]
    same = np.mean(
        [want[step - 1][row].argmax() == logits.argmax() for step, row, logits in got.rows]
    )
    every = np.concatenate(gaps)
    log(
        f"{name}: {len(gaps)} rows, largest logit difference {every.max():.5f}, "
        f"mean {every.mean():.6f}, same argmax {same:.3f}"
    )
    return float(every.max())


def check_files(
    heads: Path,
    work: Path,
    target: Path,
    data: Path,
    trained: Callable[[str], nn.Module | None],
    log: Log,
) -> None:
    """Compare what was exported: F32 and F16 on a float32 target, the kept files on the real one.

    A kept file's matrices are 8 bits wide, and llama.cpp then rounds what it multiplies them with
    to 8 bits too, as it does with the target's output matrix: PyTorch does not.
    """
    ids = held_out_ids(data)
    plain = work / "target-f32.gguf"
    write_plain(target, plain)
    kinds = gguf.GGMLQuantizationType
    for kind in (kinds.F32, kinds.F16, kinds.Q8_0):
        kept = kind == kinds.Q8_0
        mark, folder = ("", heads) if kept else (f"-{kind.name.lower()}", work)
        trunk = target if kept else plain
        model = frozen.load(target)
        if head := trained("eagle3"):
            path = folder / f"eagle3{mark}.gguf"
            got = llama.run_eagle3(trunk, path, ids, _STARTS, STEPS)
            compare(path.name, in_torch(as_stored(head, kind), model, ids, got), got, log)
        if head := trained("mtp"):
            path, whole = folder / f"mtp-block{mark}.gguf", work / f"target-mtp{mark}.gguf"
            compose_mtp(trunk, path, whole)
            got = llama.run_mtp(whole, ids, _STARTS, STEPS)
            compare(path.name, in_torch(as_stored(head, kind), model, ids, got), got, log)
            gap = np.abs(llama.run_plain(whole, ids)[0] - llama.run_plain(trunk, ids)[0])
            log(f"{whole.name} against {trunk.name}, plain logits: largest gap {gap.max():.5f}")
