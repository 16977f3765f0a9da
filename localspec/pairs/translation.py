"""Drafting across vocabularies: which ids of the draft stand for which ids of the target.

A token's text is its identity. Ids whose texts both vocabularies have are translated; what only the
draft knows cannot be proposed, and what only the target knows is read by the draft as the text that
it is. The draft's q, restricted to the shared tokens and normalised, is a distribution over the
target's ids like any other, so every verifier stays exact (token-level intersection; Timor et al.
2025, "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous
vocabularies", section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.values import Ids

ENOUGH = 0.9
"""Of the smaller vocabulary, what must be shared."""


class Texts(Protocol):
    """What is needed of a model."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def special_ids(self) -> dict[str, int]: ...
    def piece(self, token: int) -> bytes: ...
    def token_text(self, token: int) -> bytes: ...
    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Translation:
    """Between a target and a draft."""

    to_target: Ids
    """(V of the draft,) the target's id of each of the draft's, or -1."""
    to_draft: Ids
    """(V of the target,) likewise."""
    shared: float
    """Share of the smaller vocabulary that both have."""
    spell: Callable[[int], list[int]]
    """The draft's ids, at least one, for a token of the target that it does not have."""

    def read(self, token: int) -> list[int]:
        """What the draft reads where the target has ``token``."""
        own = int(self.to_draft[token])
        return [own] if own >= 0 else self.spell(token)


def translate(target: Texts, draft: Texts) -> Translation:
    """Match the two vocabularies by the bytes that their tokens stand for.

    Tokens that end a text or a turn are matched by their role. Where several ids have the same
    text, the lowest stands for them.
    """
    ours = _by_text(target)
    to_target = np.full(draft.n_vocab, -1, np.int32)
    to_draft = np.full(target.n_vocab, -1, np.int32)
    texts = 0
    for token, text in sorted(_by_text(draft).items(), key=lambda item: item[1]):
        texts += 1
        found = ours.get(token)
        if found is not None:
            to_target[text], to_draft[found] = found, text
    for role, theirs in draft.special_ids.items():
        known = target.special_ids.get(role, -1)
        if theirs >= 0 and known >= 0 and to_target[theirs] < 0 and to_draft[known] < 0:
            to_target[theirs], to_draft[known] = known, theirs
    filler = max(0, draft.special_ids.get("eos", -1))
    smaller = max(1, min(len(ours), texts))

    def spell(token: int) -> list[int]:
        text = target.piece(token) or target.token_text(token)  # a marker is read as its name
        return draft.tokenize(text.decode("utf-8", "replace")) or [filler]

    shared = min(1.0, int((to_target >= 0).sum()) / smaller)
    return Translation(to_target, to_draft, shared, spell)


def _by_text(model: Texts) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for token in range(model.n_vocab):
        text = model.piece(token)
        if text:
            found.setdefault(text, token)
    return found
