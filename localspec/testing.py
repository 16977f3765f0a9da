"""A target and a draft model that are tables: the whole loop runs on them, exactly and instantly.

Public: tests of drafters, verifiers and policies written elsewhere may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import AS_LOADED, AdapterUse, Blend
from localspec.core.errors import DecodeError, UsageError
from localspec.core.events import FinishReason
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, RequestState
from localspec.core.target import Work
from localspec.core.values import Extension, Logits, Scores, Tokens
from localspec.decode.request import StopRule
from localspec.policy import Policy

Table = Callable[[Tokens], Logits]
"""Logits (V,) after the given tokens."""


class TableTarget:
    """A `ServingTarget` that looks its logits up. Its KV cache is a list of tokens."""

    aborts = True

    def __init__(
        self,
        table: Table,
        capacity: int = 1 << 20,
        leaves: int = 256,
        sequences: int = 8,
        *,
        cuts_anywhere: bool = True,
    ) -> None:
        """With ``cuts_anywhere`` false, sequences behave as those of a recurrent model."""
        self.cuts_anywhere = cuts_anywhere
        self.table = table
        self.capacity = capacity
        self.sequences = sequences
        self.leaves = leaves
        self.cache: dict[int, list[int]] = {}
        self._last: dict[int, Work] = {}

    def read(self, seq: int, tokens: Tokens) -> None:
        """Append to the cache: a prompt less its last token, for example."""
        self.cache.setdefault(seq, []).extend(tokens)

    def most_along(self, seq: int) -> int:  # noqa: ARG002 - the protocol's
        """All, unless it behaves as a recurrent model."""
        return self.capacity if self.cuts_anywhere else 0

    def read_along(self, seq: int, tokens: Tokens) -> None:
        """Append them now: a table has no passes."""
        self.read(seq, tokens)

    def read_within(self, seq: int, tokens: Tokens, seconds: float, rows: int) -> int:
        """Append all: a table sees no pictures."""
        del seconds, rows
        self.read(seq, tokens)
        return len(tokens)

    def noncausal_rows(self, tokens: Tokens) -> int:  # noqa: ARG002 - the protocol's
        """See `Target`: there are no pictures."""
        return 0

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens.

        Raises:
            DecodeError: it cannot be truncated there.
        """
        self._last.pop(seq, None)
        if not self.can_truncate(seq, length):
            raise DecodeError("this table cannot be truncated")
        del self.cache.setdefault(seq, [])[length:]

    def deepest(self, sequences: int) -> int:
        """No limit."""
        del sequences
        return self.capacity

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """Row 0 after the pending token, row 1 + i after node i."""
        self._last |= {w.seq: w for w in work}
        return [Scores(np.stack([self._row(w, i) for i in range(-1, len(w.draft))])) for w in work]

    def blend(self, uses: Sequence[AdapterUse] | None) -> Blend:
        """What a table was made with.

        Raises:
            UsageError: adapters are asked for.
        """
        if uses:
            raise UsageError("a table has no adapters")
        return AS_LOADED

    def adapt(self, seq: int, blend: Blend) -> None:
        """There is one blend."""

    def load_adapter(self, file: AdapterFile, name: str) -> None:  # noqa: ARG002 - the protocol's
        """Refuse it.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"a table cannot use {file.path.name}")

    def unload_adapter(self, name: str) -> None:
        """None is loaded."""

    def free_adapters(self, used: Iterable[Blend]) -> list[int]:
        """There are none."""
        del used
        return []

    def stop_encoding(self, seq: int) -> None:
        """Nothing is encoded."""

    def idle(self) -> None:
        """Nothing waits for a pass."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """No device computes."""
        work()

    def _row(self, work: Work, node: int) -> Logits:
        return self.table([*self.cache.get(work.seq, ()), work.pending, *work.draft.prefix(node)])

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Append the pending token and the path to the cache."""
        work = self._last.pop(seq)
        cache = self.cache.setdefault(seq, [])
        cache += [work.pending, *(int(work.draft.tokens[i]) for i in path)]

    def length(self, seq: int) -> int:
        """Tokens cached."""
        return len(self.cache.get(seq, ()))

    def audit(self, seq: int) -> None:
        """There is no second bookkeeping to compare with."""

    def can_cut(self, saved_length: int, length: int) -> bool:
        """Whether a restored state can be truncated to ``length``."""
        return self.cuts_anywhere or length == 0 or length >= saved_length

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether the sequence can be truncated to ``length``."""
        return self.can_cut(self.length(seq), length)

    def state(self, seq: int) -> memoryview:
        """The tokens as bytes."""
        return memoryview(bytearray(np.array(self.cache.get(seq, ()), np.int32).tobytes()))

    def state_size(self, seq: int) -> int:
        """Bytes of `state`."""
        return 4 * self.length(seq)

    def picture_begun(self, seq: int) -> bool:  # noqa: ARG002 - the protocol's
        """Tables see nothing."""
        return False

    def restore(self, seq: int, state: bytearray | memoryview) -> None:
        """Replace the sequence by a saved state.

        Raises:
            DecodeError: it is none; the sequence is then empty.
        """
        self._last.pop(seq, None)
        self.cache[seq] = []
        if len(state) % 4:
            raise DecodeError("this is no state of a table")
        self.cache[seq] = np.frombuffer(state, np.int32).tolist()

    def checkpoint_size(self, seq: int) -> int:
        """Bytes of `checkpoint`."""
        return self.state_size(seq)

    def checkpoint(self, seq: int) -> memoryview:
        """The tokens as bytes, as `state`."""
        return self.state(seq)

    def rewind(self, seq: int, length: int, checkpoint: bytearray | memoryview) -> None:
        """The sequence is what the checkpoint says, whatever it was.

        Raises:
            DecodeError: the checkpoint is of another length; the sequence is then empty.
        """
        self.restore(seq, checkpoint)
        if self.length(seq) != length:
            self.cache[seq] = []
            raise DecodeError("this checkpoint is of another length")


class TableModel:
    """A `DraftModel` that looks its logits up."""

    def __init__(self, table: Table, capacity: int = 1 << 20) -> None:
        self.table = table
        self.capacity = capacity
        self.vocabulary = len(table([]))
        self.cache: dict[int, list[int]] = {}

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append, and look up."""
        found = []
        for seq, tokens, rows in work:
            cache = self.cache.setdefault(seq, [])
            cache.extend(tokens)
            ends = range(len(cache) - rows + 1, len(cache) + 1)
            found.append(np.array([self.table(cache[:end]) for end in ends]))
        return found

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens."""
        del self.cache.setdefault(seq, [])[length:]


class Fixed(Policy):
    """The same draft length every round, for whichever drafter comes first."""

    def __init__(self, k: int) -> None:
        self._plan = DraftPlan((DraftStep(ANY, Budget.chain(k)),))

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """The same plan for every request."""
        return [self._plan] * len(states)


class StopAt(StopRule):
    """A `StopRule` that ends a reply at one token."""

    def __init__(self, end: int | None, *, ahead: bool = True) -> None:
        """With ``ahead`` the verifier is told of the token, as it is of a model's end tokens."""
        self._end = end
        if ahead and end is not None:
            self.end_ids = frozenset({end})

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """The token's id as text."""
        return f"{token} ", "stop" if token == self._end else None
