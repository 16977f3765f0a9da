"""Many requests at once on tables: each gets its own reply, and none waits for another's sake."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import tables
from runnables import Costs, Flag, Hooked, Letters, Pair, V, Watchdog, letters
from waiting import until

from localspec.core.adapter_list import AdapterUse, Blend
from localspec.core.errors import (
    AuditError,
    ContextError,
    DecodeError,
    Interrupted,
    LocalspecError,
    NotNumbersError,
    QueueFullError,
    UsageError,
)
from localspec.core.events import Finished, Message, Reply, Token
from localspec.core.interrupt import Interrupt
from localspec.core.logits import GREEDY
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Logits, Proposal, Scores, Tokens
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation.part_sizes import PartSizes
from localspec.generation.preparation import LARGE
from localspec.generation.prompt_thread import Ready
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.testing import Fixed, TableModel

ROWS = tables.random_table(51, v=V)
GONE = 60.0
"""Seconds after which a thread that should have ended is lost."""


def table(tokens: Tokens) -> Logits:
    """No reply ends by itself; what follows z is no number."""
    row = ROWS(tokens).copy()
    row[[0, 25]] = -50.0
    return np.full(V, np.nan, np.float32) if tokens and tokens[-1] == 25 else row


class Gate:
    """Holds the computing thread before every pass until it is opened."""

    def __init__(self, target: Hooked) -> None:
        self._open = threading.Event()
        self.entered = threading.Semaphore(0)
        self._flag: Flag | None = None
        target.before_score = target.before_read = self._wait

    def _wait(self) -> None:
        self.entered.release()
        assert self._open.wait(GONE)

    def open(self) -> None:
        self._open.set()


class House:
    """A scheduler, and what it runs."""

    def __init__(
        self,
        sequences: int = 3,
        capacity: int = 4096,
        most_waiting: int = 100,
        model: Letters | None = None,
        looks: Callable[[Tokens], Logits] = table,
    ) -> None:
        self.target = Hooked(looks, capacity, sequences)
        draft = ChainDrafter(TableModel(tables.blend(ROWS, ROWS, 0.1)), Proposal.COUPLED)
        self.drafter = Cascade([Suffix(2), draft])
        self.pair = Pair(
            self.target,
            self.drafter,
            Costs(Fixed(3)),
            model or Letters(),
            watchdog=Watchdog(),
        )
        self.scheduler = Scheduler(self.pair, most_waiting)

    def submit(self, prompt: str = "bcd", n: int = 20, **more: object) -> ReplyStream:
        interrupt = more.pop("interrupt", None) or Interrupt()
        request = ReplyRequest(
            prompt=prompt, **{"sampling": tables.WARM, "seed": 1, "max_tokens": n, **more}
        )
        return self.scheduler.submit(request, interrupt)

    def audit(self) -> None:
        """Nothing runs, waits or is known any more, and the caches are what they are taken for."""
        self.scheduler.call(lambda _free: None)
        scheduler = self.scheduler
        assert not scheduler.replies.running
        assert not scheduler._ready
        assert not [job for job in scheduler._jobs if not job.over]
        for seq, cached in scheduler.prefill.sequences.tokens.items():
            assert self.target.cache[seq][: len(cached)] == cached


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.scheduler.close()


def reply(stream: ReplyStream) -> Reply:
    *_, last = stream
    assert isinstance(last, Finished)
    return last.reply


def alone(prompt: str, n: int, **more: object) -> Reply:
    house = House(1)
    try:
        return reply(house.submit(prompt, n, **more))
    finally:
        house.scheduler.close()


MANY = [(letters([2 + i % 20, 3, 4 + i % 7, 5]), 5 + 3 * (i % 6), i) for i in range(12)]


def test_each_of_many_requests_gets_the_reply_it_would_get_alone(house: House) -> None:
    kinds = [{"sampling": GREEDY}, {}, {"draft": False}, {"stop": ("c",)}]
    asked = [(prompt, n, {"seed": seed, **kinds[seed % 4]}) for prompt, n, seed in MANY]
    gate = Gate(house.target)
    streams = [house.submit(prompt, n, **more) for prompt, n, more in asked]
    assert gate.entered.acquire(timeout=GONE)
    until(lambda: house.scheduler._messages.qsize() + len(house.scheduler._ready) > 8)
    gate.open()
    for stream, (prompt, n, more) in zip(streams, asked, strict=True):
        found, right = reply(stream), alone(prompt, n, **more)
        assert (found.tokens, found.text, found.finish_reason) == (
            right.tokens,
            right.text,
            right.finish_reason,
        )
    house.audit()
    assert max(width for width, _ in house.pair.watchdog.passes) > 4  # they shared passes


def test_text_and_counts_of_a_stream_are_its_own(house: House) -> None:
    streams = [house.submit(prompt, n, seed=seed) for prompt, n, seed in MANY]
    for stream in streams:
        events = [*stream]
        last = events[-1]
        assert isinstance(last, Finished)
        tokens = [event for event in events if isinstance(event, Token)]
        assert tuple(t.token for t in tokens) == last.reply.tokens
        assert "".join(t.text for t in tokens) == last.reply.text


def test_a_long_prompt_is_read_between_the_rounds_of_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartSizes, "within", lambda *_: 64)  # however fast this machine reads
    house = House(2)
    order: list[str] = []
    gate = Gate(house.target)
    running = house.submit("bcd", 30)
    gate.entered.acquire()
    house.target.before_read = lambda: order.append("part")
    house.target.before_score = lambda: order.append("round")
    long = house.submit("bcdefgh" * 100, 5)
    until(lambda: house.scheduler._messages.qsize() > 0)
    gate.open()
    assert len(reply(running).tokens) == 30
    assert reply(long).tokens == alone("bcdefgh" * 100, 5).tokens
    parts = [i for i, what in enumerate(order) if what == "part"]
    assert len(parts) > 3
    assert order[parts[0] : parts[3]].count("round") >= 3
    house.scheduler.close()


def test_a_draft_model_reads_a_known_prompt_between_the_rounds_of_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target has read it before, the draft model has not."""
    monkeypatch.setattr(PartSizes, "within", lambda *_: 64)
    house, prompt = House(2), "bcdefgh" * 100
    right = alone(prompt, 40)
    reply(house.submit(prompt, 1, draft=False))
    order: list[object] = []
    gate = Gate(house.target)
    running = house.submit("bcd", 60)
    gate.entered.acquire()
    house.target.before_score = lambda: order.append("round")
    read = ChainDrafter.read_missed

    def read_missed(self: ChainDrafter, seq: int, tokens: Tokens, upto: int) -> None:
        order.append(upto)
        read(self, seq, tokens, upto)

    monkeypatch.setattr(ChainDrafter, "read_missed", read_missed)
    long = house.submit(prompt, 40)
    until(lambda: house.scheduler._messages.qsize() > 0)
    gate.open()
    assert len(reply(running).tokens) == 60
    found = reply(long)
    assert found.tokens == right.tokens
    assert found.stats.cached_tokens == len(prompt) - 1
    parts = [(i, upto) for i, upto in enumerate(order) if upto != "round"]
    steps = np.diff([0, *(upto for _, upto in parts)])
    assert max(steps) <= 64 + 32
    assert len(parts) > 8
    assert all(order[i + 1] == "round" for i, _ in parts)
    house.scheduler.close()


