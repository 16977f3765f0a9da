"""A draft from a public Medusa checkpoint: the same heads, in a GGUF of ours.

Checkpoints (Cai et al. 2024) name the j-th residual block of head k ``k.j.linear.weight`` and
``k.j.linear.bias``, and its output matrix ``k.n.weight``, n being the number of blocks. Those that
were trained together with their model (Medusa-2) are parts of it, ``medusa_head.`` before the names
and perhaps in several files. vLLM calls the same ``blocks.k.layers.j.weight`` and
``lm_heads.k.weight``, and its heads need have no biases.
"""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import (
    DraftIncompatibleError,
    Interrupted,
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    UsageError,
)
from localspec.core.files import paths
from localspec.core.files.checked import require_free, unfinished
from localspec.core.interrupt import Cancelled
from localspec.models.compat import medusa
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.safetensors import SafeTensor, read_safetensors
from localspec.models.gguf.shards import shards
from localspec.models.gguf.writer import Tensor, total, write_gguf

TYPES = {"f16": 1, "q8_0": 8}
"""ggml types that matrices can be written as."""
_F32, _BLOCK = 0, 32
_ROWS = 1024
"""Rows of a matrix that are converted at once."""
_PREFIX = re.compile(r"^((?:[a-z]\w*\.)*medusa_heads?\.|module\.)")
"""Prefixes that wrappers for training put before names: ``module.`` and ``base_model.model.``."""
_OURS = re.compile(r"^(\d{1,4})\.(\d{1,4})\.(linear\.weight|linear\.bias|weight)$")
_VLLM = re.compile(r"^blocks\.(\d{1,4})\.layers\.(\d{1,4})\.(weight|bias)$")
_VLLM_OUTPUT = re.compile(r"^lm_heads\.(\d{1,4})\.weight$")
_BLOCK_NAME = re.compile(r"^(\d{1,4})\.(\d{1,4})\.linear\.weight$")
_LARGEST = float(np.finfo(np.float16).max)
_WHOLE = "medusa_lm_head.safetensors"
"""Names of checkpoints in their repositories."""

Heads = list[dict[str, SafeTensor]]
"""The tensors of every head: ``res.0.weight``, ``res.0.bias``, …, and perhaps ``output.weight``."""


def destination(target: Path) -> Path:
    """Default path of such a draft."""
    folder = paths.make(paths.data_dir() / "drafts")
    return folder / f"{target.stem}.medusa.gguf"


def make(
    target: Path,
    checkpoint: Path,
    where: Path,
    *,
    kind: str,
    cancelled: Cancelled,
    replace: bool = False,
) -> None:
    """Write the heads of a checkpoint, in a file or in a folder; ``kind`` is one of `TYPES`.

    There is never an incomplete file at ``where``; ``replace`` allows an existing file to be
    overwritten.

    Raises:
        ModelNotFoundError, ModelFileError: target or checkpoint are not there or damaged.
        DraftIncompatibleError: the heads are of another target; with the numbers.
        UsageError: a type that the heads' width does not allow, no folder to write to, or a
            destination that is one of the files read or, without ``replace``, exists already.
        LocalspecError: no room on the disk.
        Interrupted
    """
    header = ModelFile(target).header
    source, parts = _files(checkpoint)
    require_free(where, [*shards(target), *parts], replace=replace)
    stored = [read_safetensors(part, lambda name: _usual(name) is not None) for part in parts]
    found = _sorted({name: part[name] for part in stored for name in part}, source.name)
    _check(found, source.name, header.n_embd, header.n_vocab, header.name)
    if kind == "q8_0" and header.n_embd % _BLOCK:
        raise UsageError(f"q8_0 needs a width that {_BLOCK} divides, not {header.n_embd}: use f16")
    tensors = [
        _tensor(f"medusa.{k}.{name}", stored, TYPES[kind], cancelled)
        for k, head in enumerate(found)
        for name, stored in head.items()
    ]
    name = header.text("general.name") or target.stem
    metadata: dict[str, str | int] = {
        "general.architecture": medusa.ARCHITECTURE,
        "general.name": f"{len(found)} Medusa heads for {name}",
        "medusa.heads": len(found),
        "medusa.blocks": _blocks(found[0]),
        "medusa.embedding_length": header.n_embd,
        "medusa.vocab_size": header.n_vocab,
    }
    _write(where, metadata, tensors)


def _usual(name: str) -> str | None:
    """The usual name of a tensor of a head; None for other tensors."""
    bare = _PREFIX.sub("", name)
    if _OURS.match(bare) or _VLLM_OUTPUT.match(bare):
        return bare
    same = _VLLM.match(bare)
    return f"{same[1]}.{same[2]}.linear.{same[3]}" if same else None


def _files(checkpoint: Path) -> tuple[Path, list[Path]]:
    """The name of a checkpoint in a folder, and the files with its heads."""
    if not checkpoint.is_dir():
        return checkpoint, [checkpoint]
    inside = sorted(checkpoint.glob("*.safetensors"))
    named = [path for path in inside if path.name == _WHOLE] or inside
    if len(named) == 1:
        return named[0], named
    if not named:
        raise ModelNotFoundError(f"no .safetensors file in {checkpoint}")
    listed = [path for index in checkpoint.glob("*.index.json") for path in _listed(index)]
    if not listed:
        raise UsageError(
            f"{checkpoint} has {len(named)} .safetensors files; name the one with heads"
        )
    return checkpoint, sorted({*listed})


def _listed(index: Path) -> list[Path]:
    """The files that hold heads by the index of a model in several files."""
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = {file for name, file in places.items() if _usual(name) is not None}
        inside = all(Path(file).name == file for file in files)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        inside = False
    if not inside:
        raise ModelFileError(f"{index.name} does not say which file has what")
    return [index.parent / file for file in files]


