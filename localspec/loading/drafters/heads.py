"""Opening heads."""

from __future__ import annotations

import numpy as np

from localspec.core.errors import ModelFileError, UnsupportedModelError
from localspec.drafters.heads.dflash import BlockModel
from localspec.drafters.heads.eagle import HeadModel
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter, HeadTreeModel
from localspec.drafters.heads.head_drafter import ForwardOnlyDrafter, HeadDrafter
from localspec.drafters.heads.medusa import MedusaDrafter, MedusaModel
from localspec.drafters.heads.shared_kv import SharedModel
from localspec.llama.heads.base import Eagle, Head
from localspec.llama.heads.dflash import Blocks
from localspec.llama.heads.hidden_states import (
    FinalStates,
    LayerInputs,
    NextStates,
    StoredStates,
    Tap,
)
from localspec.llama.heads.mtp import MtpLayer, MtpLayers
from localspec.llama.heads.shared_kv import Assistant
from localspec.llama.heads.tensors import mapped
from localspec.llama.load_file import digest, require_unchanged
from localspec.llama.model import Model
from localspec.llama.timing import TimedBlocks, TimedContext, TimedMedusa
from localspec.loading.drafters.opening import Opened, Opening
from localspec.models.compat import heads
from localspec.models.compat.head_checks import VOCABULARY_MAP, target_layers
from localspec.models.gguf.model_file import ModelFile


def open_eagle3(opening: Opening) -> Opened:
    """Open an EAGLE-3 head in the draft file, whose header was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    with opening.head_model() as model:
        assert opening.sidecar is not None  # no target holds such a head
        tap = LayerInputs(target_layers(opening.sidecar), opening.target_header.n_embd)
        head = opening.head(Eagle, model)
        _check_words(opening.head_file, _shared_vocabulary(opening, head))
        return _head_drafter(opening, head, tap)


def open_mtp(opening: Opening) -> Opened:
    """Open multi-token prediction: layers of the target's file, of a file of their own, or an
    assistant that shares the target's cache. The header was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    target, sidecar = opening.target_header, opening.sidecar
    tap = NextStates(heads.state_width(target))
    with opening.head_model() as model:
        if sidecar is not None and heads.shares_cache(sidecar):
            return _assistant(opening, model, tap)
        layers = (sidecar or target).next_layers
        head = opening.head(MtpLayers if layers > 1 else MtpLayer, model)
        _check_words(opening.head_file, _shared_vocabulary(opening, head))
        _check_width(opening, head, tap)
        return _head_drafter(opening, head, tap)


def _assistant(opening: Opening, model: Model, tap: NextStates) -> Opened:
    head, stored = opening.head(Assistant, model), StoredStates(tap)
    vocabulary = _shared_vocabulary(opening, head)
    _check_words(opening.head_file, vocabulary)
    _check_width(opening, head, tap)
    shared = SharedModel(head, stored, vocabulary)
    drafter = ForwardOnlyDrafter(shared, opening.favoured, opening.spec.name)
    return opening.opened(drafter, TimedContext(head), stored, head)


def open_dflash(opening: Opening) -> Opened:
    """Open a DFlash head in the draft file, whose header was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    with opening.head_model() as model:
        assert opening.sidecar is not None  # no target holds such a head
        tap = LayerInputs(target_layers(opening.sidecar), opening.target_header.n_embd)
        head, stored = opening.head(Blocks, model), StoredStates(tap)
        vocabulary = _shared_vocabulary(opening, head)
        _check_words(opening.head_file, vocabulary)
        blocks = BlockModel(head, stored, vocabulary)
        drafter = ForwardOnlyDrafter(blocks, opening.favoured, opening.spec.name, head.depth)
        return opening.opened(drafter, TimedBlocks(head), stored, head)


def open_medusa(opening: Opening) -> Opened:
    """Open Medusa heads in the draft file, whose header was checked; they are computed without
    llama.cpp's graphs.

    Raises:
        ModelFileError, OutOfMemoryError
    """
    file, target = opening.head_file, opening.target
    read = digest(file.path)
    loaded = opening.parts.medusa(file, opening.target_file, target)
    require_unchanged(file.path, read)
    placed = opening.parts.fit.draft
    tap = FinalStates(opening.target_header.n_embd)
    stored = StoredStates(tap)
    model = MedusaModel(loaded, stored, target.model.n_vocab)
    timed = TimedMedusa(
        loaded,
        width=tap.width,
        digest=read,
        layers=0 if placed is None else placed.gpu_layers,
        threads=opening.parts.medusa_threads(target),
    )
    return Opened(MedusaDrafter(model, opening.favoured), timed, stored, uses_file=True)


def _head_drafter(opening: Opening, head: Head, tap: Tap) -> Opened:
    """A drafter with a head that guesses one token after the other: of trees where its context has
    branches, else of chains.
    """
    stored = StoredStates(tap)
    vocabulary, name = _shared_vocabulary(opening, head), opening.spec.name
    if head.branches:
        grows = HeadTreeModel(head, stored, vocabulary)
        drafter: HeadDrafter | HeadTreeDrafter = HeadTreeDrafter(
            grows, opening.favoured, name, grows.depth
        )
    else:
        model = HeadModel(head, stored, vocabulary)
        drafter = HeadDrafter(model, opening.favoured, name, model.depth)
    return opening.opened(drafter, TimedContext(head), stored, head)


def _shared_vocabulary(opening: Opening, head: Head) -> int:
    """Token ids that head and target share: those from 0 on."""
    return min(head.model.n_vocab, opening.target.model.n_vocab)


def _check_width(opening: Opening, head: Head, tap: Tap) -> None:
    """See that a head reads states as wide as the target gives: llama.cpp would read beyond rows.

    Raises:
        UnsupportedModelError: it does not.
    """
    if head.width != tap.width:
        raise UnsupportedModelError(
            f"{head.model.path.name} reads states of {head.width} numbers, and "
            f"{opening.target.model.path.name} gives {tap.width}"
        )


def _check_words(head: ModelFile, vocabulary: int) -> None:
    """See that each word of a reduced vocabulary is one of the target's: others abort a pass.

    Raises:
        ModelFileError: one is not, or is listed twice.
    """
    words = mapped(head, {VOCABULARY_MAP}).get(VOCABULARY_MAP)
    if words is None:
        return
    ids = words.data.view("<i8")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise ModelFileError(
            f"{head.name} is damaged: its {VOCABULARY_MAP} names tokens {ids.min()} to "
            f"{ids.max()}, and there are {vocabulary}"
        )
    if len(np.unique(ids)) != len(ids):
        raise ModelFileError(f"{head.name} is damaged: its {VOCABULARY_MAP} names a token twice")