# -- stopping ----------------------------------------------------------------------------------


def test_stopping_one_request_does_not_disturb_the_other() -> None:
    house = House(2)
    gate = Gate(house.target)
    one, other = house.submit("bcd", 30, seed=1), house.submit("efg", 30, seed=2)
    gate.entered.acquire()
    one.interrupt()
    gate.open()
    assert reply(one).finish_reason == "interrupt"
    found = reply(other)
    assert found.tokens == alone("efg", 30, seed=2).tokens
    assert found.finish_reason == "length"
    house.scheduler.close()


class Aborts(Hooked):
    """A target whose pass is aborted by the stop signal, as llama.cpp's is."""

    flag: Flag

    def score(self, work: Sequence[Work]) -> list[Scores]:
        self.before_score()
        if self.flag.is_set():
            raise Interrupted("interrupted")
        return super(Hooked, self).score(work)


@pytest.mark.parametrize("n_stopped", [1, 2])
def test_a_pass_is_aborted_when_all_that_it_computes_for_are_stopped(n_stopped: int) -> None:
    house = House(2)
    target = Aborts(table, sequences=2)
    target.flag = house.pair.stop
    prefill = house.scheduler.prefill
    house.pair.target = prefill._target = prefill.sequences._target = target
    tokens = iter(range(1000))

    def in_a_pass_of_both() -> None:
        running = house.scheduler.replies.running
        if aborted:
            return
        if len(running) < 2 or len(streams) < 2:
            time.sleep(0.05)  # the prompt of the other one is being made
        elif not any(one.reading for one in running) and next(tokens) == 3:
            for stream in streams[:n_stopped]:
                stream.interrupt()
            aborted.append(house.pair.stop.is_set())

    aborted: list[bool] = []
    streams: list[ReplyStream] = []
    target.before_score = in_a_pass_of_both
    streams.append(house.submit("bcd", 40, seed=1))
    streams.append(house.submit("efg", 40, seed=2))
    replies = [reply(stream) for stream in streams]
    assert aborted == [n_stopped == 2]
    assert [r.finish_reason for r in replies[:n_stopped]] == ["interrupt"] * n_stopped
    if n_stopped == 1:
        assert replies[1].tokens == alone("efg", 40, seed=2).tokens
    house.scheduler.close()


