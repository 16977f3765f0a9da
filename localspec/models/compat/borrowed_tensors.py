"""Tensors that EAGLE-3 and DFlash heads borrow from their target, and reduced vocabularies.

llama.cpp uses the target's matrices in the head's graph without comparing sizes.
"""

from __future__ import annotations

from localspec.models.compat.sanity import VOCABULARY_MAP
from localspec.models.gguf.ggml_types import type_name
from localspec.models.gguf.header import Header


def borrowing_problem(head: Header, target: Header) -> str | None:
    """Why embeddings or output matrix, the head's own or the target's, have the wrong size."""
    return _embeddings(head, target) or _output(head, target) or _reduced_vocabulary(head)


def borrows_output(head: Header) -> bool:
    """Whether an EAGLE-3 or DFlash head uses the output matrix of its target."""
    return _rows(head, "output.weight") is None


def _embeddings(head: Header, target: Header) -> str | None:
    own = _rows(head, "token_embd.weight")
    if own is None:
        return _too_wide(head, target, "embeddings", "are")
    wanted = min(head.n_vocab, target.n_vocab)
    return f"it has embeddings of {own} tokens, and reads {wanted}" if own < wanted else None


def _output(head: Header, target: Header) -> str | None:
    if _rows(head, "output.weight") is not None:
        return None
    wide = _too_wide(head, target, "output matrix", "is")
    if wide is None and head.tokens and head.n_vocab != target.n_vocab:
        return (
            f"it uses the output matrix of the target, which is for {target.n_vocab} tokens, and "
            f"its own vocabulary has {head.n_vocab}"
        )
    return wide


def _reduced_vocabulary(head: Header) -> str | None:
    """Why the token map of a reduced vocabulary does not match the head's logits."""
    token_map = next((tensor for tensor in head.tensors if tensor.name == VOCABULARY_MAP), None)
    if token_map is None:
        return None
    logits = _rows(head, "output.weight")
    if logits is None:
        return f"it has {VOCABULARY_MAP} for a vocabulary of its own, and lacks output.weight"
    if type_name(token_map.ggml_type) != "I64" or token_map.shape != (logits,):
        return f"it has logits for {logits} tokens, and {VOCABULARY_MAP} has another length"
    return None


def _rows(head: Header, name: str) -> int | None:
    """Tokens in a matrix of a head; None if the head lacks it."""
    shape = next((tensor.shape for tensor in head.tensors if tensor.name == name), None)
    return None if shape is None else shape[-1]


def _too_wide(head: Header, target: Header, what: str, verb: str) -> str | None:
    if head.n_embd == target.n_embd:
        return None
    return (
        f"it uses the {what} of the target, which {verb} {target.n_embd} wide, and its own width "
        f"is {head.n_embd}"
    )
