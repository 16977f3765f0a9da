"""The cost of a round of several replies outside of llama.cpp: microseconds of processor time of
the thread that computes.

The logits of the target are random and computed beforehand, so every measured microsecond is
localspec's own: the round itself (planning, logits processing, verification) and the work of the
scheduler (events, text, the queue to the reader).

``--cold`` reads 64 MB in place of each target pass and 4 MB in place of each draft pass, whose time
does not count: like a real pass, that leaves nothing of Python in the processor's caches, and the
same work takes several times as long. ``--draft parked`` runs the measured policy with a draft
model that is never right, ``--draft right`` with one that mostly is.

``--device MS`` has passes of a device of so many milliseconds, in which the processor is free
(those of the draft model take a fifth of it), and a thread that reads the events of each reply. The
table then has microseconds between the end of a pass and the start of the next one, with the events
handed over between the two and in the next pass, in turns, and the same by parts. ``--k K`` drafts
K tokens in every round instead of asking the policy.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from localspec.core.events import Finished
from localspec.core.interrupt import Interrupt
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Logits, Proposal, Scores
from localspec.decode import round as rounds_module
from localspec.decode.request import Request
from localspec.decode.round import RoundResult, decode_round
from localspec.decode.stats import RequestStats
from localspec.drafters.base import Drafter, Off
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation.delivery import Delivery
from localspec.generation.reply_stream import Mailbox, ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.llama.abort import StopFlag
from localspec.policy import Plain, Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed, TableTarget
from localspec.verifiers import Match, Verifier

_ROWS = 64
_TARGET_BYTES, _DRAFT_BYTES = 64 << 20, 4 << 20
_CURVE = {1: 12.0, 2: 15.0, 3: 18.0, 4: 20.0, 5: 24.0, 8: 34.0, 16: 60.0, 32: 120.0}
"""Milliseconds of target passes that the measured policy is told, by width."""
_DRAFT_S = 0.001
_BUDGET = 150, 60
"""Microseconds of the scheduler for a round, and for each request in it."""


class Clock:
    """Processor time of the thread, less that of the simulated passes."""

    def __init__(self, *, cold: bool) -> None:
        self._memory = np.ones((_TARGET_BYTES if cold else 0) // 8)
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
    """(_ROWS, V) with a few likely tokens, as language models have them."""
    noise = np.random.default_rng(seed)
    logits = noise.normal(0, 2, (_ROWS, vocabulary)).astype(np.float32)
    for i in range(_ROWS):
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
        self.clock.compute(_TARGET_BYTES)
        found = []
        for w in work:
            at = self.length(w.seq) % _ROWS
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
            at = (held - rows) % _ROWS
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
            curve = {n: milliseconds / 1e3 for n, milliseconds in _CURVE.items()}
            costs = Costs(curve, {self.drafter.name: _DRAFT_S})
            policy = Controller(Knowledge({0: costs}), [self.drafter.name])
        self.control = Control(policy)


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
        decode_round(made, pair.target, pair.drafter, pair.control.policy)
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


class Parts:
    """Seconds of parts of the work between two passes, each without those inside it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._inner = [0.0]
        self._thread = 0

    def begin(self) -> None:
        """A pass has ended; the work of this thread counts."""
        self.spent, self._inner, self._thread = Counter(), [0.0], threading.get_ident()

    def of(self, owner: Any, attribute: str, name: str) -> None:
        """Time a function from now on."""
        done = getattr(owner, attribute)

        @functools.wraps(done)
        def timed(*args: Any, **more: Any) -> Any:
            if threading.get_ident() != self._thread:
                return done(*args, **more)
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return done(*args, **more)
            finally:
                seconds = time.perf_counter() - began
                self.spent[name] += seconds - self._inner.pop()
                self._inner[-1] += seconds

        setattr(owner, attribute, timed)

    def everywhere(self) -> None:
        """Time the parts of a round and of what follows it."""
        self.of(Request, "verify", "judge")
        for owner, attribute in ((RoundResult, "committed"), (ChainDrafter, "commit")):
            self.of(owner, attribute, "commit")
        for owner, attribute in ((RoundResult, "outcome"), (rounds_module, "learn")):
            self.of(owner, attribute, "learn")
        for owner, attribute in ((rounds_module, "audit"), (RequestStats, "add")):
            self.of(owner, attribute, "audit")
        self.of(rounds_module, "planned", "plan")
        self.of(rounds_module, "propose", "propose")
        self.of(Drafts, "extend", "draft's passes")
        self.of(Delivery, "events", "events")
        self.of(Mailbox, "put", "hand over")


_PARTS = ("judge", "commit", "learn", "audit", "plan", "propose", "events", "hand over")


class Waiting(Clock):
    """The passes of a device: the processor waits, and other threads may compute."""

    def __init__(self, seconds: float) -> None:
        super().__init__(cold=False)
        self.seconds = seconds

    def compute(self, size: int) -> None:
        """A pass of the draft model, or what is left of one of the target."""
        time.sleep(self.seconds * size / _TARGET_BYTES)


