"""Nobody waits for another's grammar: while it is tried out, while it is followed, for memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tables
from runnables import Hooked, Letters, Pair, V, letters

from localspec.core.errors import GrammarError, Interrupted, QueueFullError, UsageError
from localspec.core.events import Finished, Reply
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest
from localspec.generation import grammars
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.grammar import matching, rehearsal
from localspec.grammar.checking import Checker
from localspec.grammar.rehearsal import Rehearsed

ROWS = tables.random_table(51, v=V)
GONE = 60.0
"""Seconds after which a thread that should have ended is lost."""
COSTLY, CHEAP = GrammarSpec.regex("[b-y]{9}"), GrammarSpec.regex("[b-y]{5}")


class Spelled(Letters):
    """Letters with a grammar's vocabulary."""

    def grammar_vocabulary(self) -> Any:
        return rehearsal.tokenizer(
            [b"\xff<end>", *(letters([i]).encode() for i in range(1, V))], [0]
        )


class Desk:
    """Tries grammars out; the costly one when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.asked: list[GrammarSpec] = []

    def checked(
        self, spec: GrammarSpec, _family: object, _marker: object, cancelled: Callable[[], bool]
    ) -> Rehearsed:
        self.asked.append(spec)
        if spec == COSTLY:
            self.begun.set()
            while not self.go_on.wait(0.01):
                if cancelled():
                    raise Interrupted("gone")
        if spec.text == "refused":
            raise UsageError("too costly")
        return Rehearsed(rehearsal.compiled(spec), 0.0, 1 << 20)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    found = Desk()
    monkeypatch.setattr(Checker, "checked", lambda _self, *given: found.checked(*given))
    return found


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    def looks(tokens: object) -> Any:
        row = ROWS(tokens).copy()  # type: ignore[arg-type]
        row[0] = -50.0
        return np.asarray(row, np.float32)

    found = Scheduler(Pair(Hooked(looks, 4096, 3), target_model=Spelled()))
    yield found
    found.close()


def ask(
    scheduler: Scheduler, grammar: GrammarSpec | None, interrupt: Interrupt | None = None
) -> ReplyStream:
    request = ReplyRequest(
        prompt="bcd", sampling=tables.WARM, seed=1, max_tokens=20, grammar=grammar
    )
    return scheduler.submit(request, interrupt or Interrupt())


def reply(stream: ReplyStream) -> Reply:
    *_, last = stream
    assert isinstance(last, Finished)
    return last.reply


def test_others_are_answered_while_a_grammar_is_tried_out(scheduler, desk) -> None:
    first = ask(scheduler, COSTLY)
    assert desk.begun.wait(GONE)
    assert len(reply(ask(scheduler, None)).tokens) == 20
    assert len(reply(ask(scheduler, CHEAP)).text) == 5
    desk.go_on.set()
    assert len(reply(first).text) == 9


def test_who_leaves_while_his_grammar_is_tried_out_ends_that(scheduler, desk) -> None:
    gone = Interrupt()
    stream = ask(scheduler, COSTLY, gone)
    assert desk.begun.wait(GONE)
    gone.set()
    assert reply(stream).finish_reason == "interrupt"
    scheduler.close()  # returns: nothing is left that waits for it


def test_a_grammar_is_tried_out_once_also_where_it_is_refused(scheduler, desk) -> None:
    for _ in range(3):
        assert len(reply(ask(scheduler, CHEAP)).text) == 5
        with pytest.raises(UsageError, match="too costly"):
            reply(ask(scheduler, GrammarSpec.regex("refused")))
    assert len(desk.asked) == 2


def test_a_reply_that_takes_too_long_to_follow_ends_alone(scheduler, desk, monkeypatch) -> None:
    burst = matching.GrammarMatcher._mask

    def slow(self: Any, before: Any) -> Any:
        if len(self._place.read) >= 2:
            self._effort._owed = 1.0
        return burst(self, before)

    monkeypatch.setattr(matching.GrammarMatcher, "_mask", slow)
    costly, plain = ask(scheduler, CHEAP), ask(scheduler, None)
    with pytest.raises(GrammarError, match="takes too long here"):
        reply(costly)
    assert len(reply(plain).tokens) == 20


def test_matchers_have_a_budget_of_memory_and_give_it_back(desk) -> None:
    made = grammars.Grammars(Spelled())
    first = made.constraint(CHEAP, [1], None)
    made._size += grammars._MATCHERS
    with pytest.raises(QueueFullError, match="try again later"):
        made.constraint(GrammarSpec.regex("[a-c]{4}"), [1], None)
    made._size -= grammars._MATCHERS
    del first
    assert made._size == 0
    assert made.constraint(CHEAP, [1], None) is not None
