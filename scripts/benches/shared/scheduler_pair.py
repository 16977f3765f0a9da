"""A pair whose logits need no computing, for measuring what a scheduler costs beside its passes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from localspec.core.target import Work
from localspec.core.values import Logits, Proposal, Scores
from localspec.decode.verifiers import Match, Verifier
from localspec.drafters.base import Drafter, Off
from localspec.drafters.model.chain import ChainDrafter
from localspec.llama.abort import StopFlag
from localspec.policy import Plain, Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import TableTarget

ROWS = 64
TARGET_BYTES, _DRAFT_BYTES = 64 << 20, 4 << 20
CURVE = {1: 12.0, 2: 15.0, 3: 18.0, 4: 20.0, 5: 24.0, 8: 34.0, 16: 60.0, 32: 120.0}
"""Milliseconds of target passes that the measured policy is told, by width."""
_DRAFT_S = 0.001


class Clock:
    """Processor time of the thread, less that of the simulated passes."""

    def __init__(self, *, cold: bool) -> None:
        self._memory = np.ones((TARGET_BYTES if cold else 0) // 8)
        self._passes = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.thread_time() - self._passes

    def compute(self, size: int) -> None:
        """Read so many bytes, where caches are to be cold."""
        began = time.thread_time()
        self._memory[: size // 8].sum()
        self._passes += time.thread_time() - began


def _rows(vocabulary: int, seed: int) -> Logits:
    """(ROWS, V) with a few likely tokens, as language models have them."""
    noise = np.random.default_rng(seed)
    logits = noise.normal(0, 2, (ROWS, vocabulary)).astype(np.float32)
    for i in range(ROWS):
        logits[i, noise.integers(0, vocabulary, 20)] += np.linspace(6, 14, 20)
    return logits


class Ready(TableTarget):
    """A target whose logits need no computing."""

    def __init__(self, vocabulary: int, sequences: int, clock: Clock) -> None:
        super().__init__(lambda _tokens: self._logits[0], sequences=sequences)
        self._logits = np.concatenate([_rows(vocabulary, 0)] * 2)
        self.clock = clock
        self.times: list[tuple[int, float]] = []
        """Requests of each round, and the time when its pass began."""

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """The rows of the places that the tokens have."""
        self._last = {w.seq: w for w in work}
        self.times.append((len(work), self.clock()))
        self.clock.compute(TARGET_BYTES)
        found = []
        for w in work:
            at = self.length(w.seq) % ROWS
            found.append(Scores(self._logits[at : at + 1 + len(w.draft)]))
        return found

    def microseconds(self, requests: int) -> float:
        """Median from one pass of so many requests to the next."""
        pairs = zip(self.times, self.times[1:], strict=False)
        spent = [b - a for (n, a), (m, b) in pairs if n == m == requests]
        return 1e6 * statistics.median(spent[len(spent) // 4 :])  # the policy has settled


class Drafts:
    """A draft model whose logits need no computing; every fifth is wrong, or all of them are."""

    capacity = 1 << 20
    size = _DRAFT_BYTES
    """Bytes that a pass reads."""

    def __init__(self, vocabulary: int, clock: Clock, *, right: bool) -> None:
        self.vocabulary = vocabulary
        logits = _rows(vocabulary, 0 if right else 1)
        logits[::5] = _rows(vocabulary, 1)[::5]
        self._logits = np.concatenate([logits] * 2)
        self._clock = clock
        self._held: dict[int, int] = {}

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        """See `DraftModel.extend`."""
        self._clock.compute(self.size)
        found = []
        for seq, tokens, rows in work:
            held = self._held[seq] = self._held.get(seq, 0) + len(tokens)
            at = (held - rows) % ROWS
            found.append(self._logits[at : at + rows])
        return found

    def truncate(self, seq: int, length: int) -> None:
        """Forget what follows."""
        self._held[seq] = min(length, self._held.get(seq, 0))


class Words:
    """A model that says a word for every token."""

    path = Path("words")
    template: str | None = "x"
    end_ids: frozenset[int] = frozenset()
    special_ids: ClassVar[Mapping[str, int]] = {"bos": -1, "eos": -1}
    adds_bos = False
    n_ctx_train = 0
    control_texts: frozenset[str] = frozenset()

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


class Control:
    """A policy that is not saved."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def save(self) -> None:
        """Nothing."""


class Pair:
    """The pair that the scheduler runs."""

    sight = None
    cache_bytes = 0
    verifier: Verifier = Match()
    watchdog: None = None

    def __init__(self, vocabulary: int, sequences: int, draft: str, *, cold: bool) -> None:
        """``draft`` is "none", "parked" or "right"."""
        clock = Clock(cold=cold)
        self.target = Ready(vocabulary, sequences, clock)
        self.target_model = Words(vocabulary)
        self.stop = StopFlag()
        self.drafter: Drafter = Off()
        policy: Policy = Plain("measured")
        if draft != "none":
            model = Drafts(vocabulary, clock, right=draft == "right")
            self.drafter = ChainDrafter(model, Proposal.COUPLED)
            curve = {n: milliseconds / 1e3 for n, milliseconds in CURVE.items()}
            costs = Costs(curve, {self.drafter.name: _DRAFT_S})
            policy = Controller(Knowledge({0: costs}), [self.drafter.name])
        self.control = Control(policy)
