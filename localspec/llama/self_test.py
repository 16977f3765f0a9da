"""Whether a strict context computes the same bits in every way that localspec computes.

A text is written in many ways: in passes of other widths, with rejected drafts between, its
beginning cut elsewhere, restored from a saved state, on other threads, and beside other sequences
that join and leave. The logits and the whole KV cache must be equal, bit for bit, to those of the
first way. A cache has many more numbers than the logits, so a rounding that differs once in ten
thousand is found in a short text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.values import Logits
from localspec.llama import state as saved
from localspec.llama.passes import ordinary_tokens
from localspec.llama.strict import StrictContext
from localspec.models.gguf.sizes import OUTPUTS

SEQUENCES = 4
"""Sequences of the context that is tested, where no more are asked for."""
CELLS = 512
"""Tokens of each sequence."""
WIDTHS = (1, 2, 3, 4, 8, 16)
"""Widths of the passes that compute the end of the text."""
WIDE = (32, OUTPUTS)
"""Further widths, of passes that compute a longer end: the longest draft is one of them."""
_PROMPT, _REPLY = 72, 24
_LONG = 264
"""Tokens of the longest other: llama.cpp computes attention over cells in steps of 256."""
_BEFORE = {1: 20, 2: _LONG, 3: 40}
"""Tokens of other sequences before they join, by id."""
_CUTS = {
    "a prompt read token by token at both ends": (*range(1, 13), 15, 17, 64, _PROMPT - 1),
    "a prompt read in parts of 7": tuple(range(7, _PROMPT, 7)),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Two ways of computing that do not agree."""

    what: str
    """The way that differs, to complete "this backend computes other last bits with ..."."""
    logits: float
    """Largest difference of a logit; 0 where only the KV cache differs."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A text as it was computed."""

    rows: Logits
    """(reply, V)"""
    cells: bytes
    """The sequence's state."""


