"""The cost of a round outside of llama.cpp: microseconds, at the vocabulary of a large model.

The logits of target and draft are random and computed beforehand, so every measured microsecond
is localspec's own: plan, draft, logits processing, verification, bookkeeping. Times are the least
of all rounds, which are made in turns, so that other programs disturb them little; rows come from
39 MB, which no cache holds. "rows" is what one thread needs to read the rows alone.

A model on the processor leaves llama.cpp's threads spinning, and the target's rows are processed by
all of them: `--threads 2` measures that. One thread is what a model on a GPU leaves.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import time
from collections.abc import Sequence

import numpy as np

from localspec.core import kernel
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.target import Work
from localspec.core.values import Logits, Scores
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import verifier
from localspec.drafters.base import Drafter, Off
from localspec.drafters.model.chain import ChainDrafter
from localspec.llama.team import team
from localspec.policy import Plain, Policy
from localspec.testing import Fixed

_ROWS = 64
_DRAFTS = (0, 1, 3, 7, 15)


@functools.cache
def _likely(vocabulary: int) -> Logits:
    """Rows with a few likely tokens each, as language models have them."""
    noise = np.random.default_rng(0)
    found = noise.normal(0, 2, (_ROWS, vocabulary)).astype(np.float32)
    for row in found:
        row[noise.integers(0, vocabulary, 20)] += np.linspace(6, 14, 20)
    return found


class Ready:
    """A target and a draft model whose logits need no computing."""

    leaves = 1
    sequences = 1
    capacity = 1 << 30
    aborts = True

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self._logits = _likely(vocabulary)
        self._held = 0

    def row(self, i: int) -> Logits:
        """(V,) one of its rows."""
        return self._logits[i % _ROWS]

    def start(self, length: int) -> None:
        self._held = length

    def deepest(self, sequences: int) -> int:
        del sequences
        return _ROWS

    def score(self, work: Sequence[Work]) -> list[Scores]:
        at = self._held % (_ROWS // 2)
        return [Scores(self._logits[at : at + 1 + len(w.draft)]) for w in work]

    def keep(self, seq: int, path: Sequence[int]) -> None:
        del seq
        self._held += 1 + len(path)

    def length(self, seq: int) -> int:
        del seq
        return self._held

    def audit(self, seq: int) -> None:
        """There is no cache."""
        del seq

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        self._held += sum(len(tokens) for _, tokens, _ in work)
        at = (self._held - 1) % (_ROWS // 2)
        return [self._logits[at : at + rows] for _, _, rows in work]

    def truncate(self, seq: int, length: int) -> None:
        del seq
        self._held = length


def microseconds(k: int, temperature: float, judge: str, vocabulary: int, rounds: int) -> float:
    """Least microseconds of a round with drafts of ``k`` tokens."""
    target, model = Ready(vocabulary), Ready(vocabulary)
    verify = verifier(judge)
    drafter: Drafter = ChainDrafter(model, verify.favours) if k else Off()
    policy: Policy = Fixed(k) if k else Plain("measured")
    request = Request(
        seq=0,
        tokens=list(range(8)),
        processor=LogitsProcessor(Sampling(temperature=temperature), vocabulary),
        noise=Noise(0),
        limit=1 << 30,
        verifier=verify,
    )
    target.start(7)
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        decode_round([request], target, drafter, policy)
        seconds.append(time.perf_counter() - began)
    return 1e6 * min(seconds)


def reading(k: int, vocabulary: int, rounds: int) -> float:
    """Least microseconds for the largest logit of each row of a round."""
    target, model = Ready(vocabulary), Ready(vocabulary)
    seconds = []
    for at in range(rounds):
        began = time.perf_counter()
        for i in range(k):
            model.row(at * (k + 1) + i).max()
        for i in range(k + 1):
            target.row(at * (k + 1) + i).max()
        seconds.append(time.perf_counter() - began)
    return 1e6 * min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--rounds", type=int, default=100, help="in each turn")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reference", action="store_true", help="without the compiled kernel")
    args = parser.parse_args()
    if args.reference:
        os.environ[kernel.VARIABLE] = "off"
    compiled = kernel.loaded()
    if compiled is not None:
        compiled.meet(team(args.threads))
    by = "the compiled kernel" if compiled else "numpy"
    print(f"vocabulary {args.vocabulary}, rows by {by}, microseconds a round")
    print(f"{'':24} {'PLAIN':>7} {'K=1':>7} {'K=3':>7} {'K=7':>7} {'K=15':>7}")
    judges = list(itertools.product(("match", "rejection"), (0.0, 1.0)))
    names = ["rows", *(f"{judge:14} T = {temperature:g}" for judge, temperature in judges)]
    least = {(name, k): math.inf for name in names for k in _DRAFTS}
    for _ in range(args.turns):
        for k in _DRAFTS:
            found = [reading(k, args.vocabulary, args.rounds)]
            for judge, temperature in judges:
                found.append(microseconds(k, temperature, judge, args.vocabulary, args.rounds))
            for name, us in zip(names, found, strict=True):
                least[name, k] = min(least[name, k], us)
    for name in names:
        print(f"{name:24} " + " ".join(f"{least[name, k]:7.0f}" for k in _DRAFTS))


if __name__ == "__main__":
    main()