def _sorted(stored: Mapping[str, SafeTensor], file: str) -> Heads:
    """The tensors by head, under our names; what belongs to no head is left out."""
    theirs = {_usual(name) or name: tensor for name, tensor in stored.items()}
    places = [(int(m[1]), int(m[2])) for m in map(_BLOCK_NAME.match, theirs) if m]
    if not places:
        raise ModelFileError(f"{file} holds no Medusa heads: no 0.0.linear.weight")
    count, blocks = (1 + max(numbers) for numbers in zip(*places, strict=True))
    if count > medusa.MOST_HEADS or blocks > medusa.MOST_BLOCKS:
        raise ModelFileError(f"{file} holds {count} heads of {blocks} blocks, which is too many")
    if not any(name.endswith(".bias") for name in theirs):
        theirs |= {f"{k}.{j}.linear.bias": _nothing(theirs, k, j) for k, j in places}
    return [_head(theirs, k, blocks, file) for k in range(count)]


def _nothing(theirs: Mapping[str, SafeTensor], k: int, j: int) -> SafeTensor:
    """A bias of zeros."""
    rows = theirs[f"{k}.{j}.linear.weight"].shape[:1]
    zeros = np.zeros(4 * math.prod(rows), np.uint8)
    return SafeTensor(f"{k}.{j}.linear.bias", "F32", rows, zeros)


def _head(
    theirs: Mapping[str, SafeTensor], k: int, blocks: int, file: str
) -> dict[str, SafeTensor]:
    found = {}
    for j in range(blocks):
        for part in ("weight", "bias"):
            name = f"{k}.{j}.linear.{part}"
            if name not in theirs:
                raise ModelFileError(f"{file} lacks {name}")
            found[f"res.{j}.{part}"] = theirs[name]
    output = theirs.get(f"{k}.{blocks}.weight") or theirs.get(f"lm_heads.{k}.weight")
    return found if output is None else found | {"output.weight": output}


def _blocks(head: Mapping[str, SafeTensor]) -> int:
    return sum(name.endswith(".bias") for name in head)


def _check(found: Heads, file: str, width: int, n_vocab: int, target: str) -> None:
    first = found[0]["res.0.weight"].shape
    if len(first) == 2 and first[0] == first[1] != width:
        raise DraftIncompatibleError(
            f"{file} was made for a hidden size of {first[0]}, and {target} has {width}"
        )
    for k, head in enumerate(found):
        for name, tensor in head.items():
            right = (width,) if name.endswith("bias") else (width, width)
            if name == "output.weight":
                right = (n_vocab, width)
                if tensor.shape != right and tensor.shape[1:] == (width,):
                    raise DraftIncompatibleError(
                        f"{file} was made for {tensor.shape[0]} tokens, and {target} has {n_vocab}"
                    )
            if tensor.shape != right:
                shown, wanted = ("x".join(map(str, s or (1,))) for s in (tensor.shape, right))
                raise ModelFileError(f"{name} of head {k} in {file} is {shown}, not {wanted}")


def _tensor(name: str, stored: SafeTensor, matrix: int, cancelled: Cancelled) -> Tensor:
    if name.endswith("bias"):
        return Tensor(name, stored.shape, _F32, partial(_parts, stored, _as_f32, cancelled))
    convert = _as_q8_0 if matrix == TYPES["q8_0"] else _as_f16
    return Tensor(name, stored.shape[::-1], matrix, partial(_parts, stored, convert, cancelled))


def _parts(
    stored: SafeTensor,
    convert: Callable[[NDArray[np.float32]], bytes],
    cancelled: Cancelled,
) -> Iterator[bytes]:
    for begin in range(0, stored.shape[0], _ROWS):
        if cancelled():
            raise Interrupted("interrupted; no draft was written")
        rows = stored.rows(begin, min(begin + _ROWS, stored.shape[0]))
        if not (np.abs(rows) <= _LARGEST).all():
            raise ModelFileError(f"{stored.name} has numbers that are not finite, or too large")
        yield convert(rows)


def _as_f32(rows: NDArray[np.float32]) -> bytes:
    return rows.astype("<f4").tobytes()


def _as_f16(rows: NDArray[np.float32]) -> bytes:
    return rows.astype("<f2").tobytes()


def _as_q8_0(rows: NDArray[np.float32]) -> bytes:
    """Blocks of 32 numbers: a scale in float16, and whole numbers of one byte."""
    blocks = rows.reshape(-1, _BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    steps = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    packed = np.empty((len(blocks), 2 + _BLOCK), np.uint8)
    packed[:, :2] = scales.astype("<f2").view(np.uint8)
    packed[:, 2:] = np.rint(steps).astype(np.int8).view(np.uint8)
    return packed.tobytes()


def _write(where: Path, metadata: Mapping[str, str | int], tensors: Sequence[Tensor]) -> None:
    needed, free = total(tensors), shutil.disk_usage(where.parent).free
    if free < needed:
        raise LocalspecError(
            f"the draft needs {needed / 1e9:.1f} GB and {where.parent} has {free / 1e9:.1f} GB "
            "free; free some space, or name another place with --output"
        )
    partial_file = unfinished(where)
    try:
        with partial_file.open("wb") as file:
            write_gguf(file, metadata, tensors)
        partial_file.replace(where)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise LocalspecError(f"the disk of {where.parent} is full") from None
        raise LocalspecError(f"cannot write {where}: {error.strerror}") from None
    finally:
        partial_file.unlink(missing_ok=True)
