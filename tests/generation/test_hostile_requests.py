"""No request keeps the thread of the models for itself: each kind at its limit, beside a reply that
goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from replies import ENDLESS, StopAfter

from localspec import Options, Runtime, Sampling
from localspec.core.errors import UsageError
from localspec.core.events import Message, MessageCall, Token
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Interrupt
from localspec.core.picture import Picture
from localspec.core.reply_request import MOST_STOP, ReplyRequest
from localspec.generation.preparation import LARGE
from localspec.generation.turns import Phases

MOST_SECONDS = 0.25
"""Of computing by that thread; all others wait for it."""
LONG = "the quick brown fox jumps over the lazy dog " * 12


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime.open(Options(parallel=4)) as found:
        yield found


def chat(text: str = "hello", **more: Any) -> ReplyRequest:
    given = {"sampling": Sampling(temperature=1.0), "seed": 1, "max_tokens": 60, **more}
    return ReplyRequest((Message("user", text),), **given)


EVERY_TOKEN = Sampling(temperature=1.0, logit_bias=tuple((i, 0.5) for i in range(300)))
HOSTILE: dict[str, Callable[[], list[ReplyRequest]]] = {
    "a costly schema": lambda: [
        chat(grammar=GrammarSpec.schema({"type": "integer", "multipleOf": 9973}))
    ],
    "an endless schema": lambda: [
        chat(grammar=GrammarSpec.schema({"type": "integer", "multipleOf": 9999991}))
    ],
    "an exponential regex": lambda: [chat(grammar=GrammarSpec.regex("(a|b)*a(a|b){300}(.*c){20}"))],
    "an ambiguous grammar": lambda: [
        chat(grammar=GrammarSpec.lark('start: a\na: a a | a a a | "x" | ')),
    ],
    "many stop texts": lambda: [chat(stop=tuple("a" * 120 + str(i) for i in range(64)))],
    "a long stop text": lambda: [chat(stop=("ab" * (MOST_STOP // 2),))],
    "every log-probability": lambda: [chat(LONG, logprobs=20, prompt_logprobs=20)],
    "a bias for each token": lambda: [chat(sampling=EVERY_TOKEN)],
    "sixteen long prompts": lambda: [chat(LONG, seed=seed) for seed in range(16)],
    "a huge message": lambda: [chat("a b " * 1_500_000)],
    "beginnings of control tokens": lambda: [chat("<|im_sta<|endoft" * 60_000)],
    "a huge prediction": lambda: [chat(prediction="a b " * 1_500_000)],
    "a prompt that was read before": lambda: [chat(LONG), chat(LONG + "again"), chat(LONG)],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_request_keeps_the_thread_of_the_models(runtime: Runtime, kind: str) -> None:
    phases = runtime._scheduler.replies.phases
    phases.longest.clear()
    stop = Interrupt()
    polite = runtime.submit(chat("tell a story", max_tokens=None), stop)
    events = iter(polite)
    assert any(isinstance(event, Token) for event in events)
    for stream in [runtime.submit(request) for request in HOSTILE[kind]()]:
        with contextlib.suppress(UsageError):  # nothing else may happen to it
            for _ in stream:
                pass
    stop.set()
    for _ in events:
        pass
    assert max(phases.longest.values()) < MOST_SECONDS, phases.longest


class Slowly(StopAfter):
    """A policy that holds each round of its reply for a moment: it lasts longer than others."""

    def reached(self) -> None:
        time.sleep(0.005)


def test_what_is_restored_for_one_request_depends_on_who_waits(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, waited_for = runtime._scheduler.prefix_cache, list[bool]()
    restore = cache.restore

    def noted(*given: Any, **more: Any) -> object:
        waited_for.append(more["waited_for"])
        return restore(*given, **more)

    monkeypatch.setattr(cache, "restore", noted)
    stop = Interrupt()
    endless = Sampling(temperature=1.0, logit_bias=ENDLESS)
    story = chat("tell a story", max_tokens=None, sampling=endless)
    slowly = Slowly(runtime.pair.control.policy, 1)
    events = iter(runtime.submit(story, stop, policy=slowly))
    assert any(isinstance(event, Token) for event in events)
    runtime.answer(chat(LONG))
    stop.set()
    for _ in events:
        pass
    runtime.answer(chat(LONG))
    assert waited_for == [False, True, False]


def test_what_has_pictures_is_tokenized_where_others_do_not_wait(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are decoded, and the encoder may have to be compiled first."""
    prompts, asked = runtime._scheduler._prompts, []
    monkeypatch.setattr(prompts, "call", lambda *_, long: asked.append(long))
    for pictures in ((), (Picture(data=b"a picture"),)):
        request = ReplyRequest((Message("user", "Hi", pictures=pictures),))
        runtime.tokenize(request, special=True, bos=True)
    assert asked == [False, True]


LONG_TEXT = "a b " * LARGE
LARGE_REQUESTS: dict[str, dict[str, Any]] = {
    "thinking": {"messages": (Message("assistant", "", LONG_TEXT), Message("user", "hi"))},
    "calls": {
        "messages": (
            Message("assistant", "", calls=(MessageCall("1", "f", f'{{"a": "{LONG_TEXT}"}}'),)),
            Message("user", "hi"),
        )
    },
    "tools": {"tools": f'[{{"a": "{LONG_TEXT}"}}]'},
    "variables of the template": {"template_arguments": f'{{"a": "{LONG_TEXT}"}}'},
}


@pytest.mark.parametrize("kind", LARGE_REQUESTS)
def test_all_that_a_template_is_given_counts_for_who_waits(runtime: Runtime, kind: str) -> None:
    request = replace(chat("hi"), **LARGE_REQUESTS[kind])
    preparation = runtime._scheduler.preparation
    assert preparation.takes_long(request)
    assert not preparation.takes_long(chat("hi"))
    assert request.size >= len(LONG_TEXT)


def test_what_takes_long_is_found(runtime: Runtime) -> None:
    def stall(_: object) -> None:
        sum(range(20_000_000))

    runtime._scheduler.call(stall)
    runtime._scheduler.call(lambda _: None)  # a call has its result before its time is noted
    assert runtime._scheduler.replies.phases.longest["calls"] > 0.1


def test_the_longest_is_kept() -> None:
    phases = Phases()
    phases.run("busy", lambda: sum(range(100_000)))
    first = phases.longest["busy"]
    phases.run("busy", lambda: sum(range(3_000_000)))
    phases.run("busy", lambda: None)
    assert phases.longest["busy"] > first > 0
