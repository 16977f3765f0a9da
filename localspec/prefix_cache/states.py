"""Values of the prefix cache: saved states of sequences, and what a restore did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
    def ends(self) -> set[int]:
        """Lengths to which it can be cut, where the target cannot be truncated everywhere."""
        return {len(self.tokens), *(c.length for c in self.checkpoints)}

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
    return cut_where(partial(target.can_cut, len(tokens)), tokens, checkpoints, prompt)


def cut_where(
    can_cut: Callable[[int], bool],
    tokens: TokenIds,
    checkpoints: Sequence[Checkpoint],
    prompt: TokenIds,
) -> Cut:
    """How much of the prompt these tokens serve, cut where they ``can_cut``, or at a checkpoint."""
    length = min(shared(tokens, prompt), len(prompt) - 1)
    if can_cut(length):
        return Cut(length)
    within = [c for c in checkpoints if c.is_within(prompt[:length])]
    best = max(within, key=lambda c: c.length, default=None)
    return NO_CUT if best is None else Cut(best.length, best)


def covers(longer: State, tokens: TokenIds, ends: set[int], *, cuts_anywhere: bool) -> bool:
    """Whether a state serves every prompt that another one of these ``tokens`` and ``ends`` serves;
    see `SavesState`.
    """
    if shared(longer.tokens, tokens) < len(tokens):
        return False
    return cuts_anywhere or ends <= longer.ends


@dataclass(frozen=True, slots=True)
class Restored:
    """The sequence holds a beginning of the prompt."""

    length: int
    """Tokens of the prompt in the KV cache."""
    place: Place | None
    """None: the sequence is empty, and the prompt is read from its first token."""
    saved_seconds: float
    """Seconds that reading them would have taken, less those of restoring; an estimate."""


NONE = Restored(0, None, 0.0)
