"""Heads that llama.cpp would abort on: what it takes for granted about a file, looked at before."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.models.gguf.ggml_types import MULTIPLIED, type_name
from localspec.models.gguf.header import Header, TensorInfo

WORDS = "d2t"
"""Tensor of the target's ids that a head with a reduced vocabulary guesses among."""


def unsound(head: Header) -> str | None:
    """Why a head cannot be what it says, whatever its target is; None if nothing speaks against."""
    if not head.n_layer:
        return "it does not state how many layers it has"
    turned = head.of_model("rope.dimension_count")
    if turned is not None and (turned < 2 or turned % 2 or turned > head.key_length):
        return f"it turns {turned} numbers of keys that have {head.key_length}"
    return uncomputable(head.tensors)


def uncomputable(tensors: Iterable[TensorInfo]) -> str | None:
    """The first norm or bias that is not F32, as llama.cpp's processor code wants it, or matrix of
    a type that is not multiplied by.
    """
    for tensor in tensors:
        found = type_name(tensor.ggml_type)
        if tensor.name == WORDS:  # looked at where its length is
            continue
        if len(tensor.shape) == 1 and found != "F32":
            return f"{tensor.name} is {found}; it must be F32"
        if found not in MULTIPLIED:
            return f"{tensor.name} is {found}, which cannot be computed with"
    return None


def cut_short(header: Header) -> str | None:
    """That a file ends before its tensors do; None if not, or if it is one of several."""
    if header.shards > 1 or header.size >= header.end:
        return None
    return f"{header.name} is cut short: {header.size} of {header.end} bytes; fetch it again"


__all__ = ["WORDS", "cut_short", "uncomputable", "unsound"]
