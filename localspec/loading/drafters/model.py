"""Opening a draft model: as a drafter of chains, or of trees."""

from __future__ import annotations

from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.cross_vocabulary import TranslatedModel
from localspec.drafters.model.interface import DraftModel
from localspec.drafters.model.tree import TreeDrafter
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.target import LlamaTarget
from localspec.llama.timing import TimedContext
from localspec.loading.drafters.opening import DraftFile, Opened, Opening
from localspec.loading.resources import left_device
from localspec.models.memory.planner import draft_kv_type


def open_chain(opening: Opening) -> Opened:
    """Open a drafter of chains.

    Raises:
        OutOfMemoryError: there is no room for its context.
    """
    draft = _draft(opening)
    context = opening.parts.context(draft.model, _kv_type(opening))
    model: DraftModel
    if draft.translation is None:
        model = LlamaDraftModel(context, opening.target.model.n_vocab)
    else:
        own = LlamaDraftModel(context, draft.model.n_vocab)
        model = TranslatedModel(own, draft.translation)
    drafter = ChainDrafter(model, opening.favoured)
    notices = left_device(context)
    return Opened(drafter, TimedContext(context), uses_file=True, notices=notices)


def open_tree(opening: Opening) -> Opened:
    """Open a drafter of trees; of chains where tokens must be translated.

    Raises:
        OutOfMemoryError: there is no room for its context.
    """
    draft = _draft(opening)
    if draft.translation is not None:
        return open_chain(opening)
    model = draft.model
    room = opening.selection.branches(
        model.path.name,
        can_branch=model.branching,
        sequences=opening.parts.fit.wishes.sequences,
    )
    context = opening.parts.context(model, _kv_type(opening), room.count)
    shared = min(model.n_vocab, opening.target.model.n_vocab)
    chains = ChainDrafter(LlamaDraftModel(context, shared), opening.favoured, opening.spec.name)
    notices = (*room.notices, *left_device(context))
    drafter = TreeDrafter(chains, LlamaTarget(context), shared, opening.favoured)
    return Opened(drafter, TimedContext(context), uses_file=True, notices=notices)


def _draft(opening: Opening) -> DraftFile:
    assert opening.draft is not None  # loaded before drafters of its family are opened
    return opening.draft


def _kv_type(opening: Opening) -> str:
    fit = opening.parts.fit
    if fit.draft is not None:
        return fit.draft.kv_type
    return draft_kv_type(None, fit.target.kv_type)  # only llama.cpp could read its header
