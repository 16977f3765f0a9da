"""Which drafters a pair is to have, by the headers of its files, and which may draft trees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from localspec.core.drafter_registry import (
    MODEL,
    MTP,
    OFF,
    TREE,
    Branching,
    Family,
    any_of,
    by_file,
    get,
)
from localspec.core.errors import LocalspecError
from localspec.core.options import NO_DRAFT, Options
from localspec.models.compat import heads
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile


@dataclass(frozen=True, slots=True)
class PairHeaders:
    """The headers of a target and of its draft file."""

    target: Header
    draft: Header | None
    """None where there is no draft file, or its header cannot be read: loading it says why."""

    @property
    def kind(self) -> str | None:
        """The kind of the draft file, see `localspec.models.compat.heads`; None without one."""
        return None if self.draft is None else heads.kind(self.draft)

    def best(self, options: Options) -> str:
        """The drafter to prefer to those from text where the user names none."""
        if self.kind is not None:
            spec = by_file(self.kind)
            return spec.name if spec is not None else MODEL
        if options.draft != NO_DRAFT and heads.carries_mtp(self.target):
            return MTP
        return MODEL

    def unused_layer(self, options: Options) -> str | None:
        """Why the target's own layer for prediction is not used, where a user would expect it."""
        expected = self.best(options) == MODEL and options.draft != NO_DRAFT
        if not expected or options.drafter or not heads.states_mtp(self.target):
            return None
        return heads.mtp_problem(self.target)

    def in_target(self, drafter: str) -> bool:
        """Whether that drafter is a part of the target's own file."""
        spec = get(drafter)
        return bool(spec.built_in) and self.kind != spec.file

    def sidecar(self, drafter: str) -> Header | None:
        """The draft file that holds that head; None where the target's own file does."""
        return None if self.in_target(drafter) else self.draft

    def drafts_trees(self, drafter: str) -> bool:
        """Whether that drafter can draft trees for a target whose cache can branch."""
        spec = get(drafter)
        if spec.tree is None:
            return False
        return spec.family is not Family.HEAD or not heads.chains_only(
            self.sidecar(drafter) or self.target
        )

    def problem(self, drafter: str) -> str | None:
        """Why the draft file, or the target's own layer, cannot be used by that drafter; None if it
        can.
        """
        name, spec = self.target.name, get(drafter)
        if self.in_target(drafter):
            if not heads.states_mtp(self.target):
                return f"{name} carries no multi-token prediction layer"
            return heads.mtp_problem(self.target)
        if self.draft is None:
            return f"there is no {drafter} head for {name}; name its file with --draft"
        other = by_file(self.kind)
        if other is not None and other.file != spec.file:
            return f"{self.draft.name} is {other.described}, not {spec.described}"
        found = heads.head_problem(self.draft, self.target)
        return f"head {self.draft.name} cannot draft for {name}: {found}" if found else None


def read_headers(target: ModelFile, draft: ModelFile | None) -> PairHeaders:
    """Read the headers of a pair's files.

    Raises:
        ModelNotFoundError, ModelFileError: the target is not there or damaged.
        UnsupportedModelError: the target is a head itself; loading one as a model may abort.
    """
    heads.require_model(target.header)
    header = None
    if draft is not None:
        with contextlib.suppress(LocalspecError):  # loading it will say the same
            header = draft.header
    return PairHeaders(target.header, header)


@dataclass(frozen=True, slots=True)
class Branches:
    """Room for draft trees in a context."""

    count: int
    """Sequences beyond the first."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """The drafters that the options ask for, of those that the files allow."""

    options: Options
    headers: PairHeaders
    names: tuple[str, ...]
    """In order of preference."""

    @property
    def off(self) -> bool:
        """Whether nothing is to draft."""
        return OFF in self.names

    @property
    def in_target(self) -> bool:
        """Whether one of them is a part of the target's own file."""
        return any(self.headers.in_target(name) for name in self.names)

    @property
    def has_model(self) -> bool:
        """Whether one of them needs a draft model."""
        return any_of(self.names, Family.MODEL)

    @property
    def has_head(self) -> bool:
        """Whether one of them is a head."""
        return any_of(self.names, Family.HEAD)

    @property
    def has_lookup(self) -> bool:
        """Whether one of them copies from text."""
        return any_of(self.names, Family.LOOKUP)

    @property
    def uses_draft_file(self) -> bool:
        """Whether one of them needs the draft file."""
        return self.has_model or any(
            self._is_head(name) and not self.headers.in_target(name) for name in self.names
        )

    @property
    def insists_on_head(self) -> bool:
        """Whether it is an error if a head cannot draft; else text is drafted from."""
        return self.options.require_draft or self.options.drafter is not None

    @property
    def must_fit(self) -> bool:
        """Whether it is an error if there is no memory for the draft file: for a model that was
        named, or a head that was insisted on.
        """
        if self.headers.kind is not None and self._is_head(self.headers.best(self.options)):
            return self.insists_on_head
        return self.options.require_draft or self.options.draft is not None

    @property
    def asks_for_trees(self) -> bool:
        """Whether the user named a drafter that always drafts trees."""
        return any(
            (shape := get(name).tree) is not None and shape.always
            for name in (*self.names, *(self.options.drafter or ()))
        )

    def branches(self, model: str, *, can_branch: bool, sequences: int) -> Branches:
        """Room for trees in a context of that model for ``sequences`` requests at a time, and the
        reason where the user asked for trees and there is none.
        """
        shapes = [get(name).tree for name in self._drafting_trees(self.names)]
        most = max((shape.leaves for shape in shapes if shape is not None), default=0)
        asked = self.asks_for_trees
        chains = any(not get(name).needs_branching for name in self._drafting_trees(self.names))
        if most and (not can_branch or sequences > 1):
            why = f"{model} keeps a cache that cannot branch"
            if sequences > 1:
                why = "with several requests at a time every one has cells of its own"
            if self.options.strict:
                why = "strict mode keeps the tokens of a text in adjoining cells"
            told = f"{why}: {'drafting chains, not trees' if chains else 'no draft trees'}"
            return Branches(0, (told,) if asked else ())
        if asked and not most:
            told = f"this kind of {', '.join(self.names)} head drafts chains, not trees"
            return Branches(0, (told,))
        return Branches(most)

    def branching(self, drafters: Iterable[str], branches: int) -> dict[str, Branching]:
        """How those of ``drafters`` that may draft trees spend a budget, on a target with
        ``branches``.

        A head drafts trees of a length that the user gave only where the user asked for a tree:
        what a length costs should not be many times more with a head than with a draft model.
        """
        if not branches:
            return {}
        fixed = self.options.draft_max is not None and TREE not in (self.options.drafter or ())
        found = {}
        for name in self._drafting_trees(drafters):
            shape = get(name).tree
            if shape is not None and (shape.always or not fixed):
                found[name] = shape.branching
        return found

    def _drafting_trees(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.headers.drafts_trees(name)]

    def _is_head(self, name: str) -> bool:
        return get(name).family is Family.HEAD


def select(options: Options, headers: PairHeaders) -> Selection:
    """The drafters for a pair; ``tree`` selects the best drafter of the pair that can draft
    trees.
    """
    best = headers.best(options)
    if options.draft_max == 0:
        names: tuple[str, ...] = (OFF,)
    elif options.drafter is None:
        names = ("suffix", best)
    else:
        trees = best if get(best).tree is not None else TREE
        asked = (trees if name == TREE else name for name in options.drafter)
        names = tuple(dict.fromkeys(asked))
    return Selection(options, headers, names)
