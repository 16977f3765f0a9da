"""The drafters: one table, one row for each.

Options, help texts, the catalogue, the checks of files, loading and the interface read it; none of
them lists drafters itself. The table is plain data. The code of a row is named by ``module:name``
and imported when a pair is loaded, so that reading the table needs neither numpy nor llama.cpp.

To add a drafter that copies from text, write a module with an ``open_drafter`` in
`localspec.drafters.lookup` and add a row here; for a head see docs/drafters.md.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Branching:
    """How a drafter of trees spends a budget."""

    leaves: int = 1
    """Leaves for each node at one depth."""
    least: int = 1
    """Nodes at each depth below which it drafts nothing."""
    misses: float = 0.82
    """Share of a chain's misses that remain with breadth: measured on the demo pair, three nodes
    at each depth, temperature 0 and 1 (docs/drafters.md)."""


MODEL, TREE, OFF = "model", "tree", "off"
PREDICTION, SUFFIX = "prediction", "suffix"
MTP, EAGLE3, DFLASH, MEDUSA = "mtp", "eagle3", "dflash", "medusa"
"""Names of rows that other modules treat by themselves."""


class Family(enum.Enum):
    """How a drafter gets at its tokens."""

    LOOKUP = enum.auto()
    """Copied from text already known; costs next to nothing."""
    PREDICTION = enum.auto()
    """Copied from the text that the client expects."""
    GRAMMAR = enum.auto()
    """Forced by the grammar of the reply."""
    LOOKAHEAD = enum.auto()
    """Guessed by the target's own passes."""
    MODEL = enum.auto()
    """Computed by a draft model."""
    HEAD = enum.auto()
    """Computed from the target's hidden states."""
    NONE = enum.auto()
    """Plain decoding."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The draft trees of a drafter."""

    leaves: int
    """Leaves beyond the first that the target's context is made for."""
    branching: Branching
    """How a budget is spent on a tree."""
    always: bool
    """Whether trees are its usual drafts: it says so where it must draft chains. The others draft
    trees where the policy chooses the length, or where the user asked for ``tree``."""


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A drafter: its name, its needs, and the place of its code."""

    name: str
    """Name for ``--drafter`` and in statistics."""
    family: Family
    code: str
    """``module:name`` of the function that opens it, called with an `Opening` of
    `localspec.loading.drafters.opening` for MODEL and HEAD, and with `LookupTexts` for others."""
    file: str | None = None
    """Kind of the draft file that it needs, see `localspec.models.compat.heads.kind`."""
    tree: TreeShape | None = None
    needs_branching: bool = False
    """Whether it drafts only for a target whose cache can branch."""
    experimental: bool = False
    """Whether it needs llama.cpp's experimental calls for hidden states."""
    described: str = ""
    """The draft file in a sentence: "FILE is a ..."."""
    check: str = ""
    """``module:name`` of the function that checks a head against a target: called with both
    headers, it returns why the head cannot draft, or None."""
    built_in: str = ""
    """Its name where the target's own file can hold it; "" where no target's does."""
    pairs: tuple[str, ...] = ()
    """``drafting`` of a catalogue pair that is drafted for so."""
    llama_server: str = ""
    """``--spec-type`` of llama.cpp's server for the same method; "" if it has none."""

    def opener(self) -> Callable[..., Any]:
        """The function that opens it, imported now."""
        return _imported(self.code)

    def checker(self) -> Callable[..., str | None] | None:
        """The function that checks its head, imported now; None where there is nothing to check."""
        return _imported(self.check) if self.check else None


def _imported(code: str) -> Callable[..., Any]:
    module, _, name = code.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


_LOOKUP = "localspec.drafters.lookup"
_OPENERS = "localspec.loading.drafters"
_COMPAT = "localspec.models.compat"

_HEAD_TREE = TreeShape(leaves=8, branching=Branching(leaves=2, misses=0.76), always=False)

