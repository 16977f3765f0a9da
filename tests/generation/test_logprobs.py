"""Scored prompts, prompts as tokens, and requests that emit nothing, on tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import pytest
import tables
from runnables import Costs, Hooked, Letters, Pair, V, letters

from localspec.core.emitted import PromptScored, TokenLogprobs
from localspec.core.errors import ContextError, NotNumbersError, UsageError
from localspec.core.events import Finished, Reading, ReplyEvent, Token
from localspec.core.interrupt import Interrupt
from localspec.core.logits import GREEDY
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import Logits, Scores, Tokens
from localspec.drafters.lookup.suffix import Suffix
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.testing import Fixed, Table

ROWS = tables.random_table(81, v=V)
TEXT = "bcdefghijklmnopqrstuvwxyz" * 7


def table(tokens: Tokens) -> Logits:
    """No reply ends by itself."""
    row = ROWS(tokens).copy()
    row[0] = -50.0
    return row


class Narrow(Hooked):
    """Scores no more rows in a pass than llama.cpp's contexts do."""

    def deepest(self, sequences: int) -> int:
        return 62

    widest = 0

    def score(self, work: Sequence[Work]) -> list[Scores]:
        self.widest = max(self.widest, *(1 + len(w.draft) for w in work))
        return super().score(work)


class House:
    def __init__(
        self, looks: Table = table, *, sequences: int = 2, cuts_anywhere: bool = True
    ) -> None:
        self.target = Narrow(looks, 512, sequences, cuts_anywhere=cuts_anywhere)
        self.scheduler = Scheduler(
            Pair(self.target, Suffix(2), Costs(Fixed(3)), Letters(), cache_bytes=1 << 20)
        )

    def submit(self, prompt: str | None = None, **more: object) -> ReplyStream:
        fields = {"sampling": tables.WARM, "seed": 1, "max_tokens": 9, **more}
        return self.scheduler.submit(ReplyRequest(prompt=prompt, **fields), Interrupt())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.close()


def scores(events: Sequence[ReplyEvent]) -> list[TokenLogprobs | None]:
    """Log-probabilities of the whole prompt, put together from the parts."""
    found: list[TokenLogprobs | None] = []
    for event in events:
        if isinstance(event, PromptScored):
            assert event.start == len(found)
            assert len(event.tokens) == len(event.logprobs)
            found += event.logprobs
    return found


def right(text: str) -> list[float]:
    """The logprob of each letter given all before it."""
    tokens = Letters().tokenize(text)
    found = []
    for i in range(1, len(tokens)):
        row = table(tokens[:i]).astype(np.float64)
        found.append(float(row[tokens[i]] - math.log(np.exp(row).sum())))
    return found


def tokens(events: Sequence[ReplyEvent]) -> list[int]:
    return [event.token for event in events if isinstance(event, Token)]


@pytest.mark.parametrize("cuts_anywhere", [True, False])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 175])
def test_every_token_of_a_prompt_is_scored(length: int, cuts_anywhere: bool) -> None:
    with House(cuts_anywhere=cuts_anywhere) as house:
        plain = [*house.submit(TEXT[:length], draft=False)]
        for _ in range(2):  # with an empty cache, and with one that has all of it
            events = [*house.submit(TEXT[:length], prompt_logprobs=3)]
            found = scores(events)
            assert len(found) == length
            assert found[0] is None
            logprobs = [place.chosen.logprob for place in found[1:] if place]
            assert logprobs == pytest.approx(right(TEXT[:length]), abs=1e-5)
            assert all(len(place.top) == 3 for place in found[1:] if place)
            assert [letters([p.chosen.token]) for p in found if p] == [*TEXT[1:length]]
            assert tokens(events) == tokens(plain)
            assert isinstance(events[-1], Finished)
            assert events[-1].reply.stats.cached_tokens == 0
        assert house.target.widest <= 63


def test_a_scored_prompt_is_in_the_cache_for_the_next_request() -> None:
    with House() as house:
        [*_] = house.submit(TEXT, prompt_logprobs=0, max_tokens=0)
        events = [*house.submit(TEXT + "bc")]
        assert isinstance(events[-1], Finished)
        assert events[-1].reply.stats.cached_tokens >= len(TEXT) - 1


