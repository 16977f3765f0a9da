"""PyTorch against llama.cpp: the draft logits of the exported files on held-out text."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from demo import tokenizer as tok
from demo.model import Linear, Model
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from heads import frozen, llama
from heads.compose import compose_mtp, value
from heads.frozen import Seen
from heads.training import STEPS
from heads.widen import widen

Log = Callable[[str], None]
Array = NDArray[np.float32]
_LENGTH = 320
_AGREED = 0.01
"""Logits that differ by less count as equal."""
_STARTS = list(range(20, _LENGTH - 10, 15))
"""Rows behind which the later places are looked at too."""


def held_out_ids(data: Path, length: int = _LENGTH) -> list[int]:
    """Tokens of the held-out prompts in the chat format, one conversation."""
    coder = tok.load(data / "tokenizer.json")
    entries = json.loads((data / "heldout.json").read_text(encoding="utf-8"))
    talk = [(m["role"], m["content"]) for e in entries[::7] for m in e["messages"]]
    return list(coder.encode(tok.render(talk)).ids[:length])


@torch.no_grad()
def as_stored(head: nn.Module, kind: Kind) -> nn.Module:
    """The head with its own matrices rounded as that type stores them."""
    for p in head.parameters():
        if p.requires_grad and p.ndim == 2:
            p.copy_(stored(p, kind))
    return head


def stored(x: Tensor, kind: Kind) -> Tensor:
    """The numbers rounded as that type stores them."""
    data = gguf.quants.quantize(x.detach().numpy(), kind)
    return torch.from_numpy(dequantize(data, kind).reshape(x.shape))


@torch.no_grad()
def rounding(head: nn.Module, kind: Kind) -> nn.Module:
    """A copy of the head that rounds the inputs of its own matrices to that type."""
    copied = copy.deepcopy(head)
    for module in copied.modules():
        if isinstance(module, Linear):
            module.register_forward_pre_hook(lambda _, args: (stored(args[0], kind), *args[1:]))
    return copied


@torch.no_grad()
def in_torch(
    head: nn.Module, target: Model, ids: list[int], got: llama.Drafted, output: Kind
) -> list[Array]:
    """Logits (N, V) of each step, on the states that llama.cpp's target gave.

    `output` is the type to which the states are rounded that the output matrix is applied to.
    """
    tokens = torch.tensor([ids])
    stream = frozen.look(target, tokens, torch.ones_like(tokens))
    features = stream.features if got.features is None else torch.from_numpy(got.features)[None]
    hidden = stream.hidden if got.hidden is None else torch.from_numpy(got.hidden)[None]
    seen = Seen(tokens, torch.ones_like(tokens), features, hidden)
    return [
        functional.linear(stored(state, output), head.matrix(n))[0].numpy()
        for n, state in enumerate(head(seen, STEPS), 1)
    ]


def compare(name: str, want: list[Array], got: llama.Drafted, log: Log) -> float:
    """Log the differences; the largest one."""
    gaps = [np.abs(want[step - 1][row] - logits) for step, row, logits in got.rows]
    same = np.mean(
        [want[step - 1][row].argmax() == logits.argmax() for step, row, logits in got.rows]
    )
    every = np.concatenate(gaps)
    above = sum(gap.max() > _AGREED for gap in gaps)
    log(
        f"{name}: {len(gaps)} rows, largest logit difference {every.max():.5f}, "
        f"in {above} rows above {_AGREED}, mean {every.mean():.6f}, same argmax {same:.3f}"
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
    """Compare the exported files: F32 and F16 on a float32 target, the final ones on the real one.

    llama.cpp also rounds the inputs of a matrix to 16 or 8 bits. So PyTorch computes twice: without
    rounding, and with rounding of the same inputs.
    """
    ids = held_out_ids(data)
    plain = work / "target-f32.gguf"
    widen(target, plain)
    model = frozen.load(target)
    for kind in (Kind.F32, Kind.F16, Kind.Q8_0):
        kept = kind == Kind.Q8_0
        mark, folder = ("", heads) if kept else (f"-{kind.name.lower()}", work)
        trunk, output = (target, Kind.Q8_0) if kept else (plain, Kind.F32)
        for name, run in (("eagle3", _eagle3), ("mtp-block", _mtp)):
            head = trained(name.removesuffix("-block"))
            if head is None:
                continue
            path = folder / f"{name}{mark}.gguf"
            got = run(trunk, path, work / f"target-mtp{mark}.gguf", ids)
            exact = as_stored(head, kind)
            compare(f"{path.name}, PyTorch", in_torch(exact, model, ids, got, Kind.F32), got, log)
            like = in_torch(rounding(exact, kind), model, ids, got, output)
            compare(f"{path.name}, PyTorch rounding likewise", like, got, log)
            if name == "mtp-block":
                whole = llama.run_plain(work / f"target-mtp{mark}.gguf", ids)[0]
                gap = np.abs(whole - llama.run_plain(trunk, ids)[0]).max()
                log(f"{name}{mark} behind {trunk.name}: plain logits differ by {gap:.5f} at most")
        head = trained("medusa")
        if head is not None:
            path = folder / f"medusa{mark}.gguf"
            hidden = llama.run_plain(trunk, ids)[1]
            got = llama.Drafted(None, hidden, in_numpy(path, hidden))
            exact = as_stored(head, kind)
            compare(f"{path.name}, PyTorch", in_torch(exact, model, ids, got, Kind.F32), got, log)


def in_numpy(head: Path, hidden: Array) -> list[tuple[int, int, Array]]:
    """Drafts of Medusa heads, read from their file, behind each of the states (N, E)."""
    reader = gguf.GGUFReader(head)
    tensors = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    rows = []
    for k in range(int(value(reader, "medusa.heads"))):
        inner = hidden @ tensors[f"medusa.{k}.res.0.weight"].T + tensors[f"medusa.{k}.res.0.bias"]
        logits = (hidden + inner / (1 + np.exp(-inner))) @ tensors[f"medusa.{k}.output.weight"].T
        rows += [(k + 1, i + k + 1, row) for i, row in enumerate(logits[: -k - 1])]
    return rows


def _eagle3(trunk: Path, head: Path, _whole: Path, ids: list[int]) -> llama.Drafted:
    return llama.run_eagle3(trunk, head, ids, _STARTS, STEPS)


def _mtp(trunk: Path, block: Path, whole: Path, ids: list[int]) -> llama.Drafted:
    compose_mtp(trunk, block, whole)
    return llama.run_mtp(whole, ids, _STARTS, STEPS)
