"""The sequences of a KV cache: their lengths, their streams, and how far they can be truncated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from localspec.core.errors import AuditError, DecodeError
from localspec.llama.batch import Batch
from localspec.llama.library import brief, c_api
from localspec.llama.model import Model
from localspec.llama.tree_layout import Tree

_last_position = brief(c_api.llama_memory_seq_pos_max)
_remove = brief(c_api.llama_memory_seq_rm)


class Span(NamedTuple):
    """A picture in a sequence whose rows share positions (M-RoPE), or were left out: a draft model
    that cannot see.
    """

    start: int
    """Tokens and rows before it."""
    rows: int
    positions: int
    """Positions after it go on as if it were so many tokens."""


class Sequences:
    """Sequences in a KV cache, extended at their ends and truncated, never edited."""

    def __init__(
        self, memory: Any, model: Model, n_seq: int, branches: int, rollback: int | None
    ) -> None:
        """``memory`` is llama.cpp's, empty, for ``n_seq`` sequences and those of ``branches``; a
        recurrent state in it can be taken back by ``rollback`` tokens, None: there is none.
        """
        self._memory = memory
        self._chunked = model.chunked
        self._lengths = [0] * n_seq
        self._streams = list(range(n_seq + branches))
        """Number that llama.cpp has for each sequence, see `stream`; those of branches follow."""
        self.spans: list[list[Span]] = [[] for _ in range(n_seq)]
        """Pictures of each sequence, in order, whose rows share positions."""
        self.unfinished: set[int] = set()
        """Sequences with the first rows of a picture, which count when all of them are there."""
        self._branches = BranchSequences(memory, branches, self._shared_place)
        self._revocable: dict[int, int] = {}
        """Tokens of the last pass that a recurrent state could be taken back by, once."""
        self.window = model.window if model.partial_removal else 0
        """Tokens that sliding layers see, and that must be there before what is kept; 0: all."""
        self.rollback = rollback
        """Most tokens of the last pass that truncation can remove; None: any number."""

    @property
    def cuts_anywhere(self) -> bool:
        """Whether a sequence, and a restored state, can be truncated to every length."""
        return not self.window and self.rollback is None

    def stream(self, seq: int) -> int:
        """The number that llama.cpp has for the sequence: passes over neighbours are computed in
        one part. See `localspec.llama.stream_order`.
        """
        return self._streams[seq]

    def exchange(self, a: int, b: int) -> None:
        """Exchange the streams of two sequences that are both empty.

        Raises:
            AuditError: one of them holds tokens.
        """
        if self._lengths[a] or self._lengths[b]:
            raise AuditError("a sequence that holds tokens cannot change its stream")
        streams = self._streams
        streams[a], streams[b] = streams[b], streams[a]

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the cache, as llama.cpp itself has it; rows count as tokens."""
        if seq in self.unfinished:
            return self._lengths[seq]
        end = int(_last_position(self._memory, self._streams[seq])) + 1
        spans = self.spans[seq] if seq < len(self.spans) else self.spans[0]
        return end if not spans else self._length_at(spans, end)

    @staticmethod
    def _length_at(spans: list[Span], end: int) -> int:
        """Tokens and rows of a sequence whose last position is the one before ``end``."""
        ahead = 0
        for span in spans:
            begins = span.start - ahead
            if end < begins or (end == begins and span.positions):
                break
            # Its rows may all have its first position. Several spans of none may touch.
            if span.positions and end <= begins + span.positions:
                return span.start + span.rows
            ahead += span.rows - span.positions
        return end + ahead

    def place(self, seq: int, length: int) -> int:
        """The position that llama.cpp has for what follows the first ``length`` tokens."""
        spans = self.spans[seq]
        if not spans:
            return length
        return length - sum(s.rows - s.positions for s in spans if s.start < length)

    def _shared_place(self, length: int) -> int:
        return self.place(0, length)

    def appended(self, seq: int) -> int:
        """Tokens of the sequence by localspec's record, which `audit` compares with `length`; an
        upper bound after a tree.
        """
        return self._lengths[seq]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence. With 0 llama.cpp has none of it any
        more, whatever the record says: what disagreed does not any longer.

        Raises:
            DecodeError: this kind of cache cannot forget a part of a sequence.
            AuditError: no sequence has fewer tokens than none.
        """
        if length < 0:
            raise AuditError(f"a sequence was to be truncated to {length} tokens")
        if 0 < length >= self._lengths[seq]:
            return
        if length > 0 and self._lengths[seq] - length > self._taken_back(seq):
            # llama.cpp would take the state back further than it kept it, to something else.
            raise DecodeError("this model's recurrent state cannot be taken back so far")
        if length > 0 and self._begins(seq) > self._sees_from(self.place(seq, length)):
            # A state from disk has no more of sliding layers than the last token saw.
            raise DecodeError("what this model's sliding layers would see is gone")
        if not _remove(self._memory, self._streams[seq], self.place(seq, length), -1):
            raise DecodeError("this model's cache cannot be truncated")
        self._lengths[seq] = length
        self.forget_spans(seq, length)
        self._branches.cut(length)

    def skip(self, seq: int, rows: int) -> None:
        """Count the rows of a picture that is not read."""
        self.spans[seq].append(Span(self._lengths[seq], rows, 0))
        self._lengths[seq] += rows
        self._revocable.pop(seq, None)

    def forget_spans(self, seq: int, length: int) -> None:
        """Forget the pictures after the first ``length`` tokens, which are gone."""
        if self.spans[seq]:
            self.spans[seq] = [span for span in self.spans[seq] if span.start < length]

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether `truncate` to ``length`` would succeed now."""
        if length >= self._lengths[seq] or length <= 0:
            return True
        back = self._lengths[seq] - length
        if self.rollback is not None and back > min(self.rollback, self._revocable.get(seq, 0)):
            return False
        return self._begins(seq) <= self._sees_from(self.place(seq, length))

    def _begins(self, seq: int) -> int:
        """First token that all layers still have, which only sliding ones may not."""
        if not self.window:
            return 0
        return int(c_api.llama_memory_seq_pos_min(self._memory, self._streams[seq]))

    def _sees_from(self, position: int) -> int:
        """First token that a sliding layer sees of the text before ``position``."""
        if not self.window:
            return 0
        if self._chunked:
            return position // self.window * self.window
        return max(0, position + 1 - self.window)

    def can_cut(self, saved: int, length: int) -> bool:
        """Whether a sequence that was restored from a state of ``saved`` tokens can be truncated to
        ``length``: a recurrent state cannot, and sliding layers have only what the last token saw.
        """
        if length >= saved or length == 0:
            return True
        return self.rollback is None and self._sees_from(saved - 1) <= self._sees_from(length)

    def _taken_back(self, seq: int) -> int:
        """Tokens by which the sequence can be taken back now; with a recurrent state, once."""
        if self.rollback is None:
            return self._lengths[seq]
        return min(self.rollback, self._revocable.pop(seq, 0))

    @property
    def sequences(self) -> int:
        """Sequences that it holds, without those for branches."""
        return len(self._lengths)

    @property
    def branches(self) -> int:
        """Leaves that a tree may have beyond the first."""
        return len(self._branches.shared)

    def _undo(self, seqs: Iterable[int]) -> None:
        """Forget what a failed pass may have left behind."""
        for seq in seqs:
            lost = self.rollback is not None  # a recurrent state knows no way back but to nothing
            stream, length = self._streams[seq], self._lengths[seq]
            place = self.place(seq, length)
            lost = lost or not c_api.llama_memory_seq_rm(self._memory, stream, place, -1)
            if lost or (length and self._begins(seq) > self._sees_from(place)):
                self.truncate(seq, 0)

    def adopt(self, seq: int) -> None:
        """Update the length of a sequence that changed by other ways than a pass."""
        self._lengths[seq] = self.length(seq)
        self._revocable.pop(seq, None)  # the states before are those of another pass

    def audit(self, only: int | None = None) -> None:
        """Compare our lengths with llama.cpp's: of one sequence, None: of all; of branches always.
        Not between a tree and `truncate`.

        Raises:
            AuditError: they differ.
        """
        for seq, length in enumerate((*self._lengths, *self._branches.shared)):
            looked_at = only in {None, seq} or seq >= len(self._lengths)
            if looked_at and self.length(seq) != length:
                raise AuditError(f"KV cache of {self.length(seq)} tokens, expected {length}")


