"""Where a beginning of a prompt can be taken from, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from localspec.core.errors import DecodeError
from localspec.core.target import CacheableTarget
from localspec.drafters.base import Drafter
from localspec.prefix_cache.disk import DiskStates
from localspec.prefix_cache.file_format import Saved
from localspec.prefix_cache.states import (
    NOTHING_SAID,
    Checkpoint,
    Conversation,
    Cut,
    Place,
    State,
    TokenIds,
    cut_of_state,
    token_ids,
)


@dataclass(slots=True)
class Live:
    """The contents of a sequence of the target."""

    owner: str = ""
    tokens: TokenIds = field(default_factory=lambda: token_ids(()))
    """Tokens that are known; a running request appends more."""
    checkpoints: tuple[Checkpoint, ...] = ()
    conversation: Conversation = NOTHING_SAID
    running: bool = False
    """Whether a request is using it."""
    turn: int = 0
    """Number of the request that used it last."""

    def keep(self, tokens: TokenIds) -> None:
        """It now holds these tokens: checkpoints of others are forgotten."""
        self.tokens = tokens
        self.checkpoints = tuple(c for c in self.checkpoints if c.is_within(tokens))


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A source whose bytes are at hand."""

    cut: Cut
    state: State | None = None
    """None: the sequence has them already."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints that go with it."""
    spent: float = 0.0
    """Seconds that reading its bytes took earlier."""

    def put(self, target: CacheableTarget, drafter: Drafter, seq: int) -> None:
        """Make the sequence hold what the cut says.

        Raises:
            DecodeError, AuditError: the target cannot; the sequence is not to be trusted.
        """
        state, cut = self.state, self.cut
        if state is not None:
            target.restore(seq, state.state)
            if target.length(seq) != len(state.tokens):
                raise DecodeError("a state of another length than its tokens")
        if cut.checkpoint is not None:
            target.rewind(seq, cut.length, cut.checkpoint.state)
        else:
            target.truncate(seq, cut.length)
        target.audit(seq)
        if target.length(seq) != cut.length:
            raise DecodeError("a sequence of another length than its tokens")
        if state is not None:
            drafter.restore(seq, state.tokens.tolist(), state.drafts)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A way to begin a prompt."""

    place: Place
    cut: Cut
    """How much of the prompt it serves. The checkpoint of a file has no bytes yet."""
    open: Callable[[], Opened]
    """Has its bytes at hand. For a file that is of no use it raises DamagedError or OSError, with
    the target untouched."""
    n_bytes: int = 0
    """Bytes that are moved."""
    rate: float = 0.0
    """Tokens per second of reading when it was saved; 0: unknown."""
    saved: State | Saved | None = None
    """What it is in memory or on disk; None for sequences of the target."""


def in_place(cut: Cut, checkpoints: tuple[Checkpoint, ...] = ()) -> Source:
    """The sequence itself, truncated."""
    return Source("sequence", cut, lambda: Opened(cut, None, checkpoints))


def from_sequence(
    target: CacheableTarget, drafter: Drafter, seq: int, live: Live, prompt: TokenIds
) -> Source:
    """Another sequence of the target, copied."""
    unknown = target.length(seq) - len(live.tokens)  # what a running request has appended
    tokens = np.append(live.tokens, np.full(max(0, unknown), -1, np.int32))
    cut = cut_of_state(target, tokens, live.checkpoints, prompt)

    def opened() -> Opened:
        drafts = drafter.state(seq, live.tokens.tolist())
        state = State(live.owner, tokens, target.state(seq), drafts=drafts)
        return Opened(cut, state, live.checkpoints)

    # It is moved out of the KV cache, and back.
    return Source("other sequence", cut, opened, 2 * target.state_size(seq))


def from_memory(target: CacheableTarget, state: State, prompt: TokenIds) -> Source:
    """A saved state in memory."""
    cut = cut_of_state(target, state.tokens, state.checkpoints, prompt)

    def opened() -> Opened:
        return Opened(cut, state, state.checkpoints)

    return Source("memory", cut, opened, state.n_bytes, state.rate, state)


def from_disk(target: CacheableTarget, disk: DiskStates, saved: Saved, prompt: TokenIds) -> Source:
    """A saved state on disk."""
    empty = memoryview(b"")
    checkpoints = [Checkpoint(saved.tokens[:n], empty) for n, _ in saved.checkpoints]
    cut = cut_of_state(target, saved.tokens, checkpoints, prompt)

    def opened() -> Opened:
        state, spent = disk.load(saved)
        own = cut
        if cut.checkpoint is not None:
            found = [c for c in state.checkpoints if c.length == cut.length]
            if not found:
                raise FileNotFoundError(saved.path)  # replaced since it was listed
            own = Cut(cut.length, found[0])
        return Opened(own, state, state.checkpoints, spent)

    return Source("disk", cut, opened, saved.n_bytes, saved.rate, saved)
