"""Events of a server may be anything: they become text and figures, or one sentence."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core import codec
from localspec.core.errors import RemoteError
from localspec.core.events import Finished, Round, Speculation, Stats, Token
from localspec.remote import reported
from localspec.remote.address import parse as address
from localspec.remote.chunk import parse
from localspec.remote.keys import Key
from localspec.remote.tally import NO_ID, Tally

HERE = address("http://127.0.0.1:1")
ON = Speculation("on")
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([1 << 52, 1 << 60, 10**400, -1, 1e308, 0.5, 2.0, True]),
    st.text(max_size=3),
    st.none(),
)
COUNTS = st.dictionaries(
    st.sampled_from(
        [
            "cache_n",
            "prompt_n",
            "prompt_ms",
            "predicted_n",
            "predicted_ms",
            "draft_n",
            "draft_n_accepted",
            "num_draft_tokens",
            "num_accepted_draft_tokens",
            "num_spec_steps",
            "num_spec_tokens",
            "num_verified_tokens",
            "prompt_tokens",
            "completion_tokens",
            "spec_verify_ct",
            "spec_accept_rate",
            "spec_accept_token_num",
            "spec_draft_token_num",
            "total",
            "processed",
            "cache",
            "total_draft_tokens_count",
            "accepted_draft_tokens_count",
        ]
    ),
    NUMBERS,
    max_size=8,
)
HISTOGRAMS = st.dictionaries(
    st.sampled_from(["acceptance_histogram", "acceptance_histogram_by_draft_length"]),
    st.dictionaries(
        st.text("0123x", max_size=2), NUMBERS | st.dictionaries(st.text("012"), NUMBERS)
    ),
)
LISTS = st.lists(NUMBERS, max_size=4)
STEPS = st.fixed_dictionaries({"per_step_drafted": LISTS, "per_step_accepted": LISTS})
SPECULATIVE = st.builds(
    lambda *parts: {k: v for p in parts for k, v in p.items()}, COUNTS, HISTOGRAMS, STEPS
)
DELTAS = st.fixed_dictionaries({"content": st.text(max_size=4) | st.none() | LISTS})
CHOICES = st.fixed_dictionaries(
    {
        "delta": DELTAS,
        "finish_reason": st.sampled_from([None, "stop", "length", "odd", 7]),
        "token_ids": st.none() | LISTS,
        "localspec": st.none() | st.fixed_dictionaries({"origins": LISTS, "sources": LISTS}),
    }
)
EVENTS = st.fixed_dictionaries(
    {"choices": st.lists(CHOICES | NUMBERS, max_size=2)},
    optional={
        "timings": COUNTS,
        "usage": COUNTS,
        "metrics": st.fixed_dictionaries({"speculative_decoding": SPECULATIVE}),
        "meta_info": COUNTS,
        "prompt_progress": COUNTS,
        "stats": COUNTS | NUMBERS,
    },
)


@settings(max_examples=20)
@given(st.lists(EVENTS, max_size=6))
def test_any_events_become_a_reply_or_one_sentence(events):
    tally = Tally(1, ON)
    taken = []
    for event in events:
        data = json.dumps(event).encode()
        try:
            taken += tally.take(parse(data, HERE, Key()))
        except RemoteError:
            break
    last = tally.finished("stop")
    assert isinstance(last, Finished)
    stats = codec.decode(Stats, codec.encode(last.reply.stats))
    assert 0 <= stats.accepted <= stats.drafted
    assert stats.verified == 0 or stats.accepted <= stats.verified <= stats.drafted
    assert 0 <= stats.rounds <= stats.emitted
    said = "".join(event.text for event in taken if isinstance(event, Token))
    assert last.reply.text.startswith(said)
    assert all(event.accepted <= event.drafted for event in taken if isinstance(event, Round))


@given(st.binary(max_size=40))
def test_any_bytes_are_an_event_or_refused(data):
    with contextlib.suppress(RemoteError):
        parse(data, HERE, Key())


@given(st.text(max_size=200))
def test_any_text_may_be_metrics(text):
    reported.parse(text)
    reported.parse(f"vllm:spec_decode_num_drafts_total{text} 1e999\nvllm:num_requests_running -1")


def test_half_a_character_becomes_a_sign():
    chunk = parse(b'{"choices": [{"delta": {"content": "a\\ud83d"}}]}', HERE, Key())
    assert chunk.text == "a\ufffd"


@pytest.mark.parametrize("tokens", [1 << 52, 100_000])
def test_a_count_that_cannot_be_costs_no_memory(tokens):
    tally = Tally(1, ON)
    timings = {"predicted_n": tokens, "draft_n": tokens, "draft_n_accepted": tokens}
    event = {"choices": [{"delta": {"content": "x"}}], "timings": timings}
    tally.take(parse(json.dumps(event).encode(), HERE, Key()))
    assert len(tally.finished("stop").reply.text) == 1


def hundred_thousand(text):
    choice = {"delta": {"content": text}, "token_ids": [7] * 100_000}
    return parse(json.dumps({"choices": [choice]}).encode(), HERE, Key())


@pytest.mark.parametrize("text", ["", "x", "x" * 100_000])
def test_more_ids_than_an_event_has_tokens_are_none(text):
    tally = Tally(1, ON)
    taken = tally.take(hundred_thousand(text))
    assert [event.token for event in taken if isinstance(event, Token)] == [NO_ID] * bool(text)
    reply = tally.finished("stop").reply
    assert (reply.text, reply.tokens) == (text, ())


def test_ids_of_a_whole_reply_in_one_event_are_taken():
    choice = {"delta": {"content": "\N{FACE WITH TEARS OF JOY}" * 1000}, "token_ids": [7] * 3000}
    tally = Tally(1, ON)
    tally.take(parse(json.dumps({"choices": [choice]}).encode(), HERE, Key()))
    assert len(tally.finished("stop").reply.tokens) == 3000


def test_detailed_steps_tell_how_many_tokens_were_verified():
    """vLLM's level ``detailed``: rounds of 3, 2 and 4 drafted tokens; 3, 0 and 1 accepted."""
    found = reported.in_metrics(
        {
            "speculative_decoding": {
                "num_draft_tokens": 9,
                "num_accepted_draft_tokens": 4,
                "num_spec_steps": 3,
                "per_step_drafted": [3, 2, 4],
                "per_step_accepted": [3, 0, 1],
            }
        }
    )
    assert (found.verified, found.rounds) == (3 + 1 + 2, 3)
    assert found.per_position == (2 / 3, 1 / 2, 1.0)


