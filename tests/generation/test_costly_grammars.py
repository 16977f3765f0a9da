"""Nobody waits for another's grammar: while it is tried out, while it is followed, for memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tables
from runnables import Hooked, Letters, Pair, V, letters

from localspec.core.errors import GrammarError, Interrupted, QueueFullError, UsageError
from localspec.core.events import Examination, Finished, Reply
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest
from localspec.generation import examine, grammars
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.grammar import matching, rehearsal
from localspec.grammar.checking import Checker
from localspec.grammar.rehearsal import Rehearsed

ROWS = tables.random_table(51, v=V)
GONE = 60.0
"""Seconds after which a thread that should have ended is lost."""
COSTLY, CHEAP = GrammarSpec.regex("[b-y]{9}"), GrammarSpec.regex("[b-y]{5}")


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    """As in an engine, a search for garbage leaves out what was loaded before: here it takes longer
    than a grammar may, and is of whichever thread made the last object.
    """
    gc.freeze()
    yield
    gc.unfreeze()


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


LATE = "bcdefghijklmnopq" * 4
"""A reply of many places."""


def look(scheduler: Scheduler, text: str, grammar: GrammarSpec, gone: Interrupt) -> Examination:
    """Examine the place of the last letter of a reply."""
    request = ReplyRequest(prompt="bcd", sampling=tables.WARM, seed=1, grammar=grammar)
    tokens = Letters().tokenize(text)
    return examine.examine(scheduler, scheduler._pair, request, tokens, tokens[0], gone)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "grammar", [GrammarSpec.lark("start: /[b-y]*/"), GrammarSpec.regex("[b-y]*")]
)
def test_a_place_is_followed_to_beside_the_others_and_no_token_twice(
    scheduler, desk, monkeypatch, grammar
) -> None:
    mask, computed, threads = matching.GrammarMatcher._mask, list[int](), set[str]()

    def noted(self: Any, before: Any) -> Any:
        computed.append(len(before))
        threads.add(threading.current_thread().name)
        return mask(self, before)

    monkeypatch.setattr(matching.GrammarMatcher, "_mask", noted)
    found = look(scheduler, LATE, grammar, Interrupt())
    assert found.chosen.p > 0
    assert found.candidates[0].text
    assert computed == [*range(3, 3 + len(LATE))]
    assert threads == {threading.current_thread().name}


def test_who_leaves_while_a_grammar_is_followed_to_a_place_ends_that(
    scheduler, desk, monkeypatch
) -> None:
    mask, gone, places = matching.GrammarMatcher._mask, Interrupt(), list[int]()

    def left(self: Any, before: Any) -> Any:
        places.append(len(before))
        if len(places) == 5:
            gone.set()
        return mask(self, before)

    monkeypatch.setattr(matching.GrammarMatcher, "_mask", left)
    with pytest.raises(Interrupted):
        look(scheduler, LATE, GrammarSpec.lark("start: /[b-y]*/"), gone)
    assert len(places) == 5


def test_who_leaves_while_the_grammar_of_a_place_is_tried_out_ends_that(scheduler, desk) -> None:
    gone, ended = Interrupt(), list[Exception]()

    def looks() -> None:
        try:
            look(scheduler, "bcde", COSTLY, gone)
        except Exception as error:  # noqa: BLE001 - what it was is looked at below
            ended.append(error)

    thread = threading.Thread(target=looks, daemon=True)
    thread.start()
    assert desk.begun.wait(GONE)
    gone.set()
    thread.join(GONE)
    desk.go_on.set()
    assert [type(error) for error in ended] == [Interrupted]


def test_a_place_that_takes_too_long_to_be_followed_to_is_refused(
    scheduler, desk, monkeypatch
) -> None:
    monkeypatch.setattr(examine, "_FOLLOW_S", -1.0)
    with pytest.raises(GrammarError, match="takes more than"):
        look(scheduler, LATE, CHEAP, Interrupt())


def test_a_place_behind_a_token_that_its_grammar_forbids_is_a_mistake_of_who_asks(
    scheduler, desk
) -> None:
    with pytest.raises(UsageError, match="token 3 is none"):
        look(scheduler, "bczde", CHEAP, Interrupt())
    assert look(scheduler, "bcdz", CHEAP, Interrupt()).chosen.p == 0.0


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
