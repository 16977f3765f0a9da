"""When the events of a round are handed over: while a device computes the next pass, or at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import tables
from runnables import Costs, Device, Hooked, Pair, V

from localspec.core.errors import DecodeError
from localspec.core.events import Finished, ReplyEvent, Round, Token
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Logits, Proposal, Scores, Tokens
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation.scheduler import Scheduler
from localspec.generation.stop_condition import StopCondition
from localspec.testing import Fixed, TableModel

ROWS = tables.random_table(7, v=V)
GONE = 60.0
"""Seconds after which a thread that should have ended is lost."""


def endless(tokens: Tokens) -> Logits:
    row = ROWS(tokens).copy()
    row[0] = -50.0
    return np.asarray(row, np.float32)


class Box:
    """A mailbox whose events can be looked at before the reply has ended."""

    def __init__(self) -> None:
        self.events: list[ReplyEvent] = []
        self.error: BaseException | None = None
        self.over = threading.Event()
        self.interrupt = Interrupt()

    def put(self, events: Sequence[ReplyEvent]) -> None:
        self.events += events
        if events and isinstance(events[-1], Finished):
            self.over.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.over.set()

    @property
    def tokens(self) -> int:
        return sum(isinstance(event, Token) for event in self.events)

    @property
    def rounds(self) -> int:
        return sum(isinstance(event, Round) for event in self.events)

    def timeless(self) -> list[ReplyEvent]:
        """The events without their times."""
        return [
            replace(e, draft_seconds=0, verify_seconds=0, seconds=0, probe_seconds=0, speedup=None)
            if isinstance(e, Round)
            else e
            for e in self.events
            if isinstance(e, Round | Token)
        ]


class Served:
    """A scheduler on a target of tables."""

    def __init__(self, target: Hooked) -> None:
        self.target = target
        draft = ChainDrafter(TableModel(tables.blend(ROWS, ROWS, 0.1)), Proposal.COUPLED)
        self.scheduler = Scheduler(Pair(target, draft, Costs(Fixed(2))))
        self.boxes: list[Box] = []

    def ask(self, prompt: str, n: int, box: Box | None = None, **more: object) -> Box:
        box = box or Box()
        self.boxes.append(box)
        settings = {"sampling": tables.WARM, "seed": 3, "max_tokens": n, **more}
        self.scheduler.deliver(ReplyRequest(prompt=prompt, **settings), box, box.interrupt)
        return box

    def end(self) -> None:
        for box in self.boxes:
            assert box.over.wait(GONE)


@pytest.fixture
def device() -> Iterator[Served]:
    served = Served(Device(endless, sequences=3))
    yield served
    served.scheduler.close()


@pytest.fixture
def processor() -> Iterator[Served]:
    served = Served(Hooked(endless, sequences=3))
    yield served
    served.scheduler.close()


def test_replies_and_events_are_those_of_a_processor(device: Served, processor: Served) -> None:
    asked = [("bcd", 40, {}), ("efg", 25, {"stop": ("b", "hi")}), ("b", 1, {}), ("kk", 30, {})]
    for served in (device, processor):
        for prompt, n, more in asked:
            served.ask(prompt, n, **more)
        served.end()
    for late, early in zip(device.boxes, processor.boxes, strict=True):
        assert [e for e in late.timeless() if isinstance(e, Token)] == [
            e for e in early.timeless() if isinstance(e, Token)
        ]
        ends = [box.events[-1] for box in (late, early)]
        assert all(isinstance(end, Finished) for end in ends)
        assert ends[0].reply.text == ends[1].reply.text
        assert ends[0].reply.finish_reason == ends[1].reply.finish_reason
        assert late.rounds == ends[0].reply.stats.rounds


def test_one_reply_alone_has_the_same_events(device: Served, processor: Served) -> None:
    boxes = [served.ask("bcd", 40) for served in (device, processor)]
    device.end()
    processor.end()
    assert boxes[0].timeless() == boxes[1].timeless()


def rounds_before_passes(served: Served) -> list[int]:
    """The rounds of a reply that were handed over before each pass, and after the last one."""
    box = Box()
    seen: list[int] = []
    served.target.before_score = lambda: seen.append(box.rounds)
    served.ask("bcd", 30, box)
    served.end()
    return [*seen, box.rounds]


def test_events_are_handed_over_in_the_next_pass(device: Served) -> None:
    *seen, rounds = rounds_before_passes(device)
    # The first round's tokens are waited for; those of later ones come a pass later.
    assert seen == [0, 1, *range(1, len(seen) - 1)]
    assert rounds == len(seen)


def test_a_processor_hands_them_over_before_it_computes(processor: Served) -> None:
    seen = rounds_before_passes(processor)
    assert seen == [*range(len(seen))]


def test_a_reply_that_ends_does_not_wait_for_the_pass_of_the_others(device: Served) -> None:
    other, short = device.ask("bcd", 60), device.ask("efg", 5)
    over_in_passes: list[tuple[int, bool]] = []
    device.target.before_score = lambda: over_in_passes.append((short.tokens, short.over.is_set()))
    device.end()
    assert other.tokens == 60
    assert all(over for tokens, over in over_in_passes if tokens == 5)


class Fails(Device):
    """Its sixth pass fails."""

    passes = 0

    def score(self, work: Sequence[Work]) -> list[Scores]:
        self.passes += 1
        if self.passes == 6:
            raise DecodeError("the device is lost")
        return super().score(work)


def test_what_was_put_off_comes_before_an_error() -> None:
    served = Served(Fails(endless, sequences=1))
    box = served.ask("bcd", 60)
    served.end()
    served.scheduler.close()
    assert isinstance(box.error, DecodeError)
    assert box.rounds == 5


class Full(Box):
    """A reader that takes no more than so many tokens."""

    def put(self, events: Sequence[ReplyEvent]) -> None:
        super().put(events)
        if self.tokens > 10:
            raise OSError("no space left")


@pytest.mark.parametrize("kind", ["device", "processor"])
@pytest.mark.parametrize("n", [11, 60])
def test_a_reader_that_fails_ends_its_own_reply_alone(
    kind: str, n: int, request: pytest.FixtureRequest
) -> None:
    served = request.getfixturevalue(kind)
    others = [served.ask("bcd", 40), served.ask("bcd", 40)]
    full = served.ask("efg", n, Full())
    served.end()
    assert isinstance(full.error, OSError) or (n == 11 and full.over.is_set())
    for box in others:
        assert box.error is None
        assert box.tokens == 40
    assert served.ask("efg", 40).over.wait(GONE)


class Gone(Full):
    """A reader that takes no error either."""

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        raise RuntimeError("the event loop is closed")


class Deaf(Box):
    """A reader that takes all but the last events."""

    def put(self, events: Sequence[ReplyEvent]) -> None:
        if events and isinstance(events[-1], Finished):
            raise OSError("no space left")
        super().put(events)


@pytest.mark.parametrize("kind", ["device", "processor"])
@pytest.mark.parametrize("reader", [Gone, Deaf])
def test_a_reader_that_nothing_can_be_told_ends_its_own_reply_alone(
    kind: str, reader: type[Box], request: pytest.FixtureRequest
) -> None:
    served = request.getfixturevalue(kind)
    other, bad = served.ask("bcd", 40), served.ask("efg", 40, reader())
    served.end()
    assert isinstance(bad.error, OSError)
    assert (other.error, other.tokens) == (None, 40)
    assert served.ask("bcd", 5).over.wait(GONE)


def test_a_request_that_cannot_begin_ends_alone(
    device: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = device.scheduler.prefix_cache.choose

    def fails(prompt: Sequence[int], *rest: object) -> int:
        if prompt[0] == 4:
            raise ValueError("a defect")
        return choose(prompt, *rest)

    monkeypatch.setattr(device.scheduler.prefix_cache, "choose", fails)
    other, bad = device.ask("bcd", 40), device.ask("efg", 40)
    device.end()
    assert isinstance(bad.error, ValueError)
    assert (other.error, other.tokens) == (None, 40)


def test_tokens_that_were_emitted_before_a_reply_failed_reach_its_reader(
    device: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of its ninth token cannot be made, in the middle of a round."""
    take, left = StopCondition.take, iter(range(8))

    def fails(self: StopCondition, token: int) -> object:
        if token is not None and next(left, None) is None:
            raise ValueError("no text")
        return take(self, token)

    monkeypatch.setattr(StopCondition, "take", fails)
    box = device.ask("bcd", 40)
    device.end()
    assert isinstance(box.error, ValueError)
    assert box.tokens == 8


def test_what_was_put_off_comes_before_an_interrupted_reply_ends(device: Served) -> None:
    box = Box()
    device.target.before_score = lambda: box.interrupt.set() if box.rounds == 4 else None
    device.ask("bcd", 60, box)
    device.end()
    last = box.events[-1]
    assert isinstance(last, Finished)
    assert last.reply.finish_reason == "interrupt"
    assert last.reply.stats.rounds == box.rounds
    assert len(last.reply.tokens) == box.tokens
