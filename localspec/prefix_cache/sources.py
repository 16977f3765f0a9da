"""Where a beginning of a prompt can be taken from, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
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
class InPlace:
    """The sequence itself, truncated."""

    cut: Cut
    checkpoints: tuple[Checkpoint, ...] = ()
    place: Place = "sequence"
    n_bytes: int = 0
    rate: float = 0.0

    def open(self) -> Opened:
        """See `Source`."""
        return Opened(self.cut, None, self.checkpoints)


@dataclass(frozen=True, slots=True, eq=False)
class FromSequence:
    """Another sequence of the target, copied."""

    target: CacheableTarget
    drafter: Drafter
    seq: int
    live: Live
    prompt: TokenIds
    place: Place = "other sequence"
    rate: float = 0.0

    @property
    def cut(self) -> Cut:
        """How much of the prompt it serves."""
        return cut_of_state(self.target, self._tokens, self.live.checkpoints, self.prompt)

    @property
    def n_bytes(self) -> int:
        """Bytes that are moved: out of the KV cache, and back."""
        return 2 * self.target.state_size(self.seq)

    @property
    def _tokens(self) -> TokenIds:
        """All its tokens; -1 in place of those that a running request has appended."""
        unknown = self.target.length(self.seq) - len(self.live.tokens)
        return np.append(self.live.tokens, np.full(max(0, unknown), -1, np.int32))

    def open(self) -> Opened:
        """See `Source`."""
        state = State(
            owner=self.live.owner,
            tokens=self._tokens,
            state=self.target.state(self.seq),
            drafts=self.drafter.state(self.seq, self.live.tokens.tolist()),
        )
        return Opened(self.cut, state, self.live.checkpoints)


@dataclass(frozen=True, slots=True, eq=False)
class FromMemory:
    """A saved state in memory."""

    state: State
    cut: Cut
    place: Place = "memory"

    @property
    def n_bytes(self) -> int:
        """Bytes that are moved."""
        return self.state.n_bytes

    @property
    def rate(self) -> float:
        """Tokens per second of reading when it was saved; 0: unknown."""
        return self.state.rate

    def open(self) -> Opened:
        """See `Source`."""
        return Opened(self.cut, self.state, self.state.checkpoints)


@dataclass(frozen=True, slots=True, eq=False)
class FromDisk:
    """A saved state on disk."""

    disk: DiskStates
    saved: Saved
    cut: Cut
    """Its checkpoint has no bytes yet."""
    place: Place = "disk"

    @property
    def n_bytes(self) -> int:
        """Bytes that are moved."""
        return self.saved.n_bytes

    @property
    def rate(self) -> float:
        """Tokens per second of reading when it was saved; 0: unknown."""
        return self.saved.rate

    def open(self) -> Opened:
        """Read the file.

        Raises:
            DamagedError, OSError: it is of no use; the target is untouched.
        """
        (state, spent), cut = self.disk.load(self.saved), self.cut
        if cut.checkpoint is not None:
            found = [c for c in state.checkpoints if c.length == cut.length]
            if not found:
                raise FileNotFoundError(self.saved.path)  # replaced since it was listed
            cut = Cut(cut.length, found[0])
        return Opened(cut, state, state.checkpoints, spent)


Source = InPlace | FromSequence | FromMemory | FromDisk
"""Ways to begin a prompt."""


def from_disk(
    target: CacheableTarget, disk: DiskStates, saved: Saved, prompt: Sequence[int] | TokenIds
) -> FromDisk:
    """The source that a file is for this prompt."""
    empty = memoryview(b"")
    checkpoints = [Checkpoint(saved.tokens[:n], empty) for n, _ in saved.checkpoints]
    return FromDisk(disk, saved, cut_of_state(target, saved.tokens, checkpoints, token_ids(prompt)))
