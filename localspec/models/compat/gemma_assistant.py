"""Checks of Gemma 4's assistants by their headers.

llama.cpp lets their attention read the target's keys and values without comparing sizes.
"""

from __future__ import annotations

from localspec.models.compat.head_checks import missing, other_size
from localspec.models.gguf.header import Header

ARCHITECTURE = "gemma4-assistant"
_TARGET = "gemma4"
_TENSORS = (
    *("token_embd.weight", "output_norm.weight"),
    *("nextn.pre_projection.weight", "nextn.post_projection.weight"),
)
_BLOCK = (
    *("attn_norm", "attn_q", "attn_output", "attn_q_norm", "post_attention_norm"),
    *("layer_output_scale", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "post_ffw_norm"),
)


def problem(head: Header, target: Header) -> str | None:
    """Why an assistant cannot draft for a target; None if it can."""
    if target.architecture != _TARGET:
        return f"it belongs to a model of {_TARGET}, not of {target.architecture}"
    size, layers = head.of_model("embedding_length_out"), head.n_layer
    if size != target.n_embd:
        return other_size(size, target)
    if size == head.n_embd:
        return f"its own width is that of {target.name}, {size}, which this llama.cpp refuses"
    if not layers or head.next_layers != layers:
        return f"it has {layers} layers, {head.next_layers} of them for prediction; all must be"
    blocks = [f"blk.{i}.{part}.weight" for i in range(layers) for part in _BLOCK]
    return _cells_problem(head, target) or missing(head, (*_TENSORS, *blocks))


def _cells_problem(head: Header, target: Header) -> str | None:
    """Why a head cannot read the target's KV cache; None if it can.

    Its sliding layers read the cache of the last layer but one, its other layers that of the last.
    """
    ours, theirs = _sliding(head), _sliding(target)
    lengths = len(ours), len(theirs)
    if lengths != (head.n_layer, target.n_layer) or theirs[-2:] != (True, False):
        return "it does not say which of its layers slide as the last two of its target do"
    for slides in sorted({*ours}):
        mine, cached = _cell(head, ours.index(slides)), _cell(target, -2 if slides else -1)
        if mine != cached:
            return (
                f"it reads {_shown(mine)} from a layer, and {target.name} caches {_shown(cached)}"
            )
    return None


def _sliding(header: Header) -> tuple[bool, ...]:
    """Which layers use sliding-window attention; empty where the header does not list them."""
    value = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    return tuple(bool(v) for v in value) if isinstance(value, tuple) else ()


def _cell(header: Header, layer: int) -> tuple[int, int, int]:
    """Number of key heads of a layer, width of their keys, width of their values."""
    keys, values = header.key_length, header.value_length
    if _sliding(header)[layer]:
        keys = header.of_model("attention.key_length_swa") or keys
        values = header.of_model("attention.value_length_swa") or values
    return header.heads_kv()[layer], keys, values


def _shown(cell: tuple[int, int, int]) -> str:
    heads, keys, values = cell
    return f"{heads} key heads of {keys}" + (f", values of {values}" if values != keys else "")
