"""The target: the model whose output is promised, as the decode round sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import AdapterUse, Blend
from localspec.core.values import Draft, Scores, Tokens


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's share of a target pass."""

    seq: int
    pending: int
    """The last token of the sequence; it is not in the KV cache yet."""
    draft: Draft
    """Tokens that may follow it; empty for plain decoding."""
    rows: int = 0
    """Rows to which the pass is padded, where the target can: a wider pass may be quicker. One
    without a draft has them in any case, if there is room, so that it shows what they cost."""

    def padding(self, rows: int) -> int:
        """How many of the ``rows`` of the pass were added as padding."""
        return max(0, min(rows, self.rows) - 1 - len(self.draft))


class Target(Protocol):
    """The model whose output is promised, and the only owner of its KV cache.

    Hidden states do not pass through this protocol. A head declares when it is loaded which layers
    it needs; the target stores those states with every `read` and `score`, and drops them with
    `keep` and `truncate`. The head reads them from that store
    (`localspec.drafters.heads.eagle.HiddenStates`).
    """

    @property
    def capacity(self) -> int:
        """Tokens that fit into the KV cache for one sequence."""

    @property
    def sequences(self) -> int:
        """Sequences that it can hold, with ids from 0 on."""

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score; 1 is chains only."""

    @property
    def aborts(self) -> bool:
        """Whether a running pass can be aborted; otherwise it runs to its end."""

    def deepest(self, sequences: int) -> int:
        """Most tokens of a draft in a pass over that many sequences, all of which may have as many:
        a pass never becomes wider than the target takes.
        """

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """One pass over every pending token and draft.

        The logits are views that the next pass overwrites.

        Raises:
            PassRefusedError, ContextFullError: one of them asks for what is not possible; the KV
                cache is as before, unless it is recurrent.
            Interrupted, DecodeError: the pass failed; the KV cache is as before it.
        """

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the nodes of ``path`` of its last pass, drop the others."""

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the KV cache, including accepted ones still to be reread."""

    def audit(self, seq: int) -> None:
        """Compare the KV cache with the target's own bookkeeping.

        Raises:
            AuditError: they differ.
        """

    def read(self, seq: int, tokens: Tokens) -> None:
        """Append a part of a prompt to the KV cache, without logits (prefill).

        Raises:
            ContextFullError, Interrupted, DecodeError: tokens read before stay cached.
        """

    def read_within(self, seq: int, tokens: Tokens, seconds: float, rows: int) -> int:
        """As `read`, but return after about so many seconds where there are pictures: they are
        encoded in slices, and their rows are read about so many at a time. Returns how many of the
        tokens were appended. The rows of a picture are once all of them are there; until then it is
        to be called again with them, and what has been done of them is kept as long as nothing else
        is done with the sequence.

        Raises:
            ContextFullError, Interrupted, DecodeError: as `read`.
        """

    def noncausal_rows(self, tokens: Tokens) -> int:
        """Rows that one pass has to read, where the first picture of the tokens is encoded and its
        rows see each other; else 0.
        """

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence.

        Raises:
            DecodeError: this kind of cache cannot be cut there; 0 is always possible.
        """


class SavesState(Protocol):
    """A target whose sequences can be copied out of the KV cache as bytes, and back into it."""

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""

    def state_size(self, seq: int) -> int:
        """Bytes of that state, without what waits for the next pass."""

    def picture_begun(self, seq: int) -> bool:
        """Whether rows of a picture are in the sequence, and not all of them: a call of `state`
        would forget them.
        """

    @property
    def cuts_anywhere(self) -> bool:
        """Whether a sequence, and a restored state, can be truncated to every length.

        Otherwise it is recurrent or has sliding layers, and checkpoints are needed to go back.
        """

    def can_cut(self, saved_length: int, length: int) -> bool:
        """Whether a restored state of ``saved_length`` tokens can be truncated to ``length``."""

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether the sequence can be truncated to ``length`` now."""

    def restore(self, seq: int, state: bytearray | memoryview) -> None:
        """Replace the sequence by a saved state.

        Raises:
            DecodeError: the state is damaged or of another setting; the sequence is then empty.
        """

    def checkpoint_size(self, seq: int) -> int:
        """Bytes of `checkpoint`."""

    def checkpoint(self, seq: int) -> memoryview:
        """The part of the state that a later truncation to the present length cannot bring back:
        the recurrent state, and the KV cache of sliding layers.
        """

    def rewind(self, seq: int, length: int, checkpoint: bytearray | memoryview) -> None:
        """Truncate the sequence to ``length``, at which the checkpoint was taken.

        Raises:
            DecodeError: it cannot; the sequence is then empty.
        """


class CacheableTarget(Target, SavesState, Protocol):
    """A target that a prefix cache can serve."""


class AdaptsSequences(Protocol):
    """A target each of whose sequences may have adapters of its own."""

    def blend(self, uses: Sequence[AdapterUse] | None) -> Blend:
        """The adapters that a request asks for; None: those that the model was loaded with.
        Callable in any thread.

        Raises:
            UsageError: one is not loaded, or named twice.
        """

    def adapt(self, seq: int, blend: Blend) -> None:
        """Read and score the sequence with these adapters from now on. What is in its KV cache was
        read with them, or there is nothing.

        Raises:
            UsageError: one of them was unloaded meanwhile.
        """

    def load_adapter(self, file: AdapterFile, name: str) -> None:
        """Load an adapter that fits the model, by a name. Where that means another one already, it
        means the new one for the blends to come; the one before stays for those that have it.

        Raises:
            UsageError: it stays as it was loaded with the model, or there are too many.
            ModelFileError: llama.cpp refuses it, or it has changed since it was read.
        """

    def unload_adapter(self, name: str) -> None:
        """Take the name of an adapter away, which stays for the blends that have it. One that is
        not loaded is passed over.

        Raises:
            UsageError: it was loaded with the model.
        """

    def free_adapters(self, used: Iterable[Blend]) -> list[int]:
        """Free the adapters that have no name any more, but for those of the blends that are
        ``used``; the sequences that had one of them are returned, and must be emptied.
        """


class ServingTarget(CacheableTarget, AdaptsSequences, Protocol):
    """A target that a scheduler runs."""

    def most_along(self, seq: int) -> int:
        """Tokens that `read_along` takes at most; 0: it is not to be called."""

    def read_along(self, seq: int, tokens: Tokens) -> None:
        """Append the end of a prompt, to be read in the next pass of the sequence, before its
        pending token: one pass less until the first token of a reply.
        """

    def stop_encoding(self, seq: int) -> None:
        """Encode no further picture for a sequence whose reply has ended."""

    def idle(self) -> None:
        """Nothing is computed for a while: what only waits for the next pass may end. Called by
        the thread that computes.
        """

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work`` while a device computes the next pass; now, where the processor computes it.

        One work waits at most: a second one takes its place.
        """