@pytest.mark.parametrize(
    ("gap", "timings", "held"),
    [(0.0, None, True), (0.01, None, False), (0.0, 2000.0, True), (0.0, 40.0, False)],
    ids=["at once", "streamed", "against the engine's clock", "a quick model"],
)
def test_a_stream_that_was_held_back_is_noticed(gap, timings, held):
    now = [0.0]
    tally = Tally(1, ON, clock=lambda: now[0])
    now[0] = 3.0
    for n in range(40):
        now[0] += gap
        event = {"choices": [{"delta": {"content": "x"}}]}
        if timings is not None:
            event["timings"] = {"predicted_n": n + 1, "predicted_ms": timings * (n + 1) / 40}
        tally.take(parse(json.dumps(event).encode(), HERE, Key()))
    assert tally.held_back is held
    stats = tally.finished("stop").reply.stats
    if timings is None and held:  # the whole request, since nothing tells when decoding began
        assert stats.tokens_per_second == pytest.approx(40 / 3.0)


def test_a_reply_in_a_few_bursts_is_not_divided_by_the_time_between_them():
    now = [0.0]
    tally = Tally(1, ON, clock=lambda: now[0])
    for burst in range(4):
        now[0] += 1.0
        for _ in range(5):
            now[0] += 0.0001 * burst
            tally.take(parse(b'{"choices": [{"delta": {"content": "x"}}]}', HERE, Key()))
    stats = tally.finished("stop").reply.stats
    assert stats.clock == "request"
    assert stats.tokens_per_second == pytest.approx(20 / 4, rel=0.01)


def test_tokens_of_the_first_piece_do_not_count_as_made_behind_it():
    now = [0.0]
    tally = Tally(1, ON, clock=lambda: now[0])
    now[0] = 2.0
    for _ in range(30):  # held back, then let through at once
        tally.take(parse(b'{"choices": [{"delta": {"content": "x"}}]}', HERE, Key()))
    for _ in range(20):
        now[0] += 0.1
        tally.take(parse(b'{"choices": [{"delta": {"content": "x"}}]}', HERE, Key()))
    stats = tally.finished("stop").reply.stats
    assert stats.clock == "arrivals"
    assert stats.tokens_per_second == pytest.approx(10)