TABLE = (
    DrafterSpec(SUFFIX, Family.LOOKUP, f"{_LOOKUP}.suffix:open_drafter"),
    DrafterSpec("ngram", Family.LOOKUP, f"{_LOOKUP}.ngram:open_drafter", pairs=("ngram",)),
    DrafterSpec(
        MODEL,
        Family.MODEL,
        f"{_OPENERS}.model:open_chain",
        file=MODEL,
        described="a model of its own",
        pairs=("draft-model",),
        llama_server="draft-simple",
    ),
    DrafterSpec(
        MTP,
        Family.HEAD,
        f"{_OPENERS}.heads:open_mtp",
        file=MTP,
        tree=_HEAD_TREE,
        experimental=True,
        described="a multi-token prediction layer",
        check=f"{_COMPAT}.heads:mtp_sidecar_problem",
        built_in="its own MTP layer",
        pairs=("mtp-embedded", "mtp-sidecar"),
        llama_server="draft-mtp",
    ),
    DrafterSpec(
        EAGLE3,
        Family.HEAD,
        f"{_OPENERS}.heads:open_eagle3",
        file=EAGLE3,
        tree=_HEAD_TREE,
        experimental=True,
        described="an EAGLE-3 head",
        check=f"{_COMPAT}.heads:eagle3_problem",
        pairs=("eagle3",),
        llama_server="draft-eagle3",
    ),
    DrafterSpec(
        DFLASH,
        Family.HEAD,
        f"{_OPENERS}.heads:open_dflash",
        file=DFLASH,
        experimental=True,
        described="a DFlash head",
        check=f"{_COMPAT}.dflash:problem",
        pairs=("dflash",),
        llama_server="draft-dflash",
    ),
    DrafterSpec(
        MEDUSA,
        Family.HEAD,
        f"{_OPENERS}.heads:open_medusa",
        file=MEDUSA,
        tree=TreeShape(leaves=8, branching=Branching(), always=True),
        described="a file of Medusa heads",
        check=f"{_COMPAT}.medusa:problem",
        pairs=("medusa",),
    ),
    DrafterSpec(
        TREE,
        Family.MODEL,
        f"{_OPENERS}.model:open_tree",
        file=MODEL,
        tree=TreeShape(leaves=8, branching=Branching(), always=True),
    ),
    DrafterSpec(
        "lookahead",
        Family.LOOKAHEAD,
        f"{_LOOKUP}.lookahead:open_drafter",
        tree=TreeShape(leaves=15, branching=Branching(leaves=4, least=2), always=True),
        needs_branching=True,
    ),
    DrafterSpec(PREDICTION, Family.PREDICTION, f"{_LOOKUP}.prediction:open_drafter"),
    DrafterSpec("grammar", Family.GRAMMAR, "localspec.drafters.base:open_grammar"),
    DrafterSpec(OFF, Family.NONE, ""),
)
"""All drafters; heads in the order of preference where several fit a target."""
NAMES = tuple(spec.name for spec in TABLE)
"""Names that ``--drafter`` takes."""
_BY_NAME = {spec.name: spec for spec in TABLE}


def find(name: str | None) -> DrafterSpec | None:
    """The row of that name, if there is one."""
    return _BY_NAME.get(name) if name is not None else None


def get(name: str) -> DrafterSpec:
    """The row of that name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


def of(*families: Family) -> tuple[DrafterSpec, ...]:
    """The rows of some families, in the order of the table."""
    return tuple(spec for spec in TABLE if spec.family in families)


def any_of(names: tuple[str, ...], *families: Family) -> bool:
    """Whether one of these drafters is of one of the families."""
    return any(get(name).family in families for name in names)


def computing(names: Iterable[str]) -> list[str]:
    """The names of drafters that compute; the others copy from what is known."""
    copying = {Family.LOOKUP, Family.PREDICTION, Family.GRAMMAR, Family.NONE}
    return [name for name in names if get(name).family not in copying]


def by_file(kind: str | None) -> DrafterSpec | None:
    """The drafter that a draft file of that kind is made for, if this version has one."""
    return next((spec for spec in TABLE if kind is not None and spec.file == kind), None)
