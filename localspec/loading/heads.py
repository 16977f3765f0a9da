"""Heads that draft for a target: found in its file or beside it, checked, and opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from localspec.core.values import Proposal
from localspec.drafters.base import Drafter
from localspec.drafters.heads.dflash import BlockModel
from localspec.drafters.heads.eagle import HeadDrafter, HeadModel
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter, HeadTreeModel
from localspec.drafters.heads.forward_only import ForwardOnlyDrafter
from localspec.drafters.heads.medusa import MedusaDrafter, MedusaModel
from localspec.drafters.heads.shared_kv import SharedModel
from localspec.errors import LocalspecError, ModelFileError, UnsupportedModelError
from localspec.llama import experimental
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.dflash import Blocks, block_seconds
from localspec.llama.heads.eagle import Eagle
from localspec.llama.heads.hidden_states import Features, FinalStates, LayerInputs, NextStates, Tap
from localspec.llama.heads.medusa import Medusa
from localspec.llama.heads.mtp import MtpLayer
from localspec.llama.heads.mtp_chain import MtpLayers
from localspec.llama.heads.shared_kv import Assistant
from localspec.llama.heads.tensors import mapped
from localspec.llama.model import Model
from localspec.llama.timing import Timed, guess_seconds, of_context
from localspec.loading.options import Options
from localspec.models.catalog.resolve import NO_DRAFT
from localspec.models.compat import heads
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile

HEADS = frozenset({heads.MTP, heads.EAGLE3, heads.DFLASH, heads.MEDUSA})
"""Drafters that read the target's hidden states."""
_BY_EXTENSION = HEADS - {heads.MEDUSA}
"""Those that llama.cpp computes, from states that its experimental calls give away."""
_CALLED = {
    heads.MODEL: "a model of its own",
    heads.MTP: "a multi-token prediction layer",
    heads.EAGLE3: "an EAGLE-3 head",
    heads.DFLASH: "a DFlash head",
    heads.MEDUSA: "a file of Medusa heads",
}
_CONTEXTS: dict[str, type[Head]] = {heads.EAGLE3: Eagle, heads.DFLASH: Blocks}
"""What computes a head of which there is one kind."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What drafts the files of a pair bring, by their headers."""

    target: Header
    draft: Header | None
    """None where there is no draft file, or it cannot be read: loading it says why."""

    @property
    def kind(self) -> str | None:
        """Of the draft file; see `localspec.models.compat.heads`."""
        return None if self.draft is None else heads.kind(self.draft)

    def best(self, options: Options) -> str:
        """The drafter to use where nobody names one, beside those from the text."""
        if self.kind is not None:
            return self.kind if self.kind in _CALLED else heads.MODEL
        if options.draft != NO_DRAFT and heads.carries_mtp(self.target):
            return heads.MTP
        return heads.MODEL

    def unused_layer(self, options: Options) -> str | None:
        """Why the target's own layer for prediction is not used, where one would expect it."""
        expected = self.best(options) == heads.MODEL and options.draft != NO_DRAFT
        if not expected or options.drafter or not heads.promises_mtp(self.target):
            return None
        return heads.mtp_trouble(self.target)

    def in_target(self, drafter: str) -> bool:
        """Whether that drafter is a part of the target's own file."""
        return drafter == heads.MTP and self.kind != heads.MTP

    def context(self, drafter: str) -> type[Head]:
        """What computes that head."""
        beside = None if self.in_target(drafter) else self.draft
        if drafter in _CONTEXTS:
            return _CONTEXTS[drafter]
        if beside is not None and heads.shares_cache(beside):
            return Assistant
        layers = heads.next_layers(beside or self.target)
        return MtpLayers if layers > 1 else MtpLayer

    def grows(self, drafter: str) -> bool:
        """Whether that head can draft trees, for a target whose cache can branch."""
        return drafter == heads.MEDUSA or self.context(drafter).grows

    def tap(self, drafter: str) -> Tap:
        """Which hidden states of the target that head reads."""
        if drafter == heads.MEDUSA:
            return FinalStates(self.target.n_embd)
        beside = None if self.in_target(drafter) else self.draft
        layers = () if beside is None else heads.target_layers(beside)
        if layers:
            return LayerInputs(layers, self.target.n_embd)
        return NextStates(heads.state_width(self.target))

    def trouble(self, drafter: str) -> str | None:
        """Why the head that a drafter is called after cannot be used; None if it can."""
        name = self.target.name
        if drafter in _BY_EXTENSION and experimental.calls() is None:
            return "this build of llama.cpp does not give away the target's hidden states"
        if self.in_target(drafter):
            if not heads.promises_mtp(self.target):
                return f"{name} carries no multi-token prediction layer"
            return heads.mtp_trouble(self.target)
        if self.draft is None:
            return f"there is no {drafter} head for {name}; name its file with --draft"
        if self.kind != drafter and self.kind in _CALLED:
            return f"{self.draft.name} is {_CALLED[self.kind]}, not {_CALLED[drafter]}"
        found = heads.head_trouble(self.draft, self.target)
        return f"head {self.draft.name} cannot draft for {name}: {found}" if found else None


