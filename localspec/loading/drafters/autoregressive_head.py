"""Heads that guess one token after the other: what EAGLE-3 and multi-token prediction share."""

from __future__ import annotations

import numpy as np

from localspec.core.errors import ModelFileError, UnsupportedModelError
from localspec.drafters.heads.eagle import HeadDrafter, HeadModel
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter, HeadTreeModel
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import Features, Tap
from localspec.llama.heads.tensors import mapped
from localspec.llama.timing import TimedContext
from localspec.loading.drafters.opening import Opened, Opening
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile


def head_drafter(opening: Opening, head: Head, tap: Tap) -> Opened:
    """A drafter of trees where the head's context has branches, else of chains."""
    features = Features(tap)
    vocabulary, name = shared_vocabulary(opening, head), opening.spec.name
    if head.branches:
        grows = HeadTreeModel(head, features, vocabulary)
        drafter: HeadDrafter | HeadTreeDrafter = HeadTreeDrafter(
            grows, opening.favoured, name, grows.depth
        )
    else:
        model = HeadModel(head, features, vocabulary)
        drafter = HeadDrafter(model, opening.favoured, name, model.depth)
    return opening.opened(drafter, TimedContext(head), features, head)


def shared_vocabulary(opening: Opening, head: Head) -> int:
    """Token ids that head and target share: those from 0 on."""
    return min(head.model.n_vocab, opening.target.model.n_vocab)


def check_width(opening: Opening, head: Head, tap: Tap) -> None:
    """See that a head reads states as wide as the target gives: llama.cpp would read beyond rows.

    Raises:
        UnsupportedModelError: it does not.
    """
    if head.width != tap.width:
        raise UnsupportedModelError(
            f"{head.model.path.name} reads states of {head.width} numbers, and "
            f"{opening.target.model.path.name} gives {tap.width}"
        )


def check_words(head: ModelFile, vocabulary: int) -> None:
    """See that each word of a reduced vocabulary is one of the target's: others abort a pass.

    Raises:
        ModelFileError: one is not, or is listed twice.
    """
    words = mapped(head, {heads.VOCABULARY_MAP}).get(heads.VOCABULARY_MAP)
    if words is None:
        return
    ids = words.data.view("<i8")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise ModelFileError(
            f"{head.name} is damaged: its {heads.VOCABULARY_MAP} names tokens {ids.min()} to "
            f"{ids.max()}, and there are {vocabulary}"
        )
    if len(np.unique(ids)) != len(ids):
        raise ModelFileError(
            f"{head.name} is damaged: its {heads.VOCABULARY_MAP} names a token twice"
        )
