"""The shapes of a target's passes: rows of each sequence, and of idle ones between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.core.target import Work
from localspec.core.values import Logits
from localspec.llama.context import Context
from localspec.llama.limits import OUTPUTS
from localspec.llama.pass_layout import PassTimes, padded


def pads_alone(context: Context, *, hidden: bool) -> bool:
    """Whether a pass over one sequence may have rows of padding only because it is quicker then.

    What slides out of a window does not come back when rows are removed, and a recurrent state is
    not taken back twice. Where rows are padded anyway, their number is no matter of speed.
    """
    cuts = not context.window and context.rollback is None
    return cuts and not hidden and context.least_rows == 1


class PassShapes:
    """Chooses the shapes of passes over one context, and computes passes with idle sequences."""

    def __init__(self, context: Context, times: PassTimes, *, hidden: bool) -> None:
        """``times`` of this machine decide; ``hidden``: whether hidden states are kept."""
        self._context = context
        self._times = times
        self._pads_alone = pads_alone(context, hidden=hidden)
        # Rows of idle sequences are removed like padding.
        self._fills = not context.window and context.rollback is None and not hidden

    def of(self, work: Sequence[Work], unread: int = 0) -> dict[int, int]:
        """Rows of each sequence in the pass, so that llama.cpp computes it in few parts; also of
        idle ones, to close gaps. ``work`` is in the order of ids; so many ``unread`` tokens go
        before that of a sequence that is alone.
        """
        context = self._context
        needed = {w.seq: 1 + len(w.draft) for w in work}
        if context.least_rows > 1:  # parts of unequal rows could leave single ones
            needed = dict.fromkeys(needed, self._widest(work))
        if len(work) == 1:
            (one,) = work
            if self._pads_alone and not unread and one.draft.is_chain and self._has_room(one):
                needed[one.seq] = max(needed[one.seq], one.rows)
            return needed
        idle = [*range(work[0].seq, work[-1].seq)] if self._fills else []
        room = {seq: context.capacity - context.length(seq) for seq in (*needed, *idle)}
        return padded(needed, room, self._times, idle)

    def _has_room(self, work: Work) -> bool:
        """Whether the rows that it had better have fit into the context and into a pass."""
        context = self._context
        room = context.capacity - context.length(work.seq)
        return work.rows <= min(room, OUTPUTS, context.outputs, context.n_batch)

    def _widest(self, work: Sequence[Work]) -> int:
        """Rows of the longest draft with its pending token, and no fewer than a pass may have."""
        return max(self._context.least_rows, *(1 + len(w.draft) for w in work))

    def too_wide(self, work: Sequence[Work]) -> bool:
        """Whether rows must be equal, and one of the sequences has no room for that many."""
        context = self._context
        spare = context.least_rows - 1
        if not spare or len(work) == 1:
            return False
        fullest = max(context.length(w.seq) for w in work)
        return fullest + self._widest(work) > context.capacity + spare

    def forward(
        self,
        chains: Sequence[tuple[int, list[int], int]],
        padding: Sequence[int],
        idle: Mapping[int, int],
        *,
        states: bool,
    ) -> list[Logits]:
        """Logits of a pass over chains, see `Context.forward`, among rows of ``idle`` sequences
        that are removed again.
        """
        if not idle:
            return self._context.forward(chains, states=states, padding=padding)
        lengths = {seq: self._context.length(seq) for seq in idle}
        filled = sorted(
            [
                *zip(chains, padding, strict=True),
                *(((seq, [], 0), rows) for seq, rows in idle.items()),
            ],
            key=lambda item: item[0][0],
        )
        try:
            found = self._context.forward(
                [one for one, _ in filled], states=states, padding=[n for _, n in filled]
            )
        finally:
            for seq, length in lengths.items():
                self._context.truncate(seq, length)
        kept = [one[0] not in idle for one, _ in filled]
        return [rows for rows, own in zip(found, kept, strict=True) if own]


__all__ = ["PassShapes", "pads_alone"]
