"""llama-cpp-python's own `Llama`, in this process: plain, and with its prompt lookup."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from localspec.bench.peers import Mode, Peer, Question, Setting, Spoken
from localspec.llama.reference import Stock


def modes() -> list[Mode]:
    """Plain and prompt lookup."""
    return [
        Mode("llama-cpp-python plain", partial(running, False)),
        Mode("llama-cpp-python lookup", partial(running, True)),
    ]


@contextlib.contextmanager
def running(lookup: bool, setting: Setting) -> Iterator[Peer]:
    """Loaded for the block."""
    stock = Stock(
        setting.target,
        context=setting.context,
        threads=setting.threads,
        gpu=setting.gpu,
        lookup=lookup,
    )
    try:
        yield _Library(stock, setting.ends)
    finally:
        stock.close()


class _Library:
    def __init__(self, stock: Stock, ends: frozenset[int]) -> None:
        self._stock, self._ends = stock, ends

    def answer(self, question: Question) -> Spoken:
        tokens, speed, rounds = self._stock.answer(
            question.tokens, question.sampling, question.seed, question.max_tokens, self._ends
        )
        emitted = [token for token in tokens if token not in self._ends]
        return Spoken(self._stock.text(emitted), speed, rounds)
