"""What a round of several replies costs outside of llama.cpp: microseconds of processor time of the
thread that computes.

The logits of the target are random and computed beforehand, so every measured microsecond is the
loop's own: the round itself (planning, logits processing, verification) and what the scheduler adds
to it (events, text, the queue to the reader). Both are plain decoding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from localspec.core.events import Finished
from localspec.core.interrupt import Interrupt
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Scores
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Drafter, Off
from localspec.generation.scheduler import Scheduler
from localspec.llama.abort import StopFlag
from localspec.policy import Plain, Policy
from localspec.testing import TableTarget
from localspec.verifiers import Match, Verifier

_ROWS = 64
_BUDGET = 150, 60
"""Microseconds of the scheduler for a round, and for each request in it."""


class Ready(TableTarget):
    """A target whose logits need no computing."""

    def __init__(self, vocabulary: int, sequences: int) -> None:
        super().__init__(lambda _tokens: self._logits[0], sequences=sequences)
        noise = np.random.default_rng(0)
        self._logits = noise.normal(0, 2, (_ROWS, vocabulary)).astype(np.float32)
        for i in range(_ROWS):  # a few likely tokens, as language models have them
            self._logits[i, noise.integers(0, vocabulary, 20)] += np.linspace(6, 14, 20)
        self.times: list[tuple[int, float]] = []
        """Requests of each round, and the thread's processor time when it began."""

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """Any of the rows."""
        self._last = {w.seq: w for w in work}
        self.times.append((len(work), time.thread_time()))
        found = []
        for w in work:
            at = self.length(w.seq) % _ROWS
            found.append(Scores(self._logits[at : at + 1]))
        return found

    def microseconds(self, requests: int) -> float:
        """Median from one round of so many requests to the next."""
        pairs = zip(self.times, self.times[1:], strict=False)
        spent = [b - a for (n, a), (m, b) in pairs if n == m == requests]
        return 1e6 * statistics.median(spent)


class Words:
    """A model that says a word for every token."""

    path = Path("words")
    template: str | None = "x"
    end_ids: frozenset[int] = frozenset()
    special_ids: ClassVar[Mapping[str, int]] = {"bos": -1, "eos": -1}
    adds_bos = False

    def __init__(self, vocabulary: int) -> None:
        self.n_vocab = vocabulary

    def piece(self, token: int) -> bytes:
        """A word of four letters."""
        return b" %03d" % (token % 1000)

    def marker(self, token: int) -> str:
        """No token is special."""
        del token
        return ""

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """A token for each character."""
        del special, bos
        return [ord(c) for c in text]

    def grammar_vocabulary(self) -> Any:
        """There are no grammars."""


class Nothing:
    """Controls that plan and save nothing."""

    policy: Policy = Plain("measured")

    def save(self) -> None:
        """Nothing."""


class Pair:
    """What the scheduler runs."""

    cache_bytes = 0
    drafter: Drafter = Off()
    verifier: Verifier = Match()
    control = Nothing()
    watchdog: None = None

    def __init__(self, vocabulary: int, sequences: int) -> None:
        self.target = Ready(vocabulary, sequences)
        self.target_model = Words(vocabulary)
        self.stop = StopFlag()


def of_rounds(pair: Pair, sampling: Sampling, requests: int, rounds: int) -> float:
    """Microseconds of `decode_round` alone."""
    vocabulary = pair.target_model.n_vocab
    made = [
        Request(seq, [1, 2, 3], LogitsProcessor(sampling, vocabulary), Noise(seq), 1 << 30)
        for seq in range(requests)
    ]
    for seq in range(requests):
        pair.target.read(seq, [1, 2])
    for _ in range(rounds):
        decode_round(made, pair.target, Off(), pair.control.policy)
    return pair.target.microseconds(requests)


def of_scheduler(pair: Pair, sampling: Sampling, requests: int, rounds: int) -> float:
    """Microseconds of the scheduler's whole turn, while all replies run."""
    scheduler = Scheduler(pair)
    asked = ReplyRequest(prompt="abc", sampling=sampling, max_tokens=rounds)
    streams = [scheduler.submit(asked, Interrupt()) for _ in range(requests)]
    for stream in streams:
        assert isinstance([*stream][-1], Finished)
    scheduler.close()
    return pair.target.microseconds(requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    print(f"vocabulary {args.vocabulary}, median microseconds of {args.rounds} rounds")
    print(f"{'':8} {'requests':>9} {'in all':>8} {'round':>8} {'scheduler':>10} {'budget':>8}")
    for temperature in (0.0, 1.0):
        for requests in (1, 2, 4, 8):
            sampling = Sampling(temperature=temperature)
            alone = of_rounds(Pair(args.vocabulary, requests), sampling, requests, args.rounds)
            whole = of_scheduler(Pair(args.vocabulary, requests), sampling, requests, args.rounds)
            budget = _BUDGET[0] + _BUDGET[1] * requests
            print(
                f"T = {temperature:<4g} {requests:9} {whole:8.0f} {alone:8.0f} "
                f"{whole - alone:10.0f} {budget:8}"
            )


if __name__ == "__main__":
    main()