def test_scores_come_before_the_first_token_and_the_prompt_is_shown_as_read() -> None:
    with House() as house:
        events = [*house.submit(TEXT, prompt_logprobs=0)]
        kinds = [type(event) for event in events]
        assert max(i for i, k in enumerate(kinds) if k is PromptScored) < kinds.index(Token)
        reading = [event.done for event in events if isinstance(event, Reading)]
        assert reading == sorted(reading)
        assert reading[-1] == len(TEXT)


def test_nothing_is_emitted_where_no_token_was_asked_for() -> None:
    with House() as house:
        for prompt in ("b", TEXT):
            for more in ({}, {"prompt_logprobs": 1}):
                events = [*house.submit(prompt, max_tokens=0, **more)]
                last = events[-1]
                assert isinstance(last, Finished)
                assert last.reply.finish_reason == "length"
                assert (last.reply.tokens, last.reply.text) == ((), "")
                assert len(scores(events)) == (len(prompt) if more else 0)
        assert house.scheduler.call(list) == [0, 1]


def test_tokens_are_a_prompt_as_they_are() -> None:
    with House() as house:
        by_text = [*house.submit("bcd")]
        by_tokens = [*house.submit(prompt_tokens=(1, 2, 3))]
        assert tokens(by_tokens) == tokens(by_text)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((), UsageError, "at least one token"),
        ((1, 26), UsageError, "token 26 of the prompt is outside this model's vocabulary, 0 to 25"),
        ((-1,), UsageError, "token -1"),
        (
            (1,) * 600,
            ContextError,
            "600 tokens, which with a reply exceeds the available context size of 512",
        ),
    ],
)
def test_tokens_that_cannot_be_a_prompt_are_refused(
    given: tuple[int, ...], error: type[Exception], words: str
) -> None:
    with House() as house:
        with pytest.raises(error, match=words):
            [*house.submit(prompt_tokens=given)]
        assert tokens([*house.submit("bcd")])


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a", "prompt_tokens": (1,)},
        {"prompt": "a", "logprobs": 21},
        {"prompt": "a", "logprobs": -1},
        {"prompt": "a", "prompt_logprobs": 1 << 40},
        {"prompt": "a", "max_tokens": -1},
        {"prompt": "a", "draft_max": 63},
        {"prompt": "a", "drafter": "nobody"},
    ],
)
def test_requests_that_cannot_be_meant_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ReplyRequest(**fields)


def test_prompts_are_scored_beside_replies_that_run() -> None:
    with House(sequences=3) as house:
        alone = tokens([*house.submit("xyz", sampling=GREEDY, max_tokens=60)])
        streams = [house.submit("xyz", sampling=GREEDY, max_tokens=60)]
        streams += [house.submit(TEXT[i:], prompt_logprobs=0, max_tokens=3) for i in range(4)]
        found = [[*stream] for stream in streams]
        assert tokens(found[0]) == alone
        for i, events in enumerate(found[1:]):
            logprobs = [place.chosen.logprob for place in scores(events) if place]
            assert logprobs == pytest.approx(right(TEXT[i:]), abs=1e-5)


def test_a_prompt_of_one_owner_is_scored_without_what_another_left() -> None:
    with House() as house:
        [*_] = house.submit(TEXT, owner="a")
        events = [*house.submit(TEXT, owner="b", prompt_logprobs=0)]
        assert len(scores(events)) == len(TEXT)


def test_a_prompt_with_a_row_that_is_no_number_fails_alone() -> None:
    def broken(given: Tokens) -> Logits:
        return np.full(V, np.nan, np.float32) if given[-1] == 25 else table(given)

    with House(broken) as house:
        with pytest.raises(NotNumbersError):
            [*house.submit(TEXT, prompt_logprobs=0)]
        assert tokens([*house.submit("bcd", max_tokens=2)])


def test_a_prompt_that_is_being_scored_can_be_stopped() -> None:
    with House() as house:
        stream = house.submit(TEXT, prompt_logprobs=0)
        house.target.before_score = stream.interrupt
        *_, last = stream
        assert isinstance(last, Finished)
        assert last.reply.finish_reason == "interrupt"
        house.target.before_score = lambda: None
        assert len(scores([*house.submit(TEXT, prompt_logprobs=0)])) == len(TEXT)


@pytest.mark.parametrize("n", [None, 0, 2])
def test_only_requests_that_ask_get_logprobs(n: int | None) -> None:
    with House() as house:
        events = [*house.submit("bcd", logprobs=n)]
        places = [event.logprobs for event in events if isinstance(event, Token)]
        assert len(places) == 9
        assert all((place is None) == (n is None) for place in places)
        assert all(len(place.top) == n for place in places if place)
