"""The work between two passes of a device, by parts, for several requests at once."""

from __future__ import annotations

import argparse
import functools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benches.shared.scheduler_pair import (
    CURVE,
    ROWS,
    TARGET_BYTES,
    Clock,
    Control,
    Drafts,
    Pair,
    Ready,
)
from localspec.core.events import Finished
from localspec.core.interrupt import Interrupt
from localspec.core.logits import Sampling
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Proposal, Scores
from localspec.decode import round as rounds_module
from localspec.decode.request import Request
from localspec.decode.round import RoundResult
from localspec.decode.stats import RequestStats
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation.delivery import Delivery
from localspec.generation.reply_stream import Mailbox, ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed


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
        time.sleep(self.seconds * size / TARGET_BYTES)


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
        starts = [self.length(w.seq) % ROWS for w in work]
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
        model.size = TARGET_BYTES // 5
        pair.drafter = ChainDrafter(model, Proposal.COUPLED)
        curve = {n: clock.seconds * (1 + n / 256) for n in CURVE}
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
