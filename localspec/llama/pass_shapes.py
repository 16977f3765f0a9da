"""The shapes of a target's passes: rows of each sequence, and of idle ones between them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from localspec.core.target import Work
from localspec.core.values import Extension, Logits
from localspec.llama.context import Context
from localspec.llama.pass_layout import EveryPassEqual, PassTimes, padded, seconds
from localspec.models.gguf.sizes import OUTPUTS

_KEPT = 8
"""Latest passes of a width, whose least time counts: other programs make some of them slow."""
_KNOWN = 2
"""Passes of a width before its time is known: the first one builds a graph."""


class ObservedTimes:
    """`PassTimes` learned from the passes of this session; between widths that were seen, in
    proportion. Before any was, every pass is taken to cost the same.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}
        self._seconds: dict[int, float] = {}
        """Width -> seconds, of widths that are known; in ascending order."""

    def learn(self, n: int, seconds: float) -> None:
        """A pass over n rows, computed in one part, took ``seconds``."""
        seen = self._seen.setdefault(n, deque(maxlen=_KEPT))
        seen.append(seconds)
        if len(seen) >= _KNOWN:
            if n not in self._seconds:
                self._seconds = dict(sorted({**self._seconds, n: seconds}.items()))
            self._seconds[n] = min(seen)

    def pass_seconds(self, n: int) -> float:
        """See `PassTimes`."""
        known = self._seconds
        if n in known:
            return known[n]
        below = max((width for width in known if width < n), default=0)
        above = min((width for width in known if width > n), default=0)
        if not below and not above:
            return EveryPassEqual().pass_seconds(n)
        if not above:
            return known[below] * n / below
        if not below:
            return known[above]
        share = (n - below) / (above - below)
        return (1 - share) * known[below] + share * known[above]


def pads_alone(context: Context, *, hidden: bool) -> bool:
    """Whether a pass over one sequence may have rows of padding only because it is quicker then.

    What slides out of a window does not come back when rows are removed, and a recurrent state is
    not taken back twice. Contexts that pad every pass choose the number of rows themselves.
    """
    return context.cuts_anywhere and not hidden and context.least_rows == 1


