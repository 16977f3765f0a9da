"""Checks of DFlash heads by their headers."""

from __future__ import annotations

from localspec.models.compat.head_checks import (
    borrowing_problem,
    invalid_head,
    layers_problem,
    missing,
    other_size,
)
from localspec.models.gguf.header import Header

_MOST = 64
"""Rows of logits of one pass at most."""
_TENSORS = ("fc", "enc.output_norm", "output_norm")
_BLOCK = (
    *("attn_norm", "attn_q", "attn_k", "attn_output", "attn_q_norm", "attn_k_norm"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)
_OTHER_KINDS = {
    "markov_w1.weight": "a DSpark head, whose tokens depend on each other",
    "selector_hidden.weight": "a DFlash 2 head, whose tokens are chosen by a lattice",
}
"""Tensors that only other kinds of DFlash heads have."""


def problem(head: Header, target: Header) -> str | None:
    """Why a head cannot draft for a target; None if it can."""
    damage = invalid_head(head)
    if damage is not None:
        return damage
    other = next((kind for tensor, kind in _OTHER_KINDS.items() if tensor in head.named), None)
    if other is not None or head.of_model("hyper_connection.count"):
        return f"it is {other or 'a head with hyper-connections'}; this version does not run those"
    unread = layers_problem(head, target)
    if unread is not None:
        return unread
    if head.n_embd != target.n_embd:
        return other_size(head.n_embd, target)
    return _block_problem(head, target) or borrowing_problem(head, target)


def _block_problem(head: Header, target: Header) -> str | None:
    block, mask = head.of_model("block_size") or 0, head.integer("tokenizer.ggml.mask_token_id")
    if not 2 <= block <= _MOST:
        return f"it states blocks of {block} tokens; 2 to {_MOST} are possible"
    if mask is None or not 0 <= mask < target.n_vocab:
        return f"its mask is token {mask}, and {target.name} has {target.n_vocab} tokens"
    parts = [*_TENSORS, *(f"blk.{i}.{part}" for i in range(head.n_layer) for part in _BLOCK)]
    return missing(head, [f"{part}.weight" for part in parts])