class Device(Ready):
    """A target on a device; ``late`` if work is done while it computes."""

    def __init__(self, vocabulary: int, sequences: int, clock: Waiting, parts: Parts) -> None:
        super().__init__(vocabulary, sequences, clock)
        self._seconds, self._parts = clock.seconds, parts
        self.late = False
        self._work: Callable[[], None] | None = None
        self._ended = 0.0
        self.gaps: list[tuple[int, float, Counter[str]]] = []
        """Requests of each pass, the seconds before it, and their parts."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """See `ServingTarget`."""
        if self.late:
            self._work = work
        else:
            work()

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """Wait for the rest of the pass, after the work."""
        began = time.perf_counter()
        spent = self._parts.spent
        drafting = spent.pop("draft's passes", 0.0)
        self.gaps.append((len(work), began - self._ended - drafting, spent))
        self._parts.begin()
        meanwhile, self._work = self._work, None
        if meanwhile is not None:
            meanwhile()
        time.sleep(max(0.0, began + self._seconds - time.perf_counter()))
        self._last = {w.seq: w for w in work}
        starts = [self.length(w.seq) % _ROWS for w in work]
        self._parts.begin()
        self._ended = time.perf_counter()
        return [
            Scores(self._logits[at : at + 1 + len(w.draft)])
            for at, w in zip(starts, work, strict=True)
        ]


def _read(stream: ReplyStream) -> None:
    assert isinstance([*stream][-1], Finished)


def between(
    args: argparse.Namespace, parts: Parts, sampling: Sampling, requests: int, *, late: bool
) -> list[float]:
    """Median microseconds between two passes, and of each of their parts."""
    clock = Waiting(args.device / 1e3)
    pair = Pair(args.vocabulary, requests, args.draft, cold=False)
    pair.target = target = Device(args.vocabulary, requests, clock, parts)
    target.late = late
    if args.draft != "none":
        model = Drafts(args.vocabulary, clock, right=args.draft == "right")
        model.size = _TARGET_BYTES // 5
        pair.drafter = ChainDrafter(model, Proposal.COUPLED)
        curve = {n: clock.seconds * (1 + n / 256) for n in _CURVE}
        costs = Costs(curve, {pair.drafter.name: clock.seconds / 5})
        pair.control = Control(
            Fixed(args.k) if args.k else Controller(Knowledge({0: costs}), [pair.drafter.name])
        )
    scheduler = Scheduler(pair)
    asked = ReplyRequest(prompt="abc", sampling=sampling, max_tokens=args.rounds * (1 + args.k))
    streams = [scheduler.submit(asked, Interrupt()) for _ in range(requests)]
    readers = [threading.Thread(target=_read, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    scheduler.close()
    gaps = [(all_of_it, spent) for n, all_of_it, spent in target.gaps if n == requests]
    gaps = gaps[len(gaps) // 4 :]
    found = [[all_of_it for all_of_it, _ in gaps]]
    found += [[spent[part] for _, spent in gaps] for part in _PARTS]
    return [1e6 * statistics.median(seconds) for seconds in found]


def of_devices(args: argparse.Namespace) -> None:
    """Print the table of passes of a device."""
    parts = Parts()
    parts.everywhere()
    print(f"vocabulary {args.vocabulary}, passes of {args.device:g} ms, median microseconds")
    print(f"{'':8} {'requests':>9} {'events':>8} {'in all':>8}", *(f"{p:>9}" for p in _PARTS))
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature)
        for requests in args.requests:
            found: dict[bool, list[list[float]]] = {False: [], True: []}
            for turn in range(2 * args.turns):
                late = turn % 2 == 1
                found[late].append(between(args, parts, sampling, requests, late=late))
            for late, turns in found.items():
                whole, *each = map(statistics.median, zip(*turns, strict=True))
                print(
                    f"T = {temperature:<4g} {requests:9} {'in pass' if late else 'between':>8} "
                    f"{whole:8.0f}",
                    *(f"{part:9.0f}" for part in each),
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--draft", choices=["none", "parked", "right"], default="none")
    parser.add_argument("--top-k", type=int, default=Sampling().top_k, help="0 for all tokens")
    parser.add_argument("--cold", action="store_true", help="caches as passes leave them")
    parser.add_argument("--device", type=float, metavar="MS", help="passes of a device")
    parser.add_argument("--k", type=int, default=0, help="with --device: tokens of every draft")
    parser.add_argument("--turns", type=int, default=3, help="with --device")
    args = parser.parse_args()
    if args.device:
        of_devices(args)
        return
    caches = "cold caches" if args.cold else "warm caches"
    print(f"vocabulary {args.vocabulary}, {caches}, median microseconds of {args.rounds} rounds")
    print(f"{'':8} {'requests':>9} {'in all':>8} {'round':>8} {'scheduler':>10} {'budget':>8}")
    for temperature in (0.0, 1.0):
        for requests in args.requests:
            whole = {} if args.top_k else {"top_p": 1.0, "min_p": 0.0}
            sampling = Sampling(temperature=temperature, top_k=args.top_k, **whole)
            pairs = [Pair(args.vocabulary, requests, args.draft, cold=args.cold) for _ in range(2)]
            alone = of_rounds(pairs[0], sampling, requests, args.rounds)
            all_of_it = of_scheduler(pairs[1], sampling, requests, args.rounds)
            budget = _BUDGET[0] + _BUDGET[1] * requests
            print(
                f"T = {temperature:<4g} {requests:9} {all_of_it:8.0f} {alone:8.0f} "
                f"{all_of_it - alone:10.0f} {budget:8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
