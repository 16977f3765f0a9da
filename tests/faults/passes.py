"""Passes over several sequences: however long drafts and texts are, and whatever passes cost, none
is wider than its context takes.

Nothing is computed: a context without llama.cpp counts the rows of every pass, and refuses what the
real one does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from faults.runner import Search
from localspec.core.adapter_list import AS_LOADED
from localspec.core.errors import ContextFullError, DecodeError
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents
from localspec.llama.batch import Batch
from localspec.llama.context import Context
from localspec.llama.limits import STRICT_BATCH, context_params
from localspec.llama.pass_layout import EveryPassEqual, PassTimes
from localspec.llama.strict import StrictContext
from localspec.llama.target import LlamaTarget
from localspec.models.gguf.sizes import OUTPUTS
from localspec.models.memory.layers import BATCH

CURVES = ("flat", "rows", "fours", "cliff", "random")
_VOCABULARY = 4


@dataclass(frozen=True)
class Case:
    """A context, and the sequences that share its rounds."""

    seed: int
    strict: bool
    sequences: int
    batch: int
    widest: int
    every_row: bool
    curve: str
    rounds: int
    hasty: bool
    """Whether drafts are as long as those of a drafter that knows no limit."""


class Curve:
    """Seconds of passes."""

    def __init__(self, kind: str, rng: random.Random) -> None:
        self._kind = kind
        self._cliff = rng.randint(2, 140)
        steps = np.array([rng.choice([0.0, 0.0, 1.0]) for _ in range(2048)])
        self._sums = np.cumsum(steps).tolist()

    def pass_seconds(self, n: int) -> float:
        times = {
            "flat": EveryPassEqual().pass_seconds(n),
            "rows": float(n),
            "fours": float(-(-n // 4)),
            "cliff": 1.0 if n <= self._cliff else 50.0,
            "random": 1.0 + self._sums[n],
        }
        return times[self._kind]


class _Counting(Context):
    """A context that computes nothing, and refuses what llama.cpp would."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        model: Any = SimpleNamespace(
            offloads=False,
            gives_every_row=case.every_row,
            n_vocab=_VOCABULARY,
            remote="elsewhere",
            adapters=SimpleNamespace(usual=AS_LOADED),
        )
        params = context_params(
            model,
            n_ctx=512,
            n_seq=case.sequences,
            branches=0,
            rollback=0,
            n_batch=case.batch,
            threads=1,
            kv_type="f16",
        )
        self.model, self._blend = model, AS_LOADED
        self.n_batch = case.batch
        self._outputs = int(params.n_outputs_max)
        self._widest = case.widest
        self._batch = Batch(case.batch)
        self._lengths = [0] * case.sequences
        self.spans = [[] for _ in range(case.sequences)]
        self._streams = rng.sample(range(case.sequences), case.sequences)
        self._branches = SimpleNamespace(shared=(), cut=lambda _: None)  # type: ignore[assignment]
        self._revocable = {}
        self.unfinished = set()
        self.window, self.rollback = 0, None
        self._room = 512
        self.capacity = 512 - (self.least_rows - 1)
        self.passes: list[int] = []

    @property
    def widest(self) -> int:
        return self._widest

    def length(self, seq: int) -> int:
        """There is no other record."""
        return self._lengths[seq]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens."""
        self._lengths[seq] = min(length, self._lengths[seq])

    def _decode(self, n: int, outputs: int, states: bool = False) -> None:
        if n > self.n_batch or outputs > self._outputs:
            raise DecodeError(f"{n} rows, {outputs} of them with logits")
        self.passes.append(n)

    def _undo(self, seqs: object) -> None:
        del seqs

    def _rows(self, counts: Sequence[int]) -> list[Logits]:
        return [np.zeros((n, _VOCABULARY), np.float32) for n in counts]


class _CountingStrict(_Counting, StrictContext):
    """A strict one."""


class Passes(Search):
    """No pass is refused, and each request gets its rows."""

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        strict = rng.random() < 0.5
        batch = STRICT_BATCH if strict else BATCH
        return Case(
            seed,
            strict,
            rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32]),
            rng.choice([batch, batch, batch, 64, 33]),
            rng.choice([OUTPUTS, OUTPUTS, 31]),
            rng.random() < 0.2,
            rng.choice(CURVES),
            rng.choice([3, 10, 30]),
            rng.random() < 0.2,
        )

    def wrong(self, case: Case) -> str | None:
        rng = random.Random(case.seed)
        context = (_CountingStrict if case.strict else _Counting)(case, rng)
        times: PassTimes = Curve(case.curve, rng)
        target = LlamaTarget(context, times=times)
        for _ in range(case.rounds):
            batch = rng.randint(1, case.sequences)
            seqs = sorted(rng.sample(range(case.sequences), batch))
            work = [_work(case, context, seq, target.deepest(batch), rng) for seq in seqs]
            try:
                found = target.score(work)
            except (DecodeError, ContextFullError) as error:
                drafts = {w.seq: len(w.draft) for w in work}
                return f"{error}; drafts {drafts}, lengths {context._lengths}"
            for w, scores in zip(work, found, strict=True):
                if len(scores.logits) != 1 + len(w.draft):
                    return f"{len(scores.logits)} rows for a draft of {len(w.draft)}"
                target.keep(w.seq, range(rng.randint(0, len(w.draft))))
                target.audit(w.seq)
        return None

    def smaller(self, case: Case) -> Iterator[Case]:
        if case.rounds > 1:
            yield replace(case, rounds=case.rounds // 2)
        if case.sequences > 1:
            yield replace(case, sequences=case.sequences - 1)
        yield from () if case.curve == "flat" else (replace(case, curve="flat"),)


def _work(case: Case, context: _Counting, seq: int, deepest: int, rng: random.Random) -> Work:
    """A draft of any length that may be, after a text of any length."""
    if rng.random() < 0.2:
        context._lengths[seq] = rng.choice([0, 1, 200, context.capacity - rng.randint(1, 70)])
    room = context.capacity - context.length(seq) - 1
    if room < 0:
        context._lengths[seq], room = 0, context.capacity - 1
    most = min(case.batch - 1, OUTPUTS - 1) if case.hasty else deepest
    n = min(room, rng.choice([0, 0, 1, most // 2, most, most, rng.randint(0, max(0, most))]))
    draft = Draft(
        np.ones(n, np.int32), chain_parents(n), Proposal.DETERMINISTIC, None, source="test"
    )
    return Work(seq, 1, draft, rows=rng.choice([0, 0, n + 4, OUTPUTS]))