def test_a_request_that_waits_is_over_as_soon_as_it_is_interrupted() -> None:
    """Not when the thread that computes comes round to it: that one is held in a pass."""
    house = House(1)
    gate = Gate(house.target)
    running, waiting = house.submit("bcd"), house.submit("efg")
    gate.entered.acquire()
    waiting.interrupt()
    found = reply(waiting)
    assert (found.finish_reason, found.tokens) == ("interrupt", ())
    gate.open()
    assert reply(running).finish_reason == "length"
    house.audit()
    house.scheduler.close()


def test_an_interrupt_while_a_template_runs_ends_the_reply_as_everywhere() -> None:
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}x"
    house = House(1, model=Letters(endless))
    request = ReplyRequest(messages=(Message("user", "b"),), seed=1)
    stream = house.scheduler.submit(request, Interrupt())
    stream.interrupt()
    assert reply(stream).finish_reason == "interrupt"
    house.scheduler.close()


@pytest.mark.parametrize("kind", ["models", "prompts", "long prompts"])
def test_a_request_without_a_thread_ends_with_the_error_and_the_next_one_gets_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    house, start = House(1), threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name == f"localspec {kind}":
            raise RuntimeError("can't start new thread")
        start(thread)

    long = ReplyRequest(messages=(Message("user", "b" * (LARGE + 1)),), seed=1)
    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(RuntimeError, match="new thread"):
        reply(house.scheduler.submit(long, Interrupt()))
    monkeypatch.undo()
    with pytest.raises(ContextError):
        reply(house.scheduler.submit(long, Interrupt()))
    assert reply(house.submit()).tokens == alone("bcd", 20).tokens
    house.audit()
    house.scheduler.close()


def test_a_stream_that_nobody_has_any_more_makes_room() -> None:
    house = House(1)
    gate = Gate(house.target)
    stream = house.submit("bcd", 4000)
    gate.entered.acquire()
    other = house.submit("efg", 5)
    del stream
    gc.collect()
    gate.open()
    assert len(reply(other).tokens) == 5
    house.audit()
    house.scheduler.close()


def test_a_closed_stream_says_no_more_and_makes_room() -> None:
    house = House(1)
    gate = Gate(house.target)
    stream = house.submit("bcd", 4000)
    gate.entered.acquire()
    stream.close()
    gate.open()
    assert [*stream] == []
    assert len(reply(house.submit("efg", 5)).tokens) == 5
    house.scheduler.close()


# -- room --------------------------------------------------------------------------------------


