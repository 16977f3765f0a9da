"""Masks that take too long are left behind, and nobody waits for them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from faults.grammars import late

from localspec.core.errors import GrammarError, QueueFullError
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar import guard, place
from localspec.grammar.guard import MOST_LEFT, Guard, require_room

TEXT, PATH = late(20, 40, 5)
LATE = GrammarSpec.lark(TEXT)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    found = threading.Event()
    yield found
    found.set()
    for thread in guard._left:
        thread.join()
    require_room()


def test_a_step_that_has_no_end_is_left_behind_and_the_next_one_is_computed(stop) -> None:
    one = Guard()

    def endless() -> None:
        while not stop.is_set():
            pass

    for _ in range(MOST_LEFT):
        require_room()
        with pytest.raises(GrammarError, match="a single token takes more than 10 ms"):
            one.run(endless, 0.01)
    with pytest.raises(QueueFullError, match="try again later"):
        require_room()
    done = threading.Event()
    assert one.run(done.set, 60.0) >= 0
    assert done.is_set()


def test_an_error_of_a_step_is_raised_and_its_thread_goes_on() -> None:
    one, threads = Guard(), set[threading.Thread]()
    with pytest.raises(ZeroDivisionError):
        one.run(lambda: 1 // 0, 60.0)
    for _ in range(3):
        one.run(lambda: threads.add(threading.current_thread()), 60.0)
    assert len(threads) == 1


def test_a_reply_whose_mask_is_left_behind_ends_and_leaves_the_matcher_alone(
    matcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = matcher(LATE)
    assert one.mask([]).count

    def left(*_: object) -> float:
        raise GrammarError("left")

    monkeypatch.setattr(Guard, "run", left)
    one._masks.clear()
    with pytest.raises(GrammarError, match="left"):
        one.mask([])
    one._place.matcher = None  # whatever touches it fails
    one._masks.clear()
    with pytest.raises(GrammarError, match="took too long"):
        one.mask([])
    assert one.forced([]) == []
    assert one.legal([], [5]) == 0
    assert not one.over([5])
    with pytest.raises(GrammarError, match="took too long"):
        one.take([5])


class Spy:
    """A matcher that notes what is asked of it."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.asked = inner, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            many = len(given[0]) if name in {"try_consume_tokens", "validate_tokens"} else 0
            self.asked.append(name if many < 2 else f"{name} {many}")
            return getattr(self.inner, name)(*given)

        return call


def test_a_draft_is_read_token_by_token_each_after_the_mask_of_its_place(
    matcher: Any, model: Any
) -> None:
    tokens = model.tokenize("x" * 12 + "qzqzqza", special=False)
    for ask in ("mask", "over", "legal"):
        one = matcher(LATE)
        spy = one._place.matcher = Spy(one._place.matcher)
        if ask == "legal":
            assert one.legal([], tokens) == len(tokens)
        else:
            getattr(one, ask)(tokens)
        steps = [a for a in spy.asked if "mask" in a or "consume" in a or "validate" in a]
        reads = [at for at, step in enumerate(steps) if step == "try_consume_tokens"]
        assert len(reads) >= len(tokens) - 1
        assert all(steps[at - 1] == "unsafe_compute_mask_ptr" for at in reads)
        assert len(steps) - len(reads) >= len(reads)  # nothing is read in one go


def test_forced_tokens_of_own_rules_are_asked_for_near_the_beginning_alone(
    matcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = matcher(GrammarSpec.lark('start: "abcdefgh" /[a-z]+/'))
    assert one.forced([])
    monkeypatch.setattr(place, "_FORCED", 0)
    assert one.forced([]) == []


def test_a_grammar_that_took_long_is_not_read_again_from_its_beginning(matcher: Any) -> None:
    one = matcher(LATE)
    one._place.start_again()
    one._effort.behind = 1.0
    with pytest.raises(GrammarError, match="once more from its beginning"):
        one._place.start_again()


def test_the_thread_of_a_guard_ends_with_it_and_what_it_computed_is_let_go() -> None:
    class Owner:
        def __init__(self) -> None:
            self.guard = Guard()

        def step(self) -> None:
            self.thread = threading.current_thread()

    owner = Owner()
    owner.guard.run(owner.step, 10.0)
    thread, gone = owner.thread, weakref.ref(owner)
    del owner
    for _ in range(50):  # the thread lets go of the last step once its result is taken
        gc.collect()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert not thread.is_alive()
    assert gone() is None
