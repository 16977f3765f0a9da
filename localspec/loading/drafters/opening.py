"""Arguments and results of the functions that open drafters, and the draft model of a pair: loaded
and compared with the target, or the reason why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from localspec.core.drafter_registry import MODEL, DrafterSpec
from localspec.core.errors import DraftIncompatibleError, Interrupted, LocalspecError
from localspec.core.values import Proposal
from localspec.drafters.base import Drafter
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import StoredStates
from localspec.llama.model import Model
from localspec.llama.timing import Timed, TimedBlocks
from localspec.loading.resources import Parts
from localspec.loading.selection import Selection
from localspec.models.compat.header_vocabulary import vocabulary_mismatch
from localspec.models.compat.token_map import TokenMap, too_little, translate
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile

_Head = TypeVar("_Head", bound=Head)


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A draft model that is loaded."""

    model: Model
    translation: TokenMap | None = None
    """Between its vocabulary and the target's; None where they are one."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something does not draft, in words for users."""

    reason: str


def load_draft(
    selection: Selection, file: ModelFile | None, target: Model, parts: Parts
) -> DraftFile | Refused:
    """Load the draft model.

    Raises:
        DraftIncompatibleError: it cannot be used, and the options require it.
        LocalspecError: a draft that the user named is not there or damaged.
    """
    found = _loaded(selection, file, target, parts)
    if isinstance(found, Refused) and selection.options.require_draft:
        raise DraftIncompatibleError(found.reason)
    return found


def _loaded(
    selection: Selection, file: ModelFile | None, target: Model, parts: Parts
) -> DraftFile | Refused:
    options, headers, fit = selection.options, selection.headers, parts.fit
    if not selection.uses_draft_file:
        return Refused("drafting is off")
    if file is None:
        return Refused("there is no draft model")
    if headers.kind not in {None, MODEL}:
        reason = headers.problem(MODEL)
        if reason is not None:
            return Refused(reason)
    elif fit.left_out is not None:
        return Refused(fit.left_out)
    try:
        if headers.draft is None:  # llama.cpp may abort on what we could not read
            _ = file.header
        draft = parts.model(file.path, fit.draft)
    except Interrupted:
        raise
    except LocalspecError as error:
        if options.draft is not None or options.require_draft:
            raise
        return Refused(str(error))
    return _kept(draft, target, parts)


def _kept(draft: Model, target: Model, parts: Parts) -> DraftFile | Refused:
    """The draft model, which is freed where it cannot serve the target."""
    found = _compared(draft, target, parts.fit.context)
    if isinstance(found, Refused):
        parts.unload(draft)
    return found


def _compared(draft: Model, target: Model, context: int) -> DraftFile | Refused:
    """The draft model as it can serve the target, by a translation of tokens if need be."""
    refusal = f"draft {draft.path.name} cannot draft for {target.path.name}"
    if not draft.partial_removal:
        return Refused(f"{refusal}: it keeps a recurrent state that cannot forget rejected tokens")
    notices = short_training(draft, target, context)
    mismatch = vocabulary_mismatch(target, draft)
    if mismatch is None:
        return DraftFile(draft, notices=notices)
    translation = translate(target, draft)
    too_foreign = too_little(translation, mismatch)
    if too_foreign is not None:
        return Refused(f"{refusal}: {too_foreign}")
    told = (
        f"{draft.path.name} has another vocabulary: it drafts the {len(translation.targets)} "
        f"tokens that both know, {translation.shared:.0%} of the smaller one"
    )
    return DraftFile(draft, translation, (told, *notices))


def short_training(draft: Model, target: Model, context: int) -> tuple[str, ...]:
    """A notice where a draft was trained for less than the context may hold."""
    trained, room = draft.n_ctx_train, min(context, target.n_ctx_train)
    if draft is target or not 0 < trained < room:
        return ()
    limited = "fewer of its drafts may be accepted"
    if draft.positions is not None:
        limited = "it drafts nothing"
    told = (
        f"{draft.path.name} was trained for {trained} tokens, and the context has {room}: "
        f"beyond that {limited}"
    )
    return (told,)


@dataclass(frozen=True, slots=True)
class Opened:
    """A drafter that is ready."""

    drafter: Drafter
    timed: Timed | None = None
    """Measures the cost of a drafted token; None where that is next to nothing."""
    stored: StoredStates | None = None
    """Hidden states that the target keeps for it."""
    uses_file: bool = False
    """Whether it drafts from the draft file."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What all drafters of a pair are opened with."""

    selection: Selection
    target_file: ModelFile
    draft_file: ModelFile | None
    target: Context
    parts: Parts
    """Loads models and contexts, and frees them."""
    favoured: Proposal
    """The kind of proposal that the verifier favours."""


@dataclass(frozen=True, slots=True)
class Opening(Given):
    """All that a drafter is opened with."""

    spec: DrafterSpec
    draft: DraftFile | None = None
    """The loaded draft model; None for heads."""

    @property
    def target_header(self) -> Header:
        """The header of the target."""
        return self.selection.headers.target

    @property
    def sidecar(self) -> Header | None:
        """The header of the draft file that holds a head; None where the target's file does."""
        return self.selection.headers.sidecar(self.spec.name)

    @contextmanager
    def head_model(self) -> Iterator[Model]:
        """The model whose file holds the head: the target, or the draft file's, which is unloaded
        if the block fails.

        Raises:
            ModelNotFoundError, ModelFileError, UnsupportedModelError, OutOfMemoryError, Interrupted
        """
        if self.sidecar is None:
            yield self.target.model
            return
        model = self.parts.model(self.head_file.path, self.parts.fit.draft, alone=False)
        try:
            yield model
        except LocalspecError:
            self.parts.unload(model)
            raise

    @property
    def head_file(self) -> ModelFile:
        """The file that holds the head."""
        if self.sidecar is None:
            return self.target_file
        assert self.draft_file is not None  # its header was read
        return self.draft_file

    def head(self, kind: type[_Head], model: Model) -> _Head:
        """A context of that kind for a head, next to the target's.

        Raises:
            UnsupportedModelError, OutOfMemoryError
        """
        fit = self.parts.fit
        planned = fit.draft if fit.draft is not None else fit.target
        return self.parts.head(kind, model, self.target, planned.kv_type)

    def opened(self, drafter: Drafter, timed: Timed, stored: StoredStates, head: Head) -> Opened:
        """A head that was checked and is ready."""
        seconds = timed.seconds if isinstance(timed, TimedBlocks) else None
        self.parts.choose_head_threads(head, self.target, seconds)
        return Opened(
            drafter,
            timed,
            stored,
            uses_file=self.sidecar is not None,
            notices=short_training(head.model, self.target.model, self.parts.fit.context),
        )