def test_nobody_waits_for_all_that_another_one_has_sent() -> None:
    house = House(1)
    gate = Gate(house.target)
    begun: list[str] = []
    admit = house.scheduler.replies.admit

    def noted(ready: Ready) -> None:
        begun.append(ready.job.request.owner)
        admit(ready)

    house.scheduler.replies.admit = noted  # type: ignore[method-assign]
    streams = [house.submit(n=3, owner="a")]
    gate.entered.acquire()
    streams += [house.submit(n=3, owner=owner) for owner in ("a", "a/x", "a/y", "b", "b", "c")]
    until(lambda: house.scheduler._messages.qsize() == 6)  # all prompts are made
    gate.open()
    for stream in streams:
        reply(stream)
    assert begun == ["a", "b", "c", "a", "b", "a/x", "a/y"]
    house.scheduler.close()


def test_who_waits_is_not_passed_by_those_who_come_back() -> None:
    house = House(1)
    gate = Gate(house.target)
    begun: list[str] = []
    later: list[ReplyStream] = []
    admit = house.scheduler.replies.admit

    def noted(ready: Ready) -> None:
        owner = ready.job.request.owner
        begun.append(owner)
        if owner != "a" and len(begun) < 12:
            later.append(house.submit(n=3, owner=owner))
        admit(ready)

    house.scheduler.replies.admit = noted  # type: ignore[method-assign]
    streams = [house.submit(n=3, owner="a")]
    gate.entered.acquire()
    streams += [house.submit(n=3, owner=owner) for owner in ("a", "b", "c")]
    until(lambda: house.scheduler._messages.qsize() == 3)
    gate.open()
    for stream in streams:
        reply(stream)
    assert begun.index("a", 1) <= 4
    for stream in later:
        reply(stream)
    house.scheduler.close()


def test_calls_that_compute_have_rounds_of_replies_between_them(house: House) -> None:
    order: list[str] = []
    decode = house.scheduler.replies.decode

    def noted() -> None:
        order.append("round")
        decode()

    house.scheduler.replies.decode = noted  # type: ignore[method-assign]
    running = house.submit(n=2000)
    until(lambda: order)

    def call() -> None:
        house.scheduler.call(lambda _: order.append("call"), needs_sequence=True)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GONE)
    assert order.count("call") == 6
    assert all(pair != ("call", "call") for pair in itertools.pairwise(order))
    running.interrupt()


def test_a_full_queue_refuses_in_one_line_and_takes_again_later() -> None:
    house = House(1, most_waiting=2)
    gate = Gate(house.target)
    running = house.submit()
    gate.entered.acquire()
    waiting = [house.submit(), house.submit()]
    with pytest.raises(QueueFullError, match="2 requests are waiting already; try again later"):
        house.submit()
    waiting[0].interrupt()
    later = house.submit(n=3)
    gate.open()
    assert len(reply(running).tokens) == len(reply(waiting[1]).tokens) == 20
    assert len(reply(later).tokens) == 3
    house.scheduler.close()


def test_a_prompt_that_fits_only_once_another_reply_is_over_waits_for_it() -> None:
    house = House(1, capacity=60)
    first, second = house.submit("b" * 40, 20), house.submit("c" * 55, 5)
    assert len(reply(first).tokens) == 20
    assert len(reply(second).tokens) == 5
    house.scheduler.close()


def test_contexts_that_run_full_one_by_one_end_their_replies_one_by_one() -> None:
    house = House(3, capacity=50)
    streams = [house.submit(letters([3] * n), None, seed=n) for n in (10, 20, 30)]
    replies = [reply(stream) for stream in streams]
    assert [len(r.tokens) for r in replies] == [41, 31, 21]
    assert {r.finish_reason for r in replies} == {"length"}
    house.audit()
    house.scheduler.close()


