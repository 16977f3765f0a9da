"""Drafters that the files of a pair hold, by their headers; llama.cpp sees nothing yet."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from localspec.core.drafter_registry import MODEL, MTP, Family, by_file, get
from localspec.core.errors import LocalspecError
from localspec.core.options import Options
from localspec.models.catalog.resolve import NO_DRAFT
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
