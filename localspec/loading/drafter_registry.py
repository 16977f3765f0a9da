"""Which drafters a pair is to have, and which of them may draft trees."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import Branching
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.loading.heads import HEADS, Brought
from localspec.loading.options import Options
from localspec.models.compat.heads import EAGLE3, MTP

WITH_A_MODEL = frozenset({"model", "tree"})
"""Drafters that need a draft model."""
_BRANCHES = {"tree": 8, "lookahead": 15, "medusa": 8, "mtp": 8, "eagle3": 8}
"""Leaves of a draft tree beyond the first, by drafter."""
BRANCHING = {
    "tree": Branching(),
    "lookahead": Branching(leaves=4, least=2),
    "medusa": Branching(),
    "mtp": Branching(leaves=2, misses=0.76),
    "eagle3": Branching(leaves=2, misses=0.76),
}
"""Drafters of trees."""


def wanted(options: Options, files: Brought) -> tuple[str, ...]:
    """Names of drafters, in order of preference; a tree is of what the pair brings."""
    if options.draft_max == 0:
        return ("off",)
    best = files.best(options)
    if options.drafter is None:
        return ("suffix", best)
    trees = best if best in _BRANCHES else "tree"
    return tuple(dict.fromkeys(trees if name == "tree" else name for name in options.drafter))


def broad(
    options: Options, names: Sequence[str], files: Brought, context: Context
) -> dict[str, Branching]:
    """How those drafters spend a budget that may draft trees on this target.

    A head drafts trees of a length that the person gave only where the person asked for a tree:
    what a length costs should not be many times more with a head than with a draft model.
    """
    if not context.branches:
        return {}
    held = options.draft_max is not None and "tree" not in (options.drafter or ())
    return {
        name: BRANCHING[name]
        for name in _growing(names, files)
        if name in BRANCHING and not (held and name in {MTP, EAGLE3})
    }


def uses_draft(names: Sequence[str], files: Brought) -> bool:
    """Whether one of these drafters needs the draft file."""
    return any(
        name in WITH_A_MODEL or (name in HEADS and not files.in_target(name)) for name in names
    )


def insists_on(options: Options) -> bool:
    """Whether it is an error if a head cannot draft; else the text does."""
    return options.require_draft or options.drafter is not None


def must_fit(options: Options, files: Brought) -> bool:
    """Whether it is an error if there is no memory for the draft file: a model that was named, or a
    head that was insisted on.
    """
    if files.kind in HEADS:
        return insists_on(options)
    return options.require_draft or options.draft is not None


def branches(
    options: Options, names: Sequence[str], files: Brought, model: Model, notices: list[str]
) -> int:
    """Sequences that the model's context needs for draft trees; none where nobody drafts them.

    Where trees were asked for and cannot be had, a notice says why.
    """
    most = max((_BRANCHES.get(name, 0) for name in _growing(names, files)), default=0)
    asked = {"tree", "lookahead", "medusa"} & {*names, *(options.drafter or ())}
    if most and not model.branching:
        if asked:
            notices.append(
                f"{model.path.name} keeps a cache that cannot branch: drafting chains, not trees"
            )
        return 0
    if asked and not most:
        notices.append(f"this kind of {', '.join(names)} head drafts chains, not trees")
    return most


def _growing(names: Sequence[str], files: Brought) -> list[str]:
    """Without heads that draft chains alone."""
    return [name for name in names if name not in HEADS or files.grows(name)]


__all__ = [
    "BRANCHING",
    "WITH_A_MODEL",
    "branches",
    "broad",
    "insists_on",
    "must_fit",
    "uses_draft",
    "wanted",
]