def test_a_prompt_goes_where_its_beginning_is(house: House) -> None:
    prompts = ["bcdefghij", "klmnopqrs", "tuvwxybcd"]
    for prompt in prompts:
        reply(house.submit(prompt, 4))
    again = reply(house.submit(prompts[1] + "bb", 4))
    assert again.stats.cached_tokens >= len(prompts[1])
    assert reply(house.submit(prompts[0] + "bb", 4)).stats.cached_tokens >= len(prompts[0])
    reply(house.submit("yyyyy", 4))  # the least recently used one is overwritten
    assert reply(house.submit(prompts[1] + "cc", 4)).stats.cached_tokens >= len(prompts[1])
    assert reply(house.submit(prompts[2] + "cc", 4)).stats.cached_tokens == 0


# -- failures ----------------------------------------------------------------------------------


def test_a_request_that_fails_ends_alone_with_its_error(house: House) -> None:
    bad, good = house.submit("bcz"), house.submit("bcd")
    with pytest.raises(NotNumbersError):
        reply(bad)
    assert reply(good).tokens == alone("bcd", 20).tokens
    forbidden = [(i, float("-inf")) for i in range(V)]
    banned = house.submit("bcd", sampling=tables.Sampling(logit_bias=tuple(forbidden)))
    with pytest.raises(UsageError, match="forbids every token"):
        reply(banned)
    with pytest.raises(UsageError, match="logit bias for token 99"):
        reply(house.submit("bcd", sampling=tables.Sampling(logit_bias=((99, 1.0),))))
    assert reply(house.submit("bcd")).tokens == alone("bcd", 20).tokens
    house.audit()


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        ((AdapterUse("2:/adapters/a.gguf"), AdapterUse("b.gguf", 0.0)), "the adapters a.gguf, the"),
        (None, "the adapters that it was loaded with, the"),
    ],
)
def test_logits_that_are_not_numbers_with_adapters_are_said_to_be_of_them(
    house: House, monkeypatch: pytest.MonkeyPatch, uses: tuple[AdapterUse, ...] | None, said: str
) -> None:
    """The user was sent to the file of the model."""
    monkeypatch.setattr(house.target, "blend", lambda _uses: Blend((("digest", 1.0),), "key"))
    with pytest.raises(NotNumbersError, match=said):
        reply(house.submit("bcz", adapters=uses))


@pytest.mark.parametrize("error", [DecodeError("the device is lost"), ValueError("a defect")])
def test_a_target_that_fails_ends_all_with_that_error_and_empty_caches(
    house: House, error: Exception
) -> None:
    passes, mended = iter(range(1000)), threading.Event()

    def fails() -> None:  # also a request that comes in after the others have failed
        if next(passes) >= 5 and not mended.is_set():
            raise error

    house.target.before_score = fails
    streams = [house.submit(prompt, 50, seed=seed) for prompt, _, seed in MANY[:3]]
    for stream in streams:
        with pytest.raises(type(error), match=str(error)):
            reply(stream)
    mended.set()
    assert reply(house.submit("bcd")).tokens == alone("bcd", 20).tokens
    house.audit()


def test_a_pass_that_fails_ends_none_whose_prompt_is_still_read(house: House) -> None:
    prompt = "bcdefghijklmnopqrstuvwxy" * 30
    right = alone(prompt, 8).tokens
    house.scheduler.prefill.sizes = Sizes()
    running = house.submit("bcd", 4000)
    next(running)
    reading = house.submit(prompt, 8)
    parts = iter(range(1000))

    def second_part() -> None:
        if next(parts) == 1:
            house.target.before_score = fails

    def fails() -> None:
        house.target.before_score = lambda: None
        raise DecodeError("out of luck")

    house.target.before_read = second_part
    with pytest.raises(DecodeError, match="out of luck"):
        reply(running)
    assert reply(reading).tokens == right
    house.audit()


class Sizes(PartSizes):
    """Prompts are read in many parts."""

    def __init__(self) -> None:
        super().__init__(aborts=True)

    def within(self, seconds: float) -> int:
        return 16

    def alone(self) -> int:
        return 16

    def of(self, left: int, most: int) -> int:
        return min(left, most)


