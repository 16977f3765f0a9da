"""The target on llama.cpp: scores chains and trees, and owns the KV cache."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.core.adapter_list import AdapterUse, Blend
from localspec.core.errors import AuditError, LocalspecError, PassRefusedError
from localspec.core.media_rows import has_rows, runs
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Scores, Tokens
from localspec.llama import state as saved
from localspec.llama.context import Context
from localspec.llama.heads.hidden_states import Features
from localspec.llama.limits import OUTPUTS
from localspec.llama.pass_layout import PassTimes
from localspec.llama.pass_shapes import PassShapes
from localspec.llama.picture_reading import PictureReading
from localspec.llama.stream_order import StreamOrder
from localspec.llama.team import disband
from localspec.llama.tree_layout import Tree, tree_of

_MAX_UNREAD = 16
"""Most unread tokens that are read in the pass of a draft: every rejected draft of a recurrent
model adds to them, and every pass would take longer."""


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


class LlamaTarget:
    """A `Target`: the only owner of the target's KV cache.

    Attention sums in the order of the cache's cells, so tokens in cells of another order change the
    last bits of every logit after them. Tokens accepted from a side branch of a tree are in such
    cells; they are removed from the cache and *unread*: accepted, and to be read again, in order,
    in front of the next draft. So are the accepted tokens of a pass before which a recurrent state
    was restored.
    """

    def __init__(
        self,
        context: Context,
        features: Features | None = None,
        times: PassTimes | None = None,
    ) -> None:
        """``features`` keeps hidden states of cached tokens, for heads that draft; ``times`` decide
        the shape of passes over several sequences. None: the observed times decide.
        """
        self._context = context
        self._shapes = PassShapes(context, times, hidden=features is not None)
        self._order = StreamOrder(context, self._shapes)
        self._features = features
        if features is not None:
            features.tap.open(context.handle)
        self._known = [_Sequence() for _ in range(context.sequences)]
        """By sequence."""
        self.pictures = PictureReading(context)
        self._blends: dict[int, Blend] = {}
        """The adapters of sequences that have others than the model was loaded with."""
        self.widths: Counter[int] = Counter()
        """Passes that decoded, by their tokens: they need not be as wide as the drafts."""

    @property
    def context(self) -> Context:
        """The context whose cache it owns."""
        return self._context

    @property
    def sequences(self) -> int:
        """Sequences that it can hold."""
        return self._context.sequences

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score."""
        return 1 + self._context.branches

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    @property
    def aborts(self) -> bool:
        """See `Target`: llama.cpp aborts passes on the processor alone."""
        return not self._context.on_device

    def deepest(self, sequences: int) -> int:
        """See `Target`. Several recurrent states must be taken back by what was padded, too."""
        context = self._context
        rows = min(context.widest, self._shapes.share(sequences))
        if sequences > 1 and context.rollback is not None:
            rows = min(rows, 1 + context.rollback)
        return max(0, rows - 1)

    # -- adapters ------------------------------------------------------------------------------

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

    def load_adapter(self, path: Path) -> None:
        """See `localspec.core.target.AdaptsSequences`."""
        self._context.adapt(self._usual)  # it may take the place of one that is computed with
        self._context.model.adapters.add(path)

    def unload_adapter(self, path: Path) -> None:
        """See `localspec.core.target.AdaptsSequences`."""
        self._context.adapt(self._usual)
        self._context.model.adapters.remove(path)

    def adapted(self, path: Path) -> list[int]:
        """See `localspec.core.target.AdaptsSequences`."""
        digest = self._context.model.adapters.digest(path)
        blends = self._blends.items()
        return [seq for seq, blend in blends if digest in {one for one, _ in blend.parts}]

    @property
    def _usual(self) -> Blend:
        return self._context.model.adapters.usual

    def _adapters_of(self, seq: int) -> Blend:
        return self._blends.get(seq) or self._usual

    # -- passes --------------------------------------------------------------------------------

    def read(
        self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Append a prompt without its last token, which will be pending.

        Unread tokens are read in a separate pass: the passes over a prompt are then as wide as
        those of plain decoding, and llama.cpp computes them with the same kernels.
        """
        known = self._known[seq]
        unread, known.unread = known.unread, []
        if not has_rows(tokens[:1]):
            self._stop_seeing(seq)
        if unread:
            self.widths[len(unread)] += 1
            self._append(seq, unread, None)
        if not has_rows(tokens):
            if tokens:
                self._append(seq, tokens, on_progress)
            return
        for start, end, picture in runs(tokens):
            part = tokens[start:end]
            if picture:
                self._append_picture(seq, part)
            else:
                self._append(seq, part, None)
            if on_progress is not None:
                on_progress(end)

    def most_along(self, seq: int) -> int:
        """See `ServingTarget`: what a pass takes before the pending token, in strict mode one of
        those with rows, which its self-test knows. A recurrent state could not be taken back before
        them, and heads read along with the target.
        """
        if not self.cuts_anywhere or self._features is not None:
            return 0
        strict = self._context.least_rows > 1
        most = self.deepest(1) if strict else self._context.n_batch - 1
        return most - len(self._known[seq].unread)

    def read_along(self, seq: int, tokens: Tokens) -> None:
        """See `ServingTarget`."""
        self._stop_seeing(seq)
        self._known[seq].unread += tokens

    def read_within(self, seq: int, tokens: Tokens, seconds: float, rows: int) -> int:
        """See `Target`."""
        until, done = time.perf_counter() + seconds, 0
        if not self.pictures.begun(seq):
            self.read(seq, ())
        for start, end, picture in runs(tokens):
            part = tokens[start:end]
            if not picture:
                self.read(seq, part)
            elif not self._append_picture(seq, part, until, rows):
                break
            done = end
            if time.perf_counter() >= until:
                break
        return done

    def noncausal_rows(self, tokens: Tokens) -> int:
        """See `Target`."""
        return self.pictures.noncausal_rows(tokens)

    def _append_picture(
        self, seq: int, ids: Tokens, until: float | None = None, rows: int | None = None
    ) -> bool:
        """Go on with the rows of a picture until that time; whether all are there."""
        if not self.pictures.continues(seq, ids):
            self._stop_seeing(seq)
        start = self._context.length(seq)
        self._context.adapt(self._adapters_of(seq))
        try:
            if not self.pictures.append(seq, ids, until, rows):
                return False
        except LocalspecError:
            self._forget_lost([seq])
            raise
        self._known[seq].cached = start + len(ids)
        if self._features is not None:  # heads read hidden states of tokens alone
            self._features.cut(seq, start)
        return True

    def stop_encoding(self, seq: int) -> None:
        """See `ServingTarget`."""
        self.pictures.stop_encoding(seq)

    def _stop_seeing(self, seq: int) -> None:
        """Forget the rows of a picture of which not all are there."""
        if self.pictures.stop(seq):
            self._forget_lost([seq])

    def _append(self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None) -> None:
        start, done = self._context.length(seq), 0

        def passed(so_far: int) -> None:
            nonlocal done
            if self._features is not None and not self._features.tap.of_outputs:
                rows = self._features.tap.rows(self._context.handle, so_far - done)
                self._features.put(seq, start + done, rows)
            done = so_far
            self._known[seq].cached = start + so_far
            if on_progress is not None:
                on_progress(so_far)

        self._context.adapt(self._adapters_of(seq))
        try:
            self._context.read(seq, tokens, passed)
        except LocalspecError:
            self._forget_lost([seq])
            raise

    def _forget_lost(self, seqs: Sequence[int]) -> None:
        """Forget what was recorded of tokens that a failed pass removed: a recurrent model has lost
        the whole sequence.
        """
        for seq in seqs:
            length, known = self._context.length(seq), self._known[seq]
            if length < known.cached:
                known.cached, known.unread, known.reversible = length, [], None
                if self._features is not None:
                    self._features.cut(seq, length)

    def idle(self) -> None:
        """End the threads that wait for a pass."""
        disband()

    def meanwhile(self, work: Callable[[], None]) -> None:
        """See `ServingTarget`."""
        if self._context.overlaps:
            self._context.meanwhile = work
        else:
            work()

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """One pass over the pending tokens and drafts, or one for all sequences of the same
        adapters; if it raises, the cache is as before, or empty where the model is recurrent.

        Raises:
            PassRefusedError: a tree, or a draft, that this context has no room for.
            ContextFullError, Interrupted, DecodeError
        """
        if not work:
            return []
        for w in work:
            unread = len(self._known[w.seq].unread)
            most = 0 if len(work) > 1 else self._context.n_batch - 1
            if len(w.draft):  # the rows of a draft would all wait for them
                most = min(most, _MAX_UNREAD, OUTPUTS - 1 - len(w.draft))
            if unread > most:
                self.read(w.seq, ())
        if len(work) > 1:
            self._arrange(work)
        ordered = sorted(work, key=lambda w: self._context.stream(w.seq))
        groups = [group for alike in self._alike(ordered) for group in self._shapes.groups(alike)]
        found: dict[int, Logits] = {}
        shape: dict[int, int] = {}
        for group in groups:
            unread = len(self._known[group[0].seq].unread)
            own = self._shapes.of(group, unread, whole=len(groups) == 1)
            try:
                passed = self._pass(group, own)
            except LocalspecError:
                for seq in found:  # of the passes before this one
                    self._shorten(seq, self._known[seq].base)
                raise
            for w, rows in zip(group, passed, strict=True):
                found[w.seq] = rows if len(groups) == 1 else rows.copy()
            shape |= own
        return [Scores(found[w.seq], w.padding(shape.get(w.seq, 0))) for w in work]

    def _alike(self, work: Sequence[Work]) -> list[Sequence[Work]]:
        """The same, apart by adapters: a pass has one blend of them."""
        if not self._blends:
            return [work]
        found: dict[Blend, list[Work]] = {}
        for w in work:
            found.setdefault(self._adapters_of(w.seq), []).append(w)
        return [*found.values()]

    def _arrange(self, work: Sequence[Work]) -> None:
        """Give a sequence another stream, where that pays."""
        try:
            self._order.arrange({w.seq: 1 + len(w.draft) for w in work})
        except LocalspecError:
            self._forget_lost(range(self.sequences))
            raise

    def _pass(self, work: Sequence[Work], shape: Mapping[int, int]) -> list[Logits]:
        """Logits of one pass of this shape; records what it put into the cache."""
        context, features = self._context, self._features
        context.adapt(self._adapters_of(work[0].seq))
        padding = [max(0, shape.get(w.seq, 0) - 1 - len(w.draft)) for w in work]
        idle = shape.keys() - {w.seq for w in work}
        starts = [context.appended(w.seq) for w in work]
        chains: list[tuple[int, list[int], int]] = []
        for w, more in zip(work, padding, strict=True):
            known = self._known[w.seq]
            read = [*known.unread, w.pending, *w.draft.tokens.tolist()]
            chains.append((w.seq, read, 1 + len(w.draft)))
            known.reversible = None
            if context.rollback is not None and len(w.draft) + more > context.rollback:
                known.reversible = saved.snapshot(context, w.seq), read
        widths = [len(read) for _, read, _ in chains]
        states = features is not None and features.asks_of(
            sum(widths) + sum(padding), context.outputs
        )
        broad = next((w for w in work if not w.draft.is_chain), None)
        try:
            if broad is not None:
                tree, (_, read, _) = self._tree(broad, work), chains[0]
                stem = read[: len(read) - len(broad.draft)]
                rows = [context.forward_tree(stem, tree, states=states)]
            else:
                rows = self._shapes.forward(
                    chains, padding, {seq: shape[seq] for seq in idle}, states=states
                )
        except LocalspecError:
            self._forget_lost([w.seq for w in work])
            raise
        for w, start, width, more in zip(work, starts, widths, padding, strict=True):
            known = self._known[w.seq]
            known.base = start + width - 1 - len(w.draft)
            known.scored = w.draft if broad is not None else None
            known.unread, known.cached = [], context.appended(w.seq)
            self.widths[width + more] += 1
        if features is not None:
            parts = zip([w.seq for w in work], starts, widths, padding, strict=True)
            features.take(context.handle, [*parts], asked=states)
        return rows

    def _tree(self, broad: Work, work: Sequence[Work]) -> Tree:
        source, tree = broad.draft.source, tree_of(broad.draft)
        if len(work) > 1 or broad.seq != 0:
            raise PassRefusedError(f"drafter {source!r} proposed a tree for a batch")
        if len(tree.leaves) > self.leaves:
            raise PassRefusedError(
                f"drafter {source!r} proposed a tree of {len(tree.leaves)} leaves, and this "
                f"context scores {self.leaves}"
            )
        return tree

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the accepted run."""
        known, in_place = self._known[seq], len(path)
        tree, known.scored = known.scored, None
        if tree is not None:
            in_place = next((i for i, node in enumerate(path) if node != i), len(path))
            known.unread = [int(tree.tokens[node]) for node in path[in_place:]]
        self._shorten(seq, known.base + 1 + in_place)
        if self._features is not None:
            self._features.select(seq, known.base + 1, path)

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
            self._context.truncate(seq, known.base + 1)
        cached = self._context.length(seq)
        known.unread = known.unread[: max(0, length - cached)]
        self._context.truncate(seq, length)
        known.cached = min(cached, length)
        if self._features is not None:
            self._features.cut(seq, length)

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

    def can_cut(self, saved_length: int, length: int) -> bool:
        """Whether a restored state of ``saved_length`` tokens can be truncated to ``length``."""
        return self._context.can_cut(saved_length, length)

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""
        self.read(seq, ())
        return saved.state(self._context, seq)

    def state_size(self, seq: int) -> int:
        """Bytes of what is in the cache."""
        return saved.state_size(self._context, seq)

    def picture_begun(self, seq: int) -> bool:
        """See `localspec.core.target.SavesState`."""
        return self.pictures.begun(seq)

    def restore(self, seq: int, state: bytearray | memoryview) -> None:
        """Put one in its place.

        Raises:
            DecodeError: it is damaged or of another setting; the sequence is then empty.
        """
        self.truncate(seq, 0)
        saved.restore(self._context, seq, state)
        self._known[seq].cached = self._context.length(seq)

    @property
    def cuts_anywhere(self) -> bool:
        """Whether a sequence, and a restored state, can be truncated to every length."""
        return self._context.cuts_anywhere

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether `truncate` to ``length`` would succeed now."""
        cached = self._context.length(seq)
        return length >= cached or self._context.can_truncate(seq, length)

    def checkpoint_size(self, seq: int) -> int:
        """Bytes of `checkpoint`."""
        return saved.checkpoint_size(self._context, seq)

    def checkpoint(self, seq: int) -> memoryview:
        """The part of the state that a later truncation to the present length cannot bring back."""
        self.read(seq, ())
        return memoryview(saved.checkpoint(self._context, seq).state).cast("B")

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
            if self._features is not None:
                self._features.cut(seq, known.cached)