class PassShapes:
    """Chooses the shapes of passes over one context, and computes passes with idle sequences."""

    def __init__(self, context: Context, times: PassTimes | None, *, hidden: bool) -> None:
        """``times`` of this machine decide, None: those that passes are seen to take; ``hidden``:
        whether hidden states are kept.
        """
        self._context = context
        self._observed = ObservedTimes() if times is None else None
        self._times: PassTimes = times or self._observed or EveryPassEqual()
        self.pads_alone = pads_alone(context, hidden=hidden)
        """See `pads_alone`."""
        # Rows of idle sequences are removed like padding.
        self._fills = context.cuts_anywhere and not hidden

    def of(self, work: Sequence[Work], unread: int = 0, *, whole: bool = True) -> dict[int, int]:
        """Rows of each sequence in the pass, so that llama.cpp computes it in few parts; also of
        idle ones, to close gaps and to reach a width that is quicker. ``unread`` tokens go before
        the pending one of a sequence that is alone. Unless the work is the ``whole`` of a round, no
        sequence is taken to be idle.
        """
        context = self._context
        needed = self._needed(work)
        if len(work) == 1:
            (one,) = work
            if self.pads_alone and not unread and one.draft.is_chain and self._has_room(one):
                needed[one.seq] = max(needed[one.seq], one.rows)
            return needed
        sequence = {context.stream(seq): seq for seq in range(context.sequences)}
        shape = self._padded({context.stream(seq): n for seq, n in needed.items()}, fills=whole)
        return {sequence[stream]: n for stream, n in shape.items()}

    @property
    def movable(self) -> bool:
        """Whether sequences can change streams: their states are all that there is of them, and
        are not on another machine.
        """
        return self.pads_alone and self._context.model.remote is None

    def seconds(self, rows: Mapping[int, int]) -> float:
        """Seconds of a pass with at least ``rows`` of each stream, in the best shape."""
        return seconds(self._padded(rows), self._times)

    def _padded(self, rows: Mapping[int, int], *, fills: bool = True) -> dict[int, int]:
        """The best shape of a pass over rows of streams; it may have rows of idle ones."""
        context = self._context
        every = range(context.sequences)
        room = {context.stream(seq): context.capacity - context.appended(seq) for seq in every}
        taken = {*rows, *(context.stream(seq) for seq in context.unfinished)}
        fills = fills and self._fills
        idle = [stream for stream in every if stream not in taken] if fills else []
        return padded(rows, room, self._times, idle, most=context.n_batch)

    def _needed(self, work: Sequence[Work]) -> dict[int, int]:
        """The fewest rows of each sequence in a pass over this work."""
        if self._context.least_rows > 1:  # parts of unequal rows could leave single ones
            return dict.fromkeys((w.seq for w in work), self._widest(work))
        return {w.seq: 1 + len(w.draft) for w in work}

    def _has_room(self, work: Work) -> bool:
        """Whether the rows to which it is padded fit into the context and into a pass."""
        context = self._context
        room = context.capacity - context.length(work.seq)
        return work.rows <= min(room, OUTPUTS, context.outputs, context.n_batch)

    def _widest(self, work: Sequence[Work]) -> int:
        """Rows of the longest draft with its pending token, and no fewer than a pass may have."""
        return max(self._context.least_rows, *(1 + len(w.draft) for w in work))

    def share(self, sequences: int) -> int:
        """Rows that a pass has for each of so many sequences."""
        return min(self._context.n_batch, self._context.outputs) // sequences

    def groups(self, work: Sequence[Work]) -> list[list[Work]]:
        """The work in the order given, cut into passes that this context takes: mostly one. What
        does not even fit into a pass of its own has one, which is then refused.
        """
        if self._fits(work):
            return [[*work]]
        groups = [[work[0]]]
        for w in work[1:]:
            if self._fits([*groups[-1], w]):
                groups[-1].append(w)
            else:
                groups.append([w])
        return groups

    def _fits(self, work: Sequence[Work]) -> bool:
        """Whether one pass has room for the rows that this work needs, and every sequence for its
        own, where they must be equal.
        """
        context, spare = self._context, self._context.least_rows - 1
        rows = sum(self._needed(work).values())
        outputs = rows if spare else sum(1 + len(w.draft) for w in work)  # strict mode adds a row
        if rows > context.n_batch or outputs > context.outputs:
            return False
        if not spare or len(work) == 1:
            return True
        fullest = max(context.length(w.seq) for w in work)
        return fullest + self._widest(work) <= context.capacity + spare

    def forward(
        self,
        chains: Sequence[Extension],
        padding: Sequence[int],
        idle: Mapping[int, int],
        *,
        states: bool,
    ) -> list[Logits]:
        """Logits of a pass over chains, see `Context.forward`, among rows of ``idle`` sequences
        that are removed again.
        """
        if not idle:
            return self._timed(chains, padding, states=states)
        lengths = {seq: self._context.length(seq) for seq in idle}
        filled = sorted(
            [
                *zip(chains, padding, strict=True),
                *(((seq, [], 0), rows) for seq, rows in idle.items()),
            ],
            key=lambda item: self._context.stream(item[0][0]),
        )
        try:
            found = self._timed([one for one, _ in filled], [n for _, n in filled], states=states)
        finally:
            for seq, length in lengths.items():
                self._context.truncate(seq, length)
        kept = [one[0] not in idle for one, _ in filled]
        return [rows for rows, own in zip(found, kept, strict=True) if own]

    def _timed(
        self,
        chains: Sequence[Extension],
        padding: Sequence[int],
        *,
        states: bool,
    ) -> list[Logits]:
        """`Context.forward`; its time is learned where it was computed in one part."""
        began = time.perf_counter()
        found = self._context.forward(chains, states=states, padding=padding)
        if self._observed is not None:
            rows = {len(one[1]) + more for one, more in zip(chains, padding, strict=True)}
            streams = [self._context.stream(one[0]) for one in chains]
            if len(rows) == 1 and max(streams) - min(streams) < len(streams):
                self._observed.learn(len(streams) * rows.pop(), time.perf_counter() - began)
        return found
