"""Drafting heads: the kind of a file, and why a head cannot draft for a target.

All checks read GGUF headers, before llama.cpp opens the files: several wrong uses of a head abort
the process instead of failing (a missing layer, a layer whose input the architecture does not
publish). The lists name what the pinned llama.cpp can do (its src/models, src/llama-arch.cpp).
"""

from __future__ import annotations

from localspec.core import drafter_registry
from localspec.core.drafter_registry import DFLASH, EAGLE3, MODEL, MTP, Family
from localspec.core.errors import UnsupportedModelError
from localspec.models.compat import gemma_assistant
from localspec.models.compat.head_checks import (
    FOREIGN,
    borrowing_problem,
    borrows_output,
    cut_short,
    invalid_head,
    layers_problem,
    missing,
    other_size,
    unsupported_type,
)
from localspec.models.compat.header_vocabulary import HeaderVocabulary, ids_mismatch
from localspec.models.gguf.header import Header

HEAD_KINDS = tuple(spec.file for spec in drafter_registry.of(Family.HEAD) if spec.file)
"""Kinds of head files that this version runs, named as the drafters that use them."""
_ARCHITECTURES = frozenset(HEAD_KINDS) - {MTP}
"""Head files that are known by their architecture alone."""

_MTP_GRAPHS = frozenset(
    {
        *("bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa"),
        *("glm4moe", "hy_v3", "mimo2", "nemotron_h_moe", "qwen35", "qwen35moe"),
        *("qwen3next", "step35"),
    }
)
"""Architectures whose graph has a layer for multi-token prediction."""
_CHAINED = frozenset({"hy_v3", "mimo2", "step35"})
"""Architectures whose graph has a layer for each of several tokens; others abort on several."""
_MORE_TENSORS: dict[str, tuple[str, ...]] = {
    "deepseek2": ("ffn_gate_inp", "attn_q_a"),
    "deepseek32": ("ffn_gate_inp",),
    "glm-dsa": ("ffn_gate_inp",),
    "glm4moe": ("ffn_gate_inp",),
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down"),
}
"""Further tensors that these layers must have: the graphs require experts, or forbid them."""
_MLA = ("attention.key_length_mla", "attention.value_length_mla")
_EAGLE_LAYERS = 3
_EAGLE_TENSORS = (
    *("fc.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight"),
    *("blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"),
    *("blk.0.attn_output.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight"),
    *("blk.0.ffn_up.weight", "blk.0.ffn_down.weight"),
)


def kind(header: Header) -> str:
    """Kind of a draft file: one of the kinds above, or the architecture of an unsupported head."""
    arch = header.architecture
    if shares_cache(header):
        return MTP
    if arch in _ARCHITECTURES or arch in FOREIGN or arch.endswith("-assistant"):
        return arch
    if states_mtp(header) and not _has_trunk(header):
        return MTP
    return MODEL


def require_model(header: Header) -> None:
    """Check that a file is not a head; a head that is loaded as a model may abort the process.

    Raises:
        UnsupportedModelError: it is a head.
    """
    if kind(header) != MODEL:
        raise UnsupportedModelError(
            f"{header.name} is a head ({header.architecture}) and cannot run alone; name the model "
            "that it was made for, and it with --draft"
        )


def shares_cache(header: Header) -> bool:
    """Whether a head reads the target's KV cache instead of its own."""
    return header.architecture == gemma_assistant.ARCHITECTURE


def worker_problem(head: Header) -> str | None:
    """Why a head, which is computed on this machine, cannot draft for a target on workers; None if
    it can. llama.cpp aborts where a graph here has a tensor that is there.
    """
    if shares_cache(head):
        uses = "KV cache"
    elif head.architecture in {EAGLE3, DFLASH} and borrows_output(head):
        uses = "output matrix"
    else:
        return None
    return f"{head.name} uses the {uses} of its target, which workers have"


def states_mtp(header: Header) -> bool:
    """Whether the header states layers for multi-token prediction."""
    return header.next_layers > 0 and not header.architecture.endswith("-assistant")


def carries_mtp(header: Header) -> bool:
    """Whether a target has a usable layer for multi-token prediction."""
    return states_mtp(header) and mtp_problem(header) is None


