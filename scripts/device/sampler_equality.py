"""Rows of logits after llama.cpp's samplers, compared with what should be left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from device.sampled_context import Candidates, K, Maker, SampledContext, buffers, top_k
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.selection import top_ids
from localspec.core.values import Draft, Logits, Proposal
from localspec.drafters.model.proposal import confidence
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.passes import ordinary_tokens
from localspec.llama.tree_layout import tree_of

SETTINGS = {"greedy": GREEDY, "temperature 1": Sampling(temperature=1.0)}
"""Ways of drawing by name: the best token, and one of the 40 best."""
_ROWS = 16
"""Rows of a sequence in a pass at most."""


@dataclass(slots=True)
class Equality:
    """Rows of some passes: what samplers left of them against what should be left."""

    rows: int = 0
    tied: int = 0
    """Rows where a candidate has an equal that was left out; those are not compared further."""
    other: int = 0
    """Rows with other candidates, other logits of them, or another q."""
    apart: float = 0.0
    """The largest difference of a logit."""
    surer: float = 0.0
    """The largest difference of the confidence in a greedy q, which is less than the whole row's
    where further tokens are near the best one."""

    def compare(self, row: Logits, found: Candidates) -> None:
        """Compare what is left of a row."""
        self.rows += 1
        best = top_ids(row, K)
        if not np.array_equal(best, found.ids):
            tied = bool((row >= row[best].min()).sum() > K)
            self.tied += tied
            self.other += not tied
            return
        self.apart = max(self.apart, float(np.abs(row[best] - found.logits).max()))
        for sampling in SETTINGS.values():
            processor = LogitsProcessor(sampling, len(row))
            whole, q = processor(row, []), processor(found.logits, [])
            self.surer = max(self.surer, abs(confidence(q, found.logits) - confidence(whole, row)))
            if not (
                np.array_equal(whole.ids, found.ids[q.ids]) and np.array_equal(whole.probs, q.probs)
            ):
                self.other += 1
                return

    @property
    def text(self) -> str:
        """One line."""
        parts = [f"{self.rows - self.tied - self.other} of {self.rows} rows equal"]
        parts += [f"{self.tied} tied at the border"] if self.tied else []
        parts += [f"logits differ by up to {self.apart:.2g}"] if self.apart else []
        return ", ".join(parts)

    def __add__(self, more: Equality) -> Equality:
        return Equality(
            self.rows + more.rows,
            self.tied + more.tied,
            self.other + more.other,
            max(self.apart, more.apart),
            max(self.surer, more.surer),
        )


class Sides:
    """The same context without samplers and with them."""

    def __init__(
        self, model: Model, makers: Sequence[Maker] = (top_k,), rows_each: int = 1, **options: Any
    ) -> None:
        """``options`` are those of `Context`."""
        with library.listening(alone=False) as lines:
            self.plain = Context(model, **options)
        self.buffers = buffers(lines)
        """MiB for passes and their results, without samplers."""
        try:
            self.sampled = SampledContext(model, makers, rows_each, **options)
        except BaseException:
            self.plain.close()
            raise
        self._tokens, self._at = ordinary_tokens(model, 199), 0

    def next(self, n: int) -> list[int]:
        """``n`` further tokens."""
        self._at += n
        return [self._tokens[i % len(self._tokens)] for i in range(self._at - n, self._at)]

    def answers(self, *work: tuple[int, int, int]) -> list[Logits]:
        """Make a pass over (sequence, tokens, rows) in both; the whole rows."""
        made = [(seq, self.next(n), rows) for seq, n, rows in work]
        self.sampled.forward(made)
        return self.plain.forward(made)

    def forward(self, *work: tuple[int, int, int]) -> Equality:
        """Compare the rows of a pass over (sequence, tokens, rows)."""
        equality, end = Equality(), 0
        for answered, (_, n, rows) in zip(self.answers(*work), work, strict=True):
            end += n
            for i, row in enumerate(answered):
                equality.compare(row, self.sampled.candidates(end - rows + i))
        return equality

    def tree(self) -> Equality:
        """Compare the rows of a stem and a tree after it, whose nodes are of several sequences."""
        tokens, parents = np.array(self.next(5), np.int32), np.array([-1, 0, 0, -1, 3], np.int32)
        tree = tree_of(Draft(tokens, parents, Proposal.DETERMINISTIC, None, "trial", 0.0, 0))
        stem = self.next(4)
        rows = self.plain.forward_tree(stem, tree)
        self.sampled.forward_tree(stem, tree)
        equality = Equality()
        for i, row in enumerate(rows):
            equality.compare(row, self.sampled.candidates(len(stem) - 1 + i))
        return equality

    def read(self, n: int) -> None:
        """Read ``n`` tokens without rows, after nothing."""
        tokens = self.next(n)
        for context in (self.plain, self.sampled):
            context.truncate(0, 0)
            context.read(0, tokens)

    def truncate(self, length: int) -> None:
        """Keep the first tokens of sequence 0."""
        for context in (self.plain, self.sampled):
            context.truncate(0, length)

    def close(self) -> None:
        """Free both contexts."""
        self.sampled.close()
        self.plain.close()


def _one_token(sides: Sides) -> Equality:
    return sum((sides.forward((0, 1, 1)) for _ in range(8)), sides.forward((0, 12, 1)))


def _after_truncation(sides: Sides) -> Equality:
    found = Equality()
    for _ in range(4):
        sides.truncate(9)
        found = sum((sides.forward((0, 1, 1)) for _ in range(3)), found)
    return found


def _several_rows(sides: Sides) -> Equality:
    found = Equality()
    for rows in (2, 4, 8, _ROWS):
        sides.truncate(9)
        found += sides.forward((0, rows, rows))
    return found


def _several_sequences(sides: Sides) -> Equality:
    found = sides.forward(*[(seq, 3 + seq, 1) for seq in range(4)])
    for _ in range(4):
        found += sides.forward(*[(seq, 1, 1) for seq in range(4)])
    return found + sides.forward((1, 2, 2), (3, 1, 1)) + sides.forward((2, 1, 1))


def _long_prompt(sides: Sides) -> Equality:
    sides.read(700)
    return sides.forward((0, 3, 1))


_PASSES: dict[str, Callable[[Sides], Equality]] = {
    "one token": _one_token,
    "after a truncation": _after_truncation,
    f"2 to {_ROWS} rows of a sequence": _several_rows,
    "four sequences, then some of them": _several_sequences,
    "after a prompt of 700 tokens": _long_prompt,
}


def equalities(model: Model, threads: int, kv_type: str) -> Iterator[tuple[str, Equality]]:
    """The comparisons of passes of several kinds.

    Raises:
        LocalspecError: llama.cpp refuses one of them.
    """
    options = {"n_ctx": 1024, "threads": threads, "kv_type": kv_type}
    sides = Sides(model, rows_each=_ROWS, n_seq=4, **options)
    try:
        for what, check in _PASSES.items():
            yield what, check(sides)
    finally:
        sides.close()
    if not model.branching:
        return
    sides = Sides(model, rows_each=_ROWS, branches=4, **options)
    try:
        yield "a tree of three leaves", sides.tree()
    finally:
        sides.close()
