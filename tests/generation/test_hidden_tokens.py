"""What a reply says beyond its text is not put into prompts that quote the text."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from runnables import Letters, Pair, V

from localspec.core.events import Finished, Message, Reply
from localspec.core.interrupt import Interrupt
from localspec.core.logits import GREEDY
from localspec.core.reply_request import ReplyRequest
from localspec.core.values import Logits
from localspec.generation.scheduler import Scheduler
from localspec.generation.stop_condition import LineLimits, StopCondition
from localspec.testing import TableTarget

HIDDEN, END = "h", "a"


class Hiding(Letters):
    """The letter h is a control token: the text does not show it."""

    def piece(self, token: int) -> bytes:
        return super().piece(token).replace(HIDDEN.encode(), b"")

    def marker(self, token: int) -> str:
        return "<h>"


def saying(said: str, prompt: str) -> TableTarget:
    """Answers a prompt with these tokens, and everything else with b."""

    def table(tokens: object) -> Logits:
        written = "".join(chr(ord("a") + token) for token in tokens)  # type: ignore[attr-defined]
        at = len(written) - len(prompt)
        row = np.zeros(V, np.float32)
        known = 0 <= at < len(said) and written == prompt + said[:at]
        row[ord(said[at] if known else "b") - ord("a")] = 9.0
        return row

    return TableTarget(table, capacity=256)


def ask(scheduler: Scheduler, *texts: str, most: int = 8) -> Reply:
    roles = ("user", "assistant")
    said = tuple(Message(roles[i % 2], text) for i, text in enumerate(texts))
    request = ReplyRequest(said, sampling=GREEDY, max_tokens=most, seed=0)
    *_, last = scheduler.submit(request, Interrupt())
    assert isinstance(last, Finished)
    return last.reply


@pytest.mark.parametrize(
    ("said", "most"), [("dhea", 8), ("hdea", 8), ("deha", 8), ("deh", 3)], ids=str
)
def test_who_quotes_a_text_gets_no_token_that_it_did_not_show(said: str, most: int) -> None:
    """Such as the control token that begins a turn."""
    target = saying(said, "bc")
    with contextlib.closing(Scheduler(Pair(target, target_model=Hiding()))) as scheduler:
        first = ask(scheduler, "bc", most=most)
        assert first.text == "de"
        assert len(first.tokens) == len(said)
        later = ask(scheduler, "bc", "de", "f", most=1)
        assert later.stats.prompt_tokens == len("bcdef")


@pytest.mark.parametrize(("said", "most"), [("dea", 8), ("de", 2)], ids=str)
def test_a_reply_that_shows_all_but_its_end_is_not_read_again(said: str, most: int) -> None:
    with contextlib.closing(
        Scheduler(Pair(saying(said, "bc"), target_model=Hiding()))
    ) as scheduler:
        first = ask(scheduler, "bc", most=most)
        assert first.text == "de"
        later = ask(scheduler, "bc", "de", "f", most=1)
        assert later.stats.prompt_tokens == len("bcdef")
        assert later.stats.cached_tokens >= len("bcd")


def test_control_tokens_that_are_shown_by_name_hide_nothing() -> None:
    token = ord(HIDDEN) - ord("a")
    for shown, text in ((frozenset({token}), "<h>"), (frozenset[int](), "")):
        ending = StopCondition(Hiding(), (), shown, LineLimits())
        assert ending.take(token) == (text, None)
        assert ending.hides == (not text)
        ending = StopCondition(Hiding(), (), shown, LineLimits())
        assert ending.take(ord(END) - ord("a")) == ("", "stop")
        assert not ending.hides