class SelfTest:
    """Computes one text in all ways, on a context that holds nothing else."""

    def __init__(self, context: StrictContext) -> None:
        """``context`` has `SEQUENCES` or more, as many as replies may run, of `CELLS` tokens."""
        self._context = context
        known = ordinary_tokens(context.model, 199)
        order = np.random.default_rng(17).integers(0, len(known), CELLS + _LONG)
        self._text = [known[i] for i in order]
        self._tokens = self._text[: _PROMPT + OUTPUTS]
        room = min(context.n_batch, context.outputs)
        self._of_two = min(OUTPUTS, room // 2)
        """Rows of each of two sequences in the widest pass."""
        self._of_all = min(OUTPUTS, room // context.sequences)

    def differences(self, on_progress: Callable[[float], None]) -> Iterator[Difference]:
        """Differences from the first way. ``on_progress`` is told the share that is done.

        Raises:
            Interrupted, DecodeError: a pass failed.
        """
        ways = self._ways()
        first = self._first()
        for done, (what, write) in enumerate(ways, 1):
            on_progress(done / (len(ways) + 1))
            found = write()
            right = first[len(found.rows)]
            if found.rows.tobytes() != right.rows.tobytes() or found.cells != right.cells:
                yield Difference(what, float(np.abs(found.rows - right.rows).max()))
        on_progress(1.0)

    def _first(self) -> dict[int, _Written]:
        """The ends of the text by their lengths, in passes of four tokens or fewer."""
        self._read(0, ())
        rows, found = list[Logits](), dict[int, _Written]()
        lengths = sorted({self._of_all, self._of_two, _REPLY, OUTPUTS})
        for n in range(OUTPUTS):
            if n % 4 == 0 or n in lengths:
                end = min(n - n % 4 + 4, *(m for m in lengths if m > n))
                tokens = self._tokens[_PROMPT + n : _PROMPT + end]
                rows.append(self._context.forward([(0, tokens, len(tokens))])[0].copy())
                if end in lengths:
                    found[end] = _Written(np.concatenate(rows), self._cells(0))
        return found

    def _ways(self) -> list[tuple[str, Callable[[], _Written]]]:
        ways: list[tuple[str, Callable[[], _Written]]] = [
            (_passes_of(width), lambda width=width: self._again(width))  # type: ignore[misc]
            for width in (*WIDTHS, _REPLY)
        ]
        ways += [
            (_passes_of(width), lambda width=width: self._again(width, OUTPUTS))  # type: ignore[misc]
            for width in WIDE
        ]
        ways += [("rejected drafts", self._with_rejected), ("a restored state", self._restored)]
        if self._context.threads > 1:
            ways.append(("one thread", self._on_one_thread))
        every = tuple(range(1, self._context.sequences))
        all_of_them = self._of_all * self._context.sequences
        ways += [
            ("one more sequence", lambda: self._with_others(0, (1,), 1)),
            ("three more sequences", lambda: self._with_others(0, (1, 2, 3), 8)),
            ("a sequence between that does not compute", lambda: self._with_others(0, (2,), 1)),
            (
                f"one more sequence in passes of {2 * self._of_two} tokens",
                lambda: self._with_others(0, (1,), self._of_two, self._of_two),
            ),
            (
                f"{len(every)} more sequences in passes of {all_of_them} tokens",
                lambda: self._with_others(0, every, self._of_all, self._of_all),
            ),
        ]
        ways += [
            (what, lambda cuts=cuts: self._cut(cuts))  # type: ignore[misc]
            for what, cuts in _CUTS.items()
        ]
        ways.append(("another place among the sequences", lambda: self._with_others(2, (1, 3), 4)))
        return ways

    def _read(self, seq: int, cuts: Sequence[int]) -> None:
        """The prompt, in parts that end at ``cuts``."""
        self._context.truncate(seq, 0)
        for start, end in zip((0, *cuts), (*cuts, _PROMPT), strict=True):
            self._context.forward([(seq, self._tokens[start:end], 0)])

    def _reply(
        self, seq: int, width: int, beside: Sequence[int] = (), length: int = _REPLY
    ) -> _Written:
        """The text of that length after the prompt in passes of that width; ``beside`` go on beside
        it, and the first of them leaves halfway.
        """
        rows = []
        for at in range(0, length, width):
            tokens = self._tokens[_PROMPT + at : _PROMPT + min(length, at + width)]
            present = beside if at < length / 2 else beside[1:]
            work = [(seq, tokens, len(tokens))]
            work += [(other, self._text[at : at + len(tokens)], len(tokens)) for other in present]
            work.sort(key=lambda item: item[0])
            found = self._context.forward(work)
            own = next(i for i, item in enumerate(work) if item[0] == seq)
            rows.append(found[own].copy())
        return _Written(np.concatenate(rows), self._cells(seq))

    def _cells(self, seq: int) -> bytes:
        """The sequence's state, as sequence 0 has it: the bytes name the sequence."""
        state = saved.state(self._context, seq)
        if seq != 0:
            saved.restore(self._context, 0, bytearray(state))
            state = saved.state(self._context, 0)
        return bytes(state)

    def _again(self, width: int, length: int = _REPLY) -> _Written:
        self._context.truncate(0, _PROMPT)
        return self._reply(0, width, (), length)

    def _with_rejected(self) -> _Written:
        """Passes of four tokens, the last two of which are taken back."""
        context, rows = self._context, []
        context.truncate(0, _PROMPT)
        for at in range(_PROMPT, _PROMPT + _REPLY, 2):
            tokens = self._tokens[at : at + 2]
            found = context.forward([(0, [*tokens, *self._text[:2]], 4)])
            rows.append(found[0][:2].copy())
            context.truncate(0, at + 2)
        return _Written(np.concatenate(rows), self._cells(0))

    def _cut(self, cuts: Sequence[int]) -> _Written:
        self._read(0, cuts)
        return self._reply(0, 4)

    def _restored(self) -> _Written:
        self._context.truncate(0, _PROMPT)
        state = bytearray(saved.state(self._context, 0))
        saved.restore(self._context, 0, state)
        return self._reply(0, 2)

    def _on_one_thread(self) -> _Written:
        threads = self._context.threads
        self._context.set_threads(1)
        try:
            return self._again(3)
        finally:
            self._context.set_threads(threads)

    def _with_others(
        self, seq: int, beside: Sequence[int], width: int, length: int = _REPLY
    ) -> _Written:
        """The text, read beside sequences of other lengths, which stay for the next way."""
        context = self._context
        for other in beside:
            before = _BEFORE.get(other, 2 + other % 7)
            if context.length(other) < before:
                context.truncate(other, 0)
                context.read(other, self._text[:before])
            context.truncate(other, before)
        if seq != 0:
            context.truncate(0, 0)
            self._read(seq, ())
        context.truncate(seq, _PROMPT)
        return self._reply(seq, width, beside, length)


def _passes_of(width: int) -> str:
    return f"passes of {width} token{'s' if width > 1 else ''}"
