"""The sequences of a target: what of them is in the KV cache, and how they go back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import AdapterUse, Blend
from localspec.core.errors import AuditError, DecodeError
from localspec.core.values import Draft, Tokens
from localspec.llama import state as saved
from localspec.llama.context import Context
from localspec.llama.heads.hidden_states import StoredStates
from localspec.llama.picture_reading import PictureReading


@dataclass(slots=True)
class _Sequence:
    """What the target knows of a sequence, beside its context."""

    cached: int = 0
    """Tokens in the cache, by localspec's own record."""
    base: int = 0
    """Place of the pending token in the last pass."""
    scored: Draft | None = None
    """A tree that was scored, and of which `keep` was not called yet."""
    reversible: tuple[saved.Snapshot, list[int]] | None = None
    """The recurrent state before the last pass, and what that read."""
    unread: list[int] = field(default_factory=list)
    """Accepted tokens that the next pass reads first."""


class TargetSequences:
    """What passes put into the cache, until it is kept, truncated, or replaced by a saved state.

    Attention sums in the order of the cache's cells, so tokens in cells of another order change the
    last bits of every logit after them. Tokens accepted from a side branch of a tree are in such
    cells; they are removed from the cache and *unread*: accepted, and to be read again, in order,
    in front of the next draft. So are the accepted tokens of a pass before which a recurrent state
    was restored.
    """

    def __init__(self, context: Context, stored: StoredStates | None) -> None:
        """``stored`` keeps hidden states of cached tokens."""
        self._context = context
        self._stored = stored
        self._known = [_Sequence() for _ in range(context.sequences)]
        """By sequence."""
        self.pictures = PictureReading(context)
        self._blends: dict[int, Blend] = {}
        """The adapters of sequences that have others than the model was loaded with."""

    @property
    def context(self) -> Context:
        """The context whose cache it owns."""
        return self._context

    @property
    def sequences(self) -> int:
        """Sequences that it can hold."""
        return self._context.sequences

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    @property
    def cuts_anywhere(self) -> bool:
        """Whether a sequence, and a restored state, can be truncated to every length."""
        return self._context.cuts_anywhere

    # -- adapters ----------------------------------------------------------------------------

    def blend(self, uses: Sequence[AdapterUse] | None) -> Blend:
        """See `localspec.core.target.AdaptsSequences`."""
        return self._context.model.adapters.blend(uses)

    def adapt(self, seq: int, blend: Blend) -> None:
        """See `localspec.core.target.AdaptsSequences`."""
        adapters = self._context.model.adapters
        if blend == adapters.usual:
            self._blends.pop(seq, None)
        else:
            adapters.require(blend)
            self._blends[seq] = blend

    def load_adapter(self, file: AdapterFile, name: str) -> None:
        """See `localspec.core.target.AdaptsSequences`."""
        self._context.model.adapters.add(file, name)

    def unload_adapter(self, name: str) -> None:
        """See `localspec.core.target.AdaptsSequences`."""
        self._context.model.adapters.remove(name)

    def free_adapters(self, used: Iterable[Blend]) -> list[int]:
        """See `localspec.core.target.AdaptsSequences`."""
        adapters = self._context.model.adapters
        if not (unnamed := adapters.unnamed()):
            return []
        gone = unnamed.difference(*(blend.digests for blend in used))
        if not gone:
            return []
        self._context.adapt(self._usual)  # it may compute with one of them
        adapters.free(gone)
        return [seq for seq, blend in self._blends.items() if gone & blend.digests]

    @property
    def _usual(self) -> Blend:
        return self._context.model.adapters.usual

    def _adapters_of(self, seq: int) -> Blend:
        return self._blends.get(seq) or self._usual

    # -- pictures ----------------------------------------------------------------------------

    def noncausal_rows(self, tokens: Tokens) -> int:
        """See `Target`."""
        return self.pictures.noncausal_rows(tokens)

    def picture_begun(self, seq: int) -> bool:
        """See `localspec.core.target.SavesState`."""
        return self.pictures.begun(seq)

    def stop_encoding(self, seq: int) -> None:
        """See `ServingTarget`."""
        self.pictures.stop_encoding(seq)

    def _stop_seeing(self, seq: int) -> None:
        """Forget the rows of a picture of which not all are there."""
        if self.pictures.stop(seq):
            self._forget_lost([seq])

    # -- going back --------------------------------------------------------------------------

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the accepted run."""
        known, in_place = self._known[seq], len(path)
        tree, known.scored = known.scored, None
        if tree is not None:
            in_place = next((i for i, node in enumerate(path) if node != i), len(path))
            known.unread = [int(tree.tokens[node]) for node in path[in_place:]]
        self._shorten(seq, known.base + 1 + in_place)
        if self._stored is not None:
            self._stored.select(seq, known.base + 1, path)

    def _shorten(self, seq: int, length: int) -> None:
        """Forget the rejected tokens of the last pass.

        A recurrent state that cannot be taken back so far goes back to where it was before the
        pass; what is kept of that is read again in front of the next one.
        """
        known = self._known[seq]
        reversible, known.reversible = known.reversible, None
        rejected = self._context.appended(seq) - length
        if reversible is None or rejected <= (self._context.rollback or 0):
            self._context.truncate(seq, length)
        else:
            snapshot, read = reversible
            saved.revert(self._context, seq, snapshot)
            known.unread = read[: length - snapshot.length]
            length = snapshot.length
        known.cached = length

    def _take_back(self, seq: int) -> None:
        """Forget what the last pass decoded, of a recurrent state perhaps all that there is."""
        try:
            self._shorten(seq, self._known[seq].base)
        except DecodeError:
            self.truncate(seq, 0)

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence, for the next turn's prefix.

        Raises:
            DecodeError: a recurrent state cannot be taken back so far.
        """
        self._stop_seeing(seq)
        known = self._known[seq]
        known.reversible = None
        if known.scored is not None:  # and never decided
            known.scored = None
            self._context.truncate(seq, min(length, known.base + 1))
        cached = self._context.length(seq)
        known.unread = known.unread[: max(0, length - cached)]
        self._context.truncate(seq, length)
        known.cached = min(cached, length)
        if self._stored is not None:
            self._stored.cut(seq, length)

    def _forget_lost(self, seqs: Sequence[int]) -> None:
        """Forget what was recorded of tokens that a failed pass removed: a recurrent model has lost
        the whole sequence.
        """
        for seq in seqs:
            length, known = self._context.length(seq), self._known[seq]
            if length < known.cached:
                known.cached, known.unread, known.reversible = length, [], None
                if self._stored is not None:
                    self._stored.cut(seq, length)

    # -- facts and saved states --------------------------------------------------------------

    def length(self, seq: int) -> int:
        """Tokens of the sequence, as llama.cpp itself has it, and those to be read again."""
        return self._context.length(seq) + len(self._known[seq].unread)

    def audit(self, seq: int) -> None:
        """Compare the sequence's length with localspec's record, and limit what is unread.

        Raises:
            AuditError: they differ, or more is unread than one pass leaves.
        """
        self._context.audit(seq)
        cached, known = self._context.appended(seq), self._known[seq]
        if cached != known.cached:
            raise AuditError(f"KV cache of {cached} tokens; expected {known.cached}")
        unread, most = len(known.unread), self._context.n_batch - 1
        if unread > most:
            raise AuditError(f"{unread} tokens are to be read again; at most {most} may be")

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether `truncate` to ``length`` would succeed now."""
        cached = self._context.length(seq)
        return length >= cached or self._context.can_truncate(seq, length)

    def can_cut(self, saved_length: int, length: int) -> bool:
        """Whether a restored state of ``saved_length`` tokens can be truncated to ``length``."""
        return self._context.can_cut(saved_length, length)

    def state_size(self, seq: int) -> int:
        """Bytes of what is in the cache."""
        return saved.state_size(self._context, seq)

    def restore(self, seq: int, state: bytearray | memoryview) -> None:
        """Put one in its place.

        Raises:
            DecodeError: it is damaged or of another setting; the sequence is then empty.
        """
        self.truncate(seq, 0)
        saved.restore(self._context, seq, state)
        self._known[seq].cached = self._context.length(seq)

    def checkpoint_size(self, seq: int) -> int:
        """Bytes of `checkpoint`."""
        return saved.checkpoint_size(self._context, seq)

    def rewind(self, seq: int, length: int, checkpoint: bytearray | memoryview) -> None:
        """Truncate to ``length``, at which the checkpoint was taken.

        Raises:
            DecodeError: llama.cpp refuses it; the sequence is then empty.
        """
        self._stop_seeing(seq)
        known = self._known[seq] = _Sequence()
        try:
            saved.revert(self._context, seq, saved.Snapshot(length, checkpoint))
        finally:
            known.cached = self._context.length(seq)
            if self._stored is not None:
                self._stored.cut(seq, known.cached)