def test_a_pass_that_takes_an_idle_text_with_it_costs_no_later_request() -> None:
    """As where the two were about to change places in the KV cache."""
    house = House(2)
    reply(house.submit("bcdefghijklmnopqrstu", 5))
    (idle,) = [seq for seq, cached in house.scheduler.prefill.sequences.tokens.items() if cached]

    def fails() -> None:
        house.target.truncate(idle, 0)
        raise DecodeError("the exchange failed")

    gate = Gate(house.target)
    running = house.submit("klmnopq", 20)
    gate.entered.acquire()
    house.target.before_score = fails
    gate.open()
    with pytest.raises(DecodeError):
        reply(running)
    house.target.before_score = lambda: None
    prompt = "bcdefghijklmnopqrstu"
    assert reply(house.submit(prompt, 5)).tokens == alone(prompt, 5).tokens
    house.audit()
    house.scheduler.close()


def test_closing_ends_what_runs_and_what_waits_as_interrupted() -> None:
    house = House(1)
    gate = Gate(house.target)
    running, waiting = house.submit("bcd", 4000), house.submit("efg")
    gate.entered.acquire()
    closing = threading.Thread(target=house.scheduler.close)
    closing.start()
    until(lambda: house.scheduler.closed)
    gate.open()
    closing.join(GONE)
    assert not closing.is_alive()
    assert reply(running).finish_reason == "interrupt"
    assert reply(waiting).finish_reason == "interrupt"
    with pytest.raises(UsageError, match="closed"):
        house.submit()
    with pytest.raises(UsageError, match="closed"):
        house.scheduler.call(lambda _free: None)


