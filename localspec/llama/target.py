"""The target on llama.cpp: reads prompts, and scores chains and trees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from localspec.core.adapter_list import Blend
from localspec.core.errors import LocalspecError, PassRefusedError
from localspec.core.media_rows import has_rows, runs
from localspec.core.target import Work
from localspec.core.values import Logits, Scores, Tokens, chain_parents, no_draft
from localspec.llama import state as saved
from localspec.llama.context import Context
from localspec.llama.heads.hidden_states import StoredStates
from localspec.llama.pass_layout import PassTimes
from localspec.llama.pass_shapes import PassShapes
from localspec.llama.stream_order import StreamOrder
from localspec.llama.target_sequences import TargetSequences
from localspec.llama.team import end_threads
from localspec.llama.tree_layout import Tree, tree_of
from localspec.models.gguf.sizes import OUTPUTS

_MAX_UNREAD = 16
"""Most unread tokens that are read in the pass of a draft: every rejected draft of a recurrent
model adds to them, and every pass would take longer."""


class LlamaTarget(TargetSequences):
    """A `Target`: the only owner of the target's KV cache."""

    def __init__(
        self,
        context: Context,
        stored: StoredStates | None = None,
        times: PassTimes | None = None,
    ) -> None:
        """``stored`` keeps hidden states of cached tokens, for heads that draft; ``times`` decide
        the shape of passes over several sequences. None: the observed times decide.
        """
        super().__init__(context, stored)
        self._shapes = PassShapes(context, times, hidden=stored is not None)
        self._order = StreamOrder(context, self._shapes)
        if stored is not None:
            stored.tap.open(context.handle)
        self.widths: Counter[int] = Counter()
        """Passes that decoded, by their tokens: they need not be as wide as the drafts."""

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score."""
        return 1 + self._context.branches

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

    def read(
        self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Append a prompt without its last token, which will be pending.

        Unread tokens are read in a separate pass: the passes over a prompt are then as wide as
        those of plain decoding, and llama.cpp computes them with the same kernels.
        """
        known = self._known[seq]
        if not has_rows(tokens[:1]):
            self._stop_seeing(seq)
        if known.unread:
            self._append(seq, known.unread, None)
            self.widths[len(known.unread)] += 1
            known.unread = []  # now only: a pass that fails leaves them to the next one
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
        if not self.cuts_anywhere or self._stored is not None:
            return 0
        strict = self._context.least_rows > 1
        most = self.deepest(1) if strict else self._context.n_batch - 1
        return most - len(self._known[seq].unread)

    def read_along(self, seq: int, tokens: Tokens) -> None:
        """See `ServingTarget`."""
        self._stop_seeing(seq)
        self._known[seq].unread.extend(tokens)

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
        if self._stored is not None:  # heads read hidden states of tokens alone
            self._stored.cut(seq, start)
        return True

    def _append(self, seq: int, tokens: Tokens, on_progress: Callable[[int], None] | None) -> None:
        start, done = self._context.length(seq), 0

        def passed(so_far: int) -> None:
            nonlocal done
            if self._stored is not None and not self._stored.tap.of_outputs:
                rows = self._stored.tap.rows(self._context.handle, so_far - done)
                self._stored.put(seq, start + done, rows)
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

    def idle(self) -> None:
        """End the threads that wait for a pass."""
        end_threads()

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
        asked, work = work, [self._widened(w, len(work)) for w in work]
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
                    self._take_back(seq)
                raise
            for w, rows in zip(group, passed, strict=True):
                found[w.seq] = rows if len(groups) == 1 else rows.copy()
            shape |= own
        return [
            Scores(found[w.seq][: 1 + len(w.draft)], w.padding(shape.get(w.seq, 0))) for w in asked
        ]

    def _widened(self, work: Work, sequences: int) -> Work:
        """A plain pass that is to have more rows, where rows of padding could not be removed or are
        not computed: with tokens instead that are taken back like a rejected draft.
        """
        more, context = work.rows - 1, self._context
        if len(work.draft) or more <= 0 or (sequences == 1 and self._shapes.pads_alone):
            return work
        room = context.capacity - context.length(work.seq) - len(self._known[work.seq].unread)
        if more > self.deepest(sequences) or work.rows > room:
            return work
        tokens = np.full(more, work.pending, np.int32)
        filler = no_draft(work.draft.source)
        return replace(work, draft=replace(filler, tokens=tokens, parents=chain_parents(more)))

    def _alike(self, work: Sequence[Work]) -> list[Sequence[Work]]:
        """The work in lists of the same adapters: a pass has one blend of them."""
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
        context, stored = self._context, self._stored
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
        states = stored is not None and stored.asks_of(sum(widths) + sum(padding), context.outputs)
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
        if stored is not None:
            parts = zip([w.seq for w in work], starts, widths, padding, strict=True)
            stored.take(context.handle, [*parts], asked=states)
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

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""
        self.read(seq, ())
        return saved.state(self._context, seq)

    def checkpoint(self, seq: int) -> memoryview:
        """The part of the state that a later truncation to the present length cannot bring back."""
        self.read(seq, ())
        return memoryview(saved.checkpoint(self._context, seq).state).cast("B")
