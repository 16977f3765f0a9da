"""Checks of Medusa heads by their headers. Their GGUF format is ours; llama.cpp never opens it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from localspec.models.compat.head_checks import other_size
from localspec.models.gguf.ggml_types import MULTIPLIED, type_name
from localspec.models.gguf.header import Header, TensorInfo
from localspec.models.gguf.sizes import Sizes

ARCHITECTURE = "medusa"
MOST_HEADS, MOST_BLOCKS = 63, 8
_ADDED = frozenset({"F32"})


def shape(head: Header) -> tuple[int, int]:
    """Number of heads in a file, and number of residual blocks of each."""
    return head.of_model("heads") or 0, head.of_model("blocks") or 1


def matrix(k: int, j: int) -> str:
    """Name of the matrix of a head's j-th residual block."""
    return f"medusa.{k}.res.{j}.weight"


def bias(k: int, j: int) -> str:
    """Name of the bias of a head's j-th residual block."""
    return f"medusa.{k}.res.{j}.bias"


def output(k: int) -> str:
    """Name of a head's own output matrix, which is optional."""
    return f"medusa.{k}.output.weight"


def borrowed(target: Header) -> str:
    """Name of a target's output matrix, which may be its embeddings."""
    return "output.weight" if "output.weight" in target.named else "token_embd.weight"


def sizes(head: Header, target: Header) -> Sizes:
    """Sizes of heads; where they use the target's output matrix, they have a copy of it."""
    count, _ = shape(head)
    weights, shared = head.weight_bytes, target.named.get(borrowed(target))
    if shared is not None and not all(output(k) in head.named for k in range(count)):
        weights += shared.n_bytes
    return Sizes(
        name=head.name,
        outputs=weights,
        n_vocab=head.of_model("vocab_size") or 0,
        width=head.n_embd,
    )


def problem(head: Header, target: Header) -> str | None:
    """Why heads cannot draft for a target; None if they can."""
    if head.n_embd != target.n_embd:
        return other_size(head.n_embd, target)
    count, blocks = shape(head)
    if not 1 <= count <= MOST_HEADS or not 1 <= blocks <= MOST_BLOCKS:
        return f"it states {count} heads of {blocks} blocks, which is not possible"
    stated = head.of_model("vocab_size")
    if stated != target.n_vocab:
        return f"it was made for {stated} tokens, and {target.name} has {target.n_vocab}"
    return next(_problems(head, target, count, blocks), None)


def _problems(head: Header, target: Header, count: int, blocks: int) -> Iterator[str]:
    width, named = target.n_embd, head.named
    for k in range(count):
        for j in range(blocks):
            yield from _mismatches(named, matrix(k, j), (width, width), MULTIPLIED)
            yield from _mismatches(named, bias(k, j), (width,), _ADDED)
        if output(k) in named:
            yield from _mismatches(named, output(k), (width, target.n_vocab), MULTIPLIED)
    if not all(output(k) in named for k in range(count)):
        theirs = borrowed(target)
        for found in _mismatches(target.named, theirs, (width, target.n_vocab), MULTIPLIED):
            yield f"it uses the output matrix of {target.name}: {found}"


def _mismatches(
    named: Mapping[str, TensorInfo], name: str, wanted: tuple[int, ...], types: frozenset[str]
) -> Iterator[str]:
    tensor = named.get(name)
    if tensor is None:
        yield f"it lacks {name}"
    elif tensor.shape != wanted:
        found, right = ("x".join(map(str, s)) for s in (tensor.shape, wanted))
        yield f"{name} is {found}, and should be {right}"
    elif type_name(tensor.ggml_type) not in types:
        yield f"{name} is {type_name(tensor.ggml_type)}, which cannot be computed with"
