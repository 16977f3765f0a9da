"""Values of the prefix cache: saved states of sequences, and what a restore did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localspec.core import media_rows
from localspec.core.target import SavesState
from localspec.drafters.base import DraftState

TokenIds = NDArray[np.int32]
"""(n,) token ids, read-only."""
Place = Literal["sequence", "other sequence", "memory", "disk"]
"""Where a restored beginning came from; "sequence" is the sequence that answers, truncated."""


def token_ids(tokens: Sequence[int] | TokenIds) -> TokenIds:
    """The tokens as an array that compares quickly."""
    ids: TokenIds = np.array(tokens, np.int32)
    ids.flags.writeable = False
    return ids


def shared(a: TokenIds, b: TokenIds) -> int:
    """The number of leading tokens that are equal; of a picture all rows or none."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    length = int(differ[0]) if len(differ) else n
    return min(media_rows.before(a, length), media_rows.before(b, length))


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State that truncation to the end of ``tokens`` cannot bring back: recurrent states, and
    the KV cache of sliding layers.
    """

    tokens: TokenIds
    """All tokens of the sequence when it was taken."""
    state: memoryview

    @property
    def length(self) -> int:
        """Tokens of the sequence when it was taken."""
        return len(self.tokens)

    def is_within(self, tokens: TokenIds) -> bool:
        """Whether these tokens begin with its own."""
        return shared(self.tokens, tokens) == self.length


@dataclass(frozen=True, slots=True)
class Conversation:
    """The text of a sequence and its tokens, so that later prompts are tokenized alike."""

    text: str = ""
    tokens: tuple[int, ...] = ()


NOTHING_SAID = Conversation()


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A sequence of the target as bytes."""

    owner: str
    """Requests of other owners never see it."""
    tokens: TokenIds
    """Tokens in the KV cache."""
    state: memoryview
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints, for targets that cannot be truncated everywhere."""
    drafts: Mapping[str, DraftState] = field(default_factory=dict)
    """Caches of drafters, by the identity of the drafter."""
    rate: float = 0.0
    """Tokens per second at which prompts were read when it was saved; 0: unknown."""
    conversation: Conversation = NOTHING_SAID

    @property
    def n_bytes(self) -> int:
        """Bytes of all parts."""
        parts = (self.state, *(c.state for c in self.checkpoints))
        return sum(len(p) for p in parts) + sum(len(d.state) for d in self.drafts.values())


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a prompt a sequence or a saved state can serve."""

    length: int
    """Tokens of the prompt."""
    checkpoint: Checkpoint | None = None
    """The checkpoint to rewind to; None: truncation is enough."""


NO_CUT = Cut(0)


def cut_of_state(
    target: SavesState,
    tokens: TokenIds,
    checkpoints: Sequence[Checkpoint],
    prompt: TokenIds,
) -> Cut:
    """How much of the prompt a saved state of these tokens serves, without its last token."""
    length = min(shared(tokens, prompt), len(prompt) - 1)
    if target.can_cut(len(tokens), length):
        return Cut(length)
    return _checkpointed(checkpoints, prompt[:length])


def cut_of_sequence(
    target: SavesState,
    seq: int,
    tokens: TokenIds,
    checkpoints: Sequence[Checkpoint],
    prompt: TokenIds,
) -> Cut:
    """The cut of tokens that are in the target's KV cache; see `cut_of_state`."""
    length = min(shared(tokens, prompt), len(prompt) - 1)
    if target.can_truncate(seq, length):
        return Cut(length)
    return _checkpointed(checkpoints, prompt[:length])


def _checkpointed(checkpoints: Sequence[Checkpoint], tokens: TokenIds) -> Cut:
    """The longest checkpoint within the tokens."""
    within = [c for c in checkpoints if c.is_within(tokens)]
    best = max(within, key=lambda c: c.length, default=None)
    return NO_CUT if best is None else Cut(best.length, best)


Lengths = tuple[TokenIds, Sequence[int]]
"""Tokens of a state, and the lengths of its checkpoints."""


def covers(longer: Lengths, state: Lengths, *, cuts_anywhere: bool) -> bool:
    """Whether one state serves every prompt that the other serves; see `SavesState`."""
    (tokens, checkpoints), (others, other_checkpoints) = longer, state
    if shared(tokens, others) < len(others):
        return False
    return cuts_anywhere or {len(others), *other_checkpoints} <= {len(tokens), *checkpoints}


@dataclass(frozen=True, slots=True)
class Restored:
    """The sequence holds a beginning of the prompt."""

    length: int
    """Tokens of the prompt in the KV cache."""
    place: Place
    saved_seconds: float
    """Seconds that reading them would have taken, less those of restoring; an estimate."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The sequence is empty: the prompt is read from its first token."""

    length: Literal[0] = 0
    saved_seconds: float = 0.0


NONE = Nothing()