def test_a_defect_of_the_scheduler_itself_leaves_nobody_waiting(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(house.target)
    running = house.submit("bcd", 4000)
    waiting = [house.submit("bcd") for _ in range(5)]
    gate.entered.acquire()

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(house.scheduler.replies, "end_stopped", broken)
    gate.open()
    for stream in (running, *waiting):
        with pytest.raises(RuntimeError, match="a defect"):
            reply(stream)


# -- what is done between rounds ---------------------------------------------------------------


def test_forgetting_empties_what_rests_now_and_what_runs_when_it_ends() -> None:
    house = House(2)
    reply(house.submit("bcdefgh", 5))
    gate = Gate(house.target)
    running = house.submit("klmnopq", 20)
    gate.entered.acquire()
    forgetting = threading.Thread(target=house.scheduler.forget)
    forgetting.start()
    until(lambda: house.scheduler._messages.qsize() > 0)
    gate.open()
    forgetting.join(GONE)
    assert reply(running).tokens == alone("klmnopq", 20).tokens
    house.scheduler.call(lambda _free: None)
    assert [house.target.length(seq) for seq in range(2)] == [0, 0]
    assert reply(house.submit("bcdefgh", 5)).stats.cached_tokens == 0
    house.scheduler.close()


@pytest.mark.parametrize("error", [Interrupted("interrupted"), DecodeError("no device")])
def test_what_fails_while_the_old_text_is_saved_leaves_no_old_text_under_the_new_one(
    error: LocalspecError,
) -> None:
    """Saving a sequence may need a pass: tokens of a tree's side branch are read first."""
    house = House(1)
    house.pair.cache_bytes = 1 << 20
    house.scheduler.close()
    house.scheduler = Scheduler(house.pair)
    old, new = "bcdefghijklmnop", "qrstuvwxyqrstuvwxyqrstuvw"
    right = alone(new, 12).tokens
    reply(house.submit(old, 30, owner="alice"))
    state_size = house.target.state_size

    def fails(seq: int) -> int:
        house.target.state_size = state_size
        raise error

    house.target.state_size = fails
    stream = house.submit(new, 12, owner="bob")
    if isinstance(error, Interrupted):
        assert reply(stream).finish_reason == "interrupt"
    else:
        with pytest.raises(DecodeError):
            reply(stream)
    for owner in ("alice", "bob"):
        assert reply(house.submit(new, 12, owner=owner)).tokens == right
    house.audit()
    house.scheduler.close()


def test_an_interrupt_does_not_abort_what_is_done_for_the_text_before() -> None:
    house = House(1)
    interrupt, flags = Interrupt(), list[bool]()
    begin = house.scheduler.prefill.begin

    def interrupted(generation: object, **how: object) -> object:
        interrupt.set()
        flags.append(house.pair.stop.is_set())
        return begin(generation, **how)

    house.scheduler.prefill.begin = interrupted
    assert reply(house.submit(interrupt=interrupt)).finish_reason == "interrupt"
    assert flags == [False]
    house.audit()
    house.scheduler.close()


def test_forgetting_empties_the_draft_model_too() -> None:
    house = House(1)
    reply(house.submit("bcdefghijklmnopqrstu", 4, owner="alice"))
    draft = house.drafter.members[1]
    assert draft.length(0)
    house.scheduler.forget()
    assert not draft.length(0)
    house.scheduler.close()


def test_what_needs_a_sequence_waits_for_one_and_errors_reach_the_caller() -> None:
    house = House(1)
    running = house.submit("bcd", 30)
    assert house.scheduler.call(lambda free: [*free], needs_sequence=True) == [0]
    assert len(reply(running).tokens) == 30

    def fails(_free: Sequence[int]) -> None:
        raise LocalspecError("not possible")

    with pytest.raises(LocalspecError, match="not possible"):
        house.scheduler.call(fails)
    house.scheduler.close()


def test_a_place_that_finds_a_cache_unsound_is_the_last_to_find_it_so() -> None:
    house = House(1)
    text = reply(house.submit("bcdefgh", 9)).tokens
    house.target.truncate(0, 3)  # which the scheduler does not know
    usual = house.target.blend(None)

    def row(free: Sequence[int]) -> object:
        return house.scheduler.prefill.row_after([1, 2, 3, 4, 5, 6, 7, *text], free, "", usual)

    with pytest.raises(AuditError):
        house.scheduler.call(row, needs_sequence=True)
    assert house.scheduler.call(row, needs_sequence=True) is not None
    house.audit()
    house.scheduler.close()


# -- storms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_requests_stopped_and_dropped_in_random_order_leave_nothing_behind(n: int) -> None:
    house = House(4, capacity=64, most_waiting=2000)
    dice = random.Random(7)
    right = {i: alone(*MANY[i][:2], seed=i).tokens for i in range(len(MANY))}
    streams: list[tuple[int, ReplyStream]] = []
    begun = 0
    while begun < n or streams:
        if begun < n and (dice.random() < 0.6 or not streams):
            i = dice.randrange(len(MANY))
            streams.append((i, house.submit(*MANY[i][:2], seed=i, draft=dice.random() < 0.7)))
            begun += 1
            continue
        i, stream = streams.pop(dice.randrange(len(streams)))
        match dice.randrange(5):
            case 0:
                stream.close()
            case 1:
                del stream
            case 2:
                next(stream)
                stream.interrupt()
                found = reply(stream)
                assert found.tokens == right[i][: len(found.tokens)]
            case 3:
                stream.interrupt()
                found = reply(stream)
                assert found.tokens == right[i][: len(found.tokens)]
            case _:
                assert reply(stream).tokens == right[i]
    house.audit()
    for seq in range(4):
        house.scheduler.call(lambda _free, seq=seq: house.target.audit(seq))
    assert house.drafter.length(0) <= 64
    house.scheduler.close()
    assert not house.scheduler._thread.is_alive()


def test_many_threads_may_ask_at_once(house: House) -> None:
    right = {i: alone(*MANY[i][:2], seed=i).tokens for i in range(6)}
    wrong: list[int] = []

    def client(i: int) -> None:
        for _ in range(5):
            found = reply(house.submit(*MANY[i][:2], seed=i)).tokens
            wrong.extend([i] * (found != right[i]))

    clients = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(GONE)
    assert not any(thread.is_alive() for thread in clients)
    assert wrong == []
    house.audit()


def test_a_request_without_drafts_is_off_and_the_others_draft(house: House) -> None:
    plain, drafted = house.submit("bcd", 20, draft=False), house.submit("efg", 20)
    found = reply(plain)
    assert (found.stats.drafted, found.stats.speculation.state) == (0, "off")
    assert reply(drafted).stats.drafted > 0