def brought(target: ModelFile, draft: ModelFile | None) -> Brought:
    """The drafts that the files bring.

    Raises:
        ModelNotFoundError, ModelFileError: the target is not there or damaged.
        UnsupportedModelError: it is a head itself; loading one as a model may abort.
    """
    heads.require_model(target.header)
    header = None
    if draft is not None:
        with contextlib.suppress(LocalspecError):  # loading it will say the same
            header = draft.header
    return Brought(target.header, header)


@dataclass(frozen=True, slots=True)
class Opened:
    """A head that is ready."""

    drafter: Drafter
    timed: Timed
    features: Features
    """To be kept by the target."""


Open = Callable[[type[Head], Model], Head]
"""Makes a context of that kind for a head."""


def opened(
    name: str,
    head: Model,
    file: ModelFile,
    target: Model,
    files: Brought,
    into: Open,
    favours: Proposal,
) -> Opened:
    """A drafter from a head, whose ``file`` was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    tap = files.tap(name)
    context, features = into(files.context(name), head), Features(tap)
    _check_words(file, min(head.n_vocab, target.n_vocab))
    fused = isinstance(context, Eagle | Blocks)  # several states in one
    if not fused and context.width != tap.width:  # llama.cpp would read beyond the rows
        raise UnsupportedModelError(
            f"{head.path.name} reads states of {context.width} numbers, and {target.path.name} "
            f"gives {tap.width}"
        )
    vocabulary = min(head.n_vocab, target.n_vocab)
    if isinstance(context, Assistant):
        shared = SharedModel(context, features, vocabulary)
        return Opened(ForwardOnlyDrafter(shared, favours, name), of_context(context), features)
    if isinstance(context, Blocks):
        blocks = BlockModel(context, features, vocabulary)
        timed = Timed(head.path, head.gpu_layers, context.threads, partial(block_seconds, context))
        drafter = ForwardOnlyDrafter(blocks, favours, name, context.depth)
        return Opened(drafter, timed, features)
    if context.branches:
        grows = HeadTreeModel(context, features, vocabulary)
        trees = HeadTreeDrafter(grows, favours, name, grows.depth)
        return Opened(trees, of_context(context), features)
    model = HeadModel(context, features, vocabulary)
    return Opened(HeadDrafter(model, favours, name, model.depth), of_context(context), features)


def _check_words(head: ModelFile, vocabulary: int) -> None:
    """See that each word of a reduced vocabulary is one of the target's: others abort a pass.

    Raises:
        ModelFileError: one is not, or stands there twice.
    """
    words = mapped(head, {heads.WORDS}).get(heads.WORDS)
    if words is None:
        return
    ids = words.data.view("<i8")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise ModelFileError(
            f"{head.name} is damaged: its {heads.WORDS} names tokens {ids.min()} to {ids.max()}, "
            f"and there are {vocabulary}"
        )
    if len(np.unique(ids)) != len(ids):
        raise ModelFileError(f"{head.name} is damaged: its {heads.WORDS} names a token twice")


def opened_medusa(
    file: Path, layers: int, computed: Medusa, target: Context, tap: Tap, favours: Proposal
) -> Opened:
    """A drafter from the Medusa heads of a file, of which ``layers`` are on a GPU."""
    features, vocabulary = Features(tap), target.model.n_vocab
    model = MedusaModel(computed, features, vocabulary)
    timed = Timed(file, layers, target.threads, partial(guess_seconds, computed, tap.width))
    return Opened(MedusaDrafter(model, favours), timed, features)


__all__ = ["HEADS", "Brought", "Opened", "brought", "opened", "opened_medusa"]