class BranchSequences:
    """Sequences 1, 2 and so on, each with the first tokens of sequence 0."""

    def __init__(self, memory: Any, count: int, place: Callable[[int], int]) -> None:
        """``place`` gives the position after so many tokens of sequence 0."""
        self._memory = memory
        self._place = place
        self.shared = [0] * count
        """Tokens of sequence 0 that each branch's sequence shares, from the first on; after a tree
        more than that, until `cut`."""
        self._stem_end: int | None = None
        """Where the tree of the last pass begins, until `cut`."""

    def share(self, branch: int, length: int) -> None:
        """Let a branch's sequence hold the first ``length`` tokens of sequence 0."""
        shared = self.shared[branch]
        if shared < length:
            begin, end = self._place(shared), self._place(length)
            c_api.llama_memory_seq_cp(self._memory, 0, 1 + branch, begin, end)
            self.shared[branch] = length

    def place(self, batch: Batch, tree: Tree, start: int, stem: int) -> None:
        """Set the sequences of a pass over ``stem`` tokens of sequence 0 from ``start`` on, and a
        tree after them.
        """
        everywhere = [*range(max(1, len(tree.leaves)))]
        for branch in everywhere[:-1]:
            self.share(branch, start)
        for i, seqs in enumerate((*[everywhere] * stem, *tree.below)):
            batch.seqs[i, : len(seqs)] = seqs
            batch.seq_counts[i] = len(seqs)
        self._stem_end = start + stem
        for branch in everywhere[:-1]:
            self.shared[branch] = start + stem + len(tree.tokens)

    def cut(self, length: int) -> None:
        """Follow sequence 0, which now has ``length`` tokens: the tree after them is gone."""
        common = length if self._stem_end is None else min(length, self._stem_end)
        self._stem_end = None
        for branch, shared in enumerate(self.shared):
            if shared > common or not common:
                c_api.llama_memory_seq_rm(self._memory, 1 + branch, self._place(common), -1)
                self.shared[branch] = common
