"""LoRA adapters and control vectors: whether a file is one, and fits, before llama.cpp opens it.
It checks little itself, and ends the process where a tensor cannot be computed with.

An adapter as llama.cpp's ``llama_adapter_lora_init_impl`` has it: pairs of tensors ``NAME.lora_a``
(in, rank) and ``NAME.lora_b`` (rank, out), added to the matrix NAME of the model (Hu et al. 2021,
"LoRA"). A vector as its ``common_control_vector_load`` has it: tensors ``direction.N`` of as many
float32 numbers as the model's states have, added to the output of layer N (Vogel 2024, "repeng").
"""

from __future__ import annotations

import math
import re
import struct

from localspec.core.errors import ModelFileError, UsageError
from localspec.models.compat.head_checks import cut_short
from localspec.models.gguf.ggml_types import MULTIPLIED, type_name
from localspec.models.gguf.header import Header, TensorInfo, raw_metadata
from localspec.models.gguf.model_file import ModelFile

_A, _B = ".lora_a", ".lora_b"
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_UNUSED = "_norm.weight"
"""Vectors that llama.cpp leaves out."""
_INVOKED = "adapter.alora.invocation_tokens"
_ALPHA = "adapter.lora.alpha"
_FLOAT32 = struct.pack("<I", 6)
"""The tag of a float32 in the metadata of a GGUF, which stands before its value."""

DIRECTION = re.compile(r"direction\.([1-9][0-9]{0,4})")
_F32 = 0


def require_fitting(adapter: ModelFile, target: ModelFile) -> None:
    """Refuse an adapter that is none, or of another model.

    Raises:
        ModelNotFoundError, ModelFileError: there is none, it is damaged, or no GGUF.
        UsageError: it is something else, or of another model; with the first thing that differs.
    """
    header, name = adapter.header, adapter.name
    if header.text("general.type") != "adapter":
        raise UsageError(f"{name} is no adapter but a {header.text('general.type') or 'model'}")
    if header.text("adapter.type") != "lora":
        raise UsageError(
            f"{name} is an adapter of the kind {header.text('adapter.type')}; localspec takes LoRA"
        )
    if _INVOKED in header.metadata:
        raise UsageError(
            f"{name} is an activated LoRA, which begins in the middle of a prompt; localspec takes "
            "adapters that hold for all of it"
        )
    if header.architecture != target.header.architecture:
        raise UsageError(
            f"{name} is for {header.architecture} models, and {target.name} is "
            f"{target.header.architecture}"
        )
    if len(adapter.paths) > 1 or header.shards > 1:  # llama.cpp would read this file alone
        raise UsageError(f"{name} is a part of a split file; an adapter must be one file")
    if short := cut_short(header):
        raise ModelFileError(short)
    _require_alpha(adapter)
    _require_tensors(name, header, target)


def _require_alpha(adapter: ModelFile) -> None:
    raw = raw_metadata(adapter.path).get(_ALPHA)
    if raw is None:  # the scale is that of the request alone
        return
    if raw[:4] != _FLOAT32 or not math.isfinite(struct.unpack("<f", raw[4:])[0]):
        raise ModelFileError(f"{adapter.name} has an alpha that is no number; convert it again")


def _require_tensors(name: str, header: Header, target: ModelFile) -> None:
    matrices = target.header.named
    for base, pair in _pairs(name, header).items():
        if len(pair) < 2:
            raise ModelFileError(f"{name} has one half of {base} alone; convert the adapter again")
        if base not in matrices:
            raise UsageError(f"{name} adapts {base}, which {target.name} does not have")
        if base == _EMBEDDING and _OUTPUT not in matrices:
            raise UsageError(
                f"{name} adapts {base}, which is the output matrix of {target.name} too; llama.cpp "
                "cannot compute that"
            )
        _require_types(name, pair[_A], pair[_B])
        _require_shapes(name, matrices[base], pair[_A], pair[_B], target.name)


def _pairs(name: str, header: Header) -> dict[str, dict[str, TensorInfo]]:
    """The tensors by the matrix that they adapt, and by their end."""
    pairs: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        for end in (_A, _B):
            if tensor.name.endswith(end):
                pairs.setdefault(tensor.name.removesuffix(end), {})[end] = tensor
                break
        else:
            if not tensor.name.endswith(_UNUSED):
                raise UsageError(f"{name} has the tensor {tensor.name}, which no LoRA has")
    if not pairs:
        raise UsageError(f"{name} has no tensors of an adapter")
    return pairs


def _require_types(name: str, *tensors: TensorInfo) -> None:
    for tensor in tensors:
        found = type_name(tensor.ggml_type)
        if found not in MULTIPLIED:
            raise UsageError(
                f"{tensor.name} of {name} is {found}, which cannot be computed with; convert it "
                "again"
            )


def _require_shapes(name: str, base: TensorInfo, a: TensorInfo, b: TensorInfo, of: str) -> None:
    into, out = base.shape[0], base.shape[1] if len(base.shape) > 1 else 1
    if base.name == _EMBEDDING:  # the two are the other way round there
        fits = _at(b, 1) == into and _at(a, 1) == out and _at(a, 0) == _at(b, 0)
    else:
        fits = _at(a, 0) == into and _at(b, 1) == out and _at(a, 1) == _at(b, 0)
    if not fits or any(not _at(base, i) == _at(a, i) == _at(b, i) for i in (2, 3)):
        raise UsageError(
            f"{name} adapts {base.name} with {_shape(a)} and {_shape(b)}, which does not fit the "
            f"{_shape(base)} of {of}: it is of another model"
        )


def _at(tensor: TensorInfo, dimension: int) -> int:
    return tensor.shape[dimension] if len(tensor.shape) > dimension else 1


def _shape(tensor: TensorInfo) -> str:
    return "x".join(map(str, tensor.shape))


def require_fitting_vector(vector: ModelFile, target: ModelFile) -> None:
    """Refuse a control vector that is none, or of another model.

    Raises:
        ModelNotFoundError, ModelFileError: there is none, it is damaged, or no GGUF.
        UsageError: it is something else, or of another model; with the first thing that differs.
    """
    header, name = vector.header, vector.name
    if header.architecture != "controlvector":
        raise UsageError(f"{name} is no control vector but of the kind {header.architecture}")
    of = target.header
    width, layers = of.of_model("embedding_length"), of.of_model("block_count")
    if not header.tensors:
        raise UsageError(f"{name} has no directions")
    for tensor in header.tensors:
        match = DIRECTION.fullmatch(tensor.name)
        if match is None:
            raise UsageError(f"{name} has the tensor {tensor.name}, which no control vector has")
        if tensor.ggml_type != _F32:
            raise UsageError(f"{tensor.name} of {name} is not of float32 numbers")
        if tensor.shape != (width,):
            shape = "x".join(map(str, tensor.shape))
            raise UsageError(
                f"{tensor.name} of {name} has {shape} numbers, and the states of {target.name} "
                f"have {width}: it is of another model"
            )
        if layers is not None and int(match[1]) >= layers:
            raise UsageError(
                f"{name} is for layer {match[1]}, and {target.name} has the layers 0 to "
                f"{layers - 1}: it is of another model"
            )
