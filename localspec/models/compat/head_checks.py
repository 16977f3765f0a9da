"""What several kinds of heads have in common: checks by headers, and reasons why one cannot draft.

EAGLE-3 and DFlash heads borrow tensors from their target and have reduced vocabularies. llama.cpp
uses the target's matrices in the head's graph without comparing sizes.
"""

from __future__ import annotations

from collections.abc import Iterable

from localspec.models.gguf.ggml_types import MULTIPLIED, type_name
from localspec.models.gguf.header import Header, TensorInfo

VOCABULARY_MAP = "d2t"
"""Tensor of a head with a reduced vocabulary: the target's id of each of its tokens."""

FOREIGN = {
    "dflash-draft": "a DFlash head of another program",
    "qwen35-dflash-draft": "a DFlash head of another program",
    "dspark": "a DSpark head",
}
"""Architectures of heads that this version does not run."""
_LAYER_INPUTS = frozenset(
    {
        *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "lfm2", "llama", "mimo2"),
        *("minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe"),
        *("qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp"),
    }
)
"""Architectures that publish the inputs of their layers; others abort when asked for them."""
_WIDE_INPUTS = frozenset({"qwen4exp"})
"""Architectures whose layers take all streams of hyper-connections, not one. llama.cpp reads as
many numbers as one stream has, and aborts where there are more.
"""


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


def borrowing_problem(head: Header, target: Header) -> str | None:
    """Why embeddings or output matrix, the head's own or the target's, have the wrong size."""
    return _embeddings(head, target) or _output(head, target) or _reduced_vocabulary(head)


def borrows_output(head: Header) -> bool:
    """Whether an EAGLE-3 or DFlash head uses the output matrix of its target."""
    return "output.weight" not in head.named


def _embeddings(head: Header, target: Header) -> str | None:
    own = _rows(head, "token_embd.weight")
    if own is None:
        return _too_wide(head, target, "embeddings", "are")
    wanted = min(head.n_vocab, target.n_vocab)
    return f"it has embeddings of {own} tokens, and reads {wanted}" if own < wanted else None


def _output(head: Header, target: Header) -> str | None:
    if not borrows_output(head):
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
    token_map = head.named.get(VOCABULARY_MAP)
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
    return head.named[name].shape[-1] if name in head.named else None


def _too_wide(head: Header, target: Header, what: str, verb: str) -> str | None:
    if head.n_embd == target.n_embd:
        return None
    return (
        f"it uses the {what} of the target, which {verb} {target.n_embd} wide, and its own width "
        f"is {head.n_embd}"
    )


def target_layers(head: Header) -> tuple[int, ...]:
    """Layers of the target whose inputs a head reads; empty for most kinds."""
    value = head.metadata.get(f"{head.architecture}.target_layers")
    return value if isinstance(value, tuple) and all(isinstance(i, int) for i in value) else ()


def layers_problem(head: Header, target: Header) -> str | None:
    """Why a head cannot read what enters layers of the target; None if it can."""
    if target.architecture not in _LAYER_INPUTS:
        return (
            f"this llama.cpp does not publish the inputs of the layers of {target.name} "
            f"({target.architecture})"
        )
    streams = target.of_model("hyper_connection.count") or 1
    if target.architecture in _WIDE_INPUTS and streams > 1:
        return (
            f"this llama.cpp cannot read the inputs of the layers of {target.name} "
            f"({target.architecture}): its layers pass on {streams} streams"
        )
    layers, trunk = target_layers(head), target.trunk
    if not layers or not all(0 <= i < trunk for i in layers):
        shown = ", ".join(map(str, layers)) or "none"
        return f"it reads what enters the layers {shown}, and {target.name} has {trunk} layers"
    return None


def other_size(size: int | None, target: Header) -> str:
    """The reason that a head was made for a target of another width."""
    return f"it was made for a hidden size of {size}, and {target.name} has {target.n_embd}"


def missing(head: Header, names: Iterable[str]) -> str | None:
    """The reason that a file lacks one of these tensors; None if it has all."""
    lacking = next((name for name in names if name not in head.named), None)
    return None if lacking is None else f"it lacks {lacking}"
