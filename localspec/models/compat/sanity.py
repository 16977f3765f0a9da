"""Checks of what llama.cpp assumes about head files and aborts on otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.models.gguf.ggml_types import MULTIPLIED, type_name
from localspec.models.gguf.header import Header, TensorInfo

VOCABULARY_MAP = "d2t"
"""Tensor of a head with a reduced vocabulary: the target's id of each of its tokens."""


def invalid_head(head: Header) -> str | None:
    """Why a head is invalid for any target; None if it is valid."""
    if not head.n_layer:
        return "it does not state how many layers it has"
    rotated = head.of_model("rope.dimension_count")
    if rotated is not None and (rotated < 2 or rotated % 2 or rotated > head.key_length):
        return f"it rotates {rotated} dimensions of keys that have {head.key_length}"
    return unsupported_type(head.tensors)


def unsupported_type(tensors: Iterable[TensorInfo]) -> str | None:
    """Why llama.cpp cannot compute with a tensor: its CPU code needs norms and biases in F32, and
    matrices of a type with matrix products. None if it can compute with all.
    """
    for tensor in tensors:
        found = type_name(tensor.ggml_type)
        if tensor.name == VOCABULARY_MAP:  # checked together with its length
            continue
        if len(tensor.shape) == 1 and found != "F32":
            return f"{tensor.name} is {found}; it must be F32"
        if found not in MULTIPLIED:
            return f"{tensor.name} is {found}, which cannot be computed with"
    return None


def cut_short(header: Header) -> str | None:
    """A line if a file ends before its tensors do; None if it does not, or if it is a shard."""
    if header.shards > 1 or header.size >= header.end:
        return None
    return f"{header.name} is cut short: {header.size} of {header.end} bytes; fetch it again"
