"""Which drafters a request is for, and what of the files they need."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.heading import HEADS, Brought
from localspec.llama.model import Model
from localspec.options import Options

WITH_A_MODEL = frozenset({"model", "tree"})
"""Drafters that use a draft model."""
_BRANCHES = {"tree": 8, "lookahead": 15, "medusa": 8}
"""Leaves of a draft tree beyond the first, by drafter."""


def wanted(options: Options, files: Brought) -> tuple[str, ...]:
    """Names of drafters, in order of preference."""
    if options.draft_max == 0:
        return ("off",)
    return options.drafter or ("suffix", files.best(options))


def uses_draft(names: Sequence[str], files: Brought) -> bool:
    """Whether one of these drafters needs the draft file."""
    return any(
        name in WITH_A_MODEL or (name in HEADS and not files.in_target(name)) for name in names
    )


def must_fit(options: Options, files: Brought) -> bool:
    """Whether it is an error if there is no memory for the draft file: a model that was named, or a
    head that was insisted on. Without a head the text drafts.
    """
    if files.kind in HEADS:
        return options.require_draft or bool(HEADS & {*(options.drafter or ())})
    return options.require_draft or options.draft is not None


def insists_on(name: str, options: Options) -> bool:
    """Whether it is an error if the head that a drafter is called after cannot draft."""
    return options.require_draft or name in (options.drafter or ())


def branches(names: Sequence[str], model: Model, notices: list[str]) -> int:
    """Sequences that the model's context needs for draft trees; none where nobody drafts them."""
    most = max((_BRANCHES.get(name, 0) for name in names), default=0)
    if most and not model.branching:
        notices.append(
            f"{model.path.name} keeps a cache that cannot branch: drafting chains, not trees"
        )
        return 0
    return most


__all__ = ["WITH_A_MODEL", "branches", "insists_on", "must_fit", "uses_draft", "wanted"]
