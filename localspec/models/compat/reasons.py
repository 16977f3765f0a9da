"""Reasons why a head cannot draft for a target, common to several kinds of heads."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.models.gguf.header import Header

_LAYER_INPUTS = frozenset(
    {
        *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "lfm2", "llama", "mimo2"),
        *("minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe"),
        *("qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp"),
    }
)
"""Architectures that publish the inputs of their layers; others abort when asked for them."""


def target_layers(head: Header) -> tuple[int, ...]:
    """Layers of the target whose inputs a head reads; empty for most kinds."""
    value = head.metadata.get(f"{head.architecture}.target_layers")
    whole = isinstance(value, tuple) and all(isinstance(i, int) for i in value)
    return tuple(int(i) for i in value) if whole and isinstance(value, tuple) else ()


def unpublished(target: Header) -> str | None:
    """The reason if llama.cpp does not publish the inputs of a target's layers; None if it does."""
    if target.architecture in _LAYER_INPUTS:
        return None
    return (
        f"this llama.cpp does not publish the inputs of the layers of {target.name} "
        f"({target.architecture})"
    )


def other_size(size: int | None, target: Header) -> str:
    """The reason that a head was made for a target of another width."""
    return f"it was made for a hidden size of {size}, and {target.name} has {target.n_embd}"


def missing(head: Header, names: Iterable[str]) -> str | None:
    """The reason that a file lacks one of these tensors; None if it has all."""
    named = {tensor.name for tensor in head.tensors}
    lacking = [name for name in names if name not in named]
    return f"it lacks {lacking[0]}" if lacking else None
