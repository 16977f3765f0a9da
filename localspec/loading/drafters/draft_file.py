"""The draft model of a pair: loaded and compared with the target, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.drafter_registry import MODEL
from localspec.core.errors import DraftIncompatibleError, Interrupted, LocalspecError
from localspec.llama.model import Model
from localspec.loading.resources import Parts
from localspec.loading.selection import Selection
from localspec.models.compat.token_map import TokenMap, too_little, translate
from localspec.models.compat.vocabularies import vocabulary_mismatch
from localspec.models.gguf.model_file import ModelFile


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
    return _compared(draft, target, fit.context)


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
    told = (
        f"{draft.path.name} was trained for {trained} tokens, and the context has {room}: "
        "beyond that fewer of its drafts may be accepted"
    )
    return (told,)