def mtp_problem(header: Header) -> str | None:
    """Why the stated layer for multi-token prediction cannot be used; None if it can."""
    arch, name = header.architecture, header.name
    if arch not in _MTP_GRAPHS:
        return f"this llama.cpp cannot run the MTP layer of {name} ({arch})"
    layers = header.next_layers
    if layers != 1 and arch not in _CHAINED:
        return f"{name} has {layers} MTP layers, and this llama.cpp runs a single one of {arch}"
    parts = (
        *("nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_norm"),
        *_MORE_TENSORS.get(arch, ()),
    )
    blocks = range(header.trunk, header.n_layer)
    wanted = [f"blk.{block}.{part}.weight" for block in blocks for part in parts]
    for block in blocks:  # one tensor of a dense part requires the others
        dense = [f"blk.{block}.{part}.weight" for part in ("ffn_up", "ffn_down")]
        if header.named.keys() & {f"blk.{block}.ffn_gate.weight", *dense}:
            wanted += dense
    lacking = next((n for n in wanted if n not in header.named), None)
    if lacking is not None:
        what = "an MTP layer" if layers == 1 else f"{layers} MTP layers"
        return f"{name} states {what}, and lacks {lacking}"
    if arch == "deepseek2" and not all(header.of_model(key) for key in _MLA):
        return f"this llama.cpp cannot run the MTP layer of {name}: it states no {_MLA[0]}"
    scaled = header.metadata.get(f"{arch}.attention.temperature_scale")
    if arch == "deepseek2" and scaled:
        return f"this llama.cpp cannot run the MTP layer of {name}: it scales attention"
    theirs = tuple(f"blk.{block}." for block in blocks)
    wrong = unsupported_type(t for t in header.tensors if t.name.startswith(theirs))
    return None if wrong is None else f"the MTP layer of {name} cannot run: {wrong}"


def corrected_metadata(header: Header) -> dict[str, int]:
    """Corrected metadata where a header states layers for multi-token prediction, and the file has
    no tensor of them; empty where nothing is wrong.
    """
    theirs = tuple(f"blk.{block}." for block in range(header.trunk, header.n_layer))
    if not states_mtp(header) or any(t.name.startswith(theirs) for t in header.tensors):
        return {}
    arch = header.architecture
    return {f"{arch}.nextn_predict_layers": 0, f"{arch}.block_count": header.trunk}


def head_problem(head: Header, target: Header) -> str | None:
    """Why a head cannot draft for a target; None if it can."""
    what = kind(head)
    if what in FOREIGN:
        return f"it is {FOREIGN[what]}; this version does not run those"
    if what.endswith("-assistant"):
        return f"it is a head that shares the target's cache ({what}); this version does not run it"
    spec = drafter_registry.by_file(what)
    check = spec.checker() if spec is not None else None
    return check and (check(head, target) or _vocabulary_problem(head, target))


def why_incompatible(target: Header, draft: Header) -> str | None:
    """Why a draft model or head cannot draft for a target; None if it can."""
    if kind(draft) != MODEL:
        return cut_short(draft) or head_problem(draft, target)
    from localspec.models.compat import (
        token_map,  # imports numpy, which lists of models do not need
    )

    return token_map.why_incompatible(HeaderVocabulary(target), HeaderVocabulary(draft))


def state_width(target: Header) -> int:
    """Width of the hidden state that layers for multi-token prediction read: the residual stream,
    or all streams of a model with hyper-connections.
    """
    stated = target.of_model("embedding_length_out")
    return stated or target.n_embd * (target.of_model("hyper_connection.count") or 1)


def chains_only(header: Header) -> bool:
    """Whether the head in a file cannot draft trees: it shares the target's cache, or each of its
    layers predicts one fixed distance ahead.
    """
    return shares_cache(header) or header.next_layers > 1


def _has_trunk(header: Header) -> bool:
    return "blk.0.attn_norm.weight" in header.named


def eagle3_problem(head: Header, target: Header) -> str | None:
    """Why an EAGLE-3 head cannot draft for a target; None if it can."""
    if damage := invalid_head(head):
        return damage
    layers = head.metadata.get("eagle3.target_layers")
    if not isinstance(layers, tuple) or len(layers) != _EAGLE_LAYERS:
        return f"it names {layers!r} as the target's layers; three are needed"
    if unread := layers_problem(head, target):
        return unread
    size = head.of_model("target_hidden_size")
    if size != target.n_embd:
        return other_size(size, target)
    if head.of_model("embedding_length_out") not in {None, 0, head.n_embd}:
        return f"its states are of another width than the {head.n_embd} that it continues from"
    return missing(head, _EAGLE_TENSORS) or borrowing_problem(head, target)


def mtp_sidecar_problem(head: Header, target: Header) -> str | None:
    """Why a file of multi-token prediction cannot draft for a target; None if it can."""
    if shares_cache(head):
        return invalid_head(head) or gemma_assistant.problem(head, target)
    if head.architecture != target.architecture:
        return f"it belongs to a model of {head.architecture}, not of {target.architecture}"
    if head.n_embd != target.n_embd:
        return other_size(head.n_embd, target)
    if head.trunk != target.trunk:
        return (
            f"it was made for a model of {head.trunk} layers, and {target.name} has {target.trunk}"
        )
    return mtp_problem(head) or unsupported_type(head.tensors)


def _vocabulary_problem(head: Header, target: Header) -> str | None:
    """Why the vocabulary of a head, if it has one, is not the target's; None if it is.

    bos and eos are not compared: only the target uses them, and files of a family differ in them.
    """
    if not head.tokens:
        return None
    return ids_mismatch(HeaderVocabulary(target), HeaderVocabulary(head))
