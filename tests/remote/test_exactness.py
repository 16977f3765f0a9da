"""Checking a server from outside: scores of its own replies, or those of a plain server."""

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from played_server import DONE, STREAM, PlayedServer, ended, http, models, said

from localspec.bench.measuring import RemoteMeasuring
from localspec.bench.workloads import Workload
from localspec.cli import call
from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import Speculation, Stats
from localspec.remote.address import parse
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient
from localspec.remote.exactness import USUAL_NOISE, RemoteComparing
from localspec.remote.keys import Key
from localspec.remote.measured import Timed, measured

VLLM = models("m", owner="vllm")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def opened(url):
    return BlockingClient(RemoteClient(parse(url), Key()))


def reply(*tokens, ids=(), prompt=(), tops=None, **given):
    """A whole greedy reply: (text, logprob) each, perhaps with ids and alternatives, and with
    other fields of its message.
    """
    content = []
    for place, (text, logprob) in enumerate(tokens):
        top = [{"token": text, "logprob": logprob}]
        top += [{"token": t, "logprob": p} for t, p in (tops or {}).get(place, {}).items()]
        content.append({"token": text, "logprob": logprob, "top_logprobs": top})
    message = {"role": "assistant", "content": "".join(text for text, _ in tokens)}
    message |= given
    choice = {"message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
    whole = {"choices": [choice | ({"token_ids": list(ids)} if ids else {})]}
    return http(200, whole | ({"prompt_token_ids": list(prompt)} if prompt else {}))


def scores(*places):
    """An answer with prompt_logprobs: for each token its id, logprob, and better ones; a place that
    is not such a triple is sent as it is.
    """
    found = [None]
    for place in places:
        if not isinstance(place, tuple):
            found.append(place)
            continue
        token, logprob, better = place
        entry = {str(token): {"logprob": logprob, "rank": 1 + len(better)}, "0": {"logprob": -9}}
        entry |= {str(other): {"logprob": p, "rank": 1} for other, p in better.items()}
        found.append(entry)
    return http(200, {"choices": [{"text": "x", "prompt_logprobs": found}]})


def compare(url, plain=None):
    """The result of one prompt."""
    with opened(url) as engine:
        if plain is None:
            (result,) = RemoteComparing(engine, ["Hi"], max_tokens=4).steps()
            return result
        with opened(plain) as other:
            (result,) = RemoteComparing(engine, ["Hi"], max_tokens=4, plain=other).steps()
            return result


async def checked(answer, scored):
    routes = {"/v1/models": VLLM, CHAT: answer, TEXT: scored}
    async with PlayedServer(routes) as server:
        result = await asyncio.to_thread(compare, server.url)
        assert server.asked_for(TEXT)[0].json["prompt"] == [1, 2, 7, 8]
        return result


SAID = reply(("a", -0.1), ("b", -0.2), ids=(7, 8), prompt=(1, 2))


async def test_likeliest_tokens_are_exact():
    result = await checked(SAID, scores((2, -3, {9: -0.1}), (7, -0.11, {}), (8, -0.2, {})))
    assert result.exact
    assert (result.way, result.replies, result.tokens) == ("scored", 1, 2)
    assert result.noise == pytest.approx(0.01)


async def test_a_token_that_is_not_the_likeliest_is_found():
    result = await checked(SAID, scores((2, -3, {}), (7, -0.1, {}), (8, -1.3, {5: -0.4})))
    (found,) = result.divergences
    assert not result.exact
    assert (found.position, found.expected, found.gap) == (1, "token 5", pytest.approx(0.9))


@pytest.mark.parametrize(
    "last",
    [
        None,
        {},
        {"8": {"logprob": -0.2}},
        {"5": {"logprob": -0.2}, "6": {"logprob": -2}},
        {"8": {"logprob": 0.0}, "6": {"logprob": 0.0}},
        {"8": {"logprob": 17.5}, "6": {"logprob": 12.5}},
        {"8": {"logprob": -0.2}, "6": None},
    ],
    ids=["null", "empty", "no rival", "not its own", "zeros", "logits", "rival without"],
)
async def test_a_token_that_is_not_scored_is_not_exact(last):
    """A server that scored nothing was called exact, token by token."""
    with pytest.raises(UsageError, match="does not score all tokens"):
        await checked(SAID, scores((2, -3, {}), (7, -0.11, {}), last))


async def test_a_token_without_an_id_is_not_scored():
    short = reply(("a", -0.1), ("b", -0.2), ("c", -0.2), ids=(7, 8), prompt=(1, 2))
    with pytest.raises(UsageError, match="does not score all tokens"):
        await checked(short, scores((2, -3, {}), (7, -0.11, {}), (8, -0.2, {})))


async def test_the_noise_of_two_passes_is_what_a_near_tie_may_bridge():
    near = await checked(SAID, scores((2, -3, {}), (7, -0.73, {5: -0.7}), (8, -0.22, {})))
    assert [d.near_tie for d in near.divergences] == [True]
    far = await checked(SAID, scores((2, -3, {}), (7, -0.76, {5: -0.7}), (8, -0.21, {})))
    assert [d.near_tie for d in far.divergences] == [False]


async def test_a_prompt_that_is_asked_twice_counts_twice():
    routes = {"/v1/models": models("m", owner="llamacpp"), CHAT: SAID}
    other = routes | {CHAT: reply(("a", -0.1), ("c", -0.2))}
    async with PlayedServer(routes) as one, PlayedServer(other) as two:

        def both():
            with opened(one.url) as engine, opened(two.url) as plain:
                comparing = RemoteComparing(engine, ["Hi", "Hi"], max_tokens=4, plain=plain)
                return [*comparing.steps()][-1]

        result = await asyncio.to_thread(both)
    assert (result.replies, result.identical) == (2, 0)


async def test_without_scores_a_plain_server_is_wanted():
    for answer in (SAID, reply(("a", -0.1))):
        routes = {"/v1/models": VLLM, CHAT: answer, TEXT: http(200, {"choices": [{}]})}
        routes["/tokenize"] = http(200, {"tokens": [1, 2]})
        async with PlayedServer(routes) as server:
            with pytest.raises(UsageError, match="--plain-url"):
                await asyncio.to_thread(compare, server.url)


@pytest.mark.parametrize(
    ("plain", "near"),
    [
        (reply(("a", -0.1), ("b", -0.2)), None),
        (reply(("a", -0.1), ("c", -0.2), tops={1: {"b": -0.4}}), True),
        (reply(("a", -0.1), ("c", -0.2), tops={1: {"b": -2.0}}), False),
        (reply(("a", -0.1), ("c", -6.0), tops={1: {"b": -0.01}}), False),
        (reply(("a", -0.1), ("c", -0.2)), False),
        (reply(("a", -0.1)), False),
    ],
    ids=["equal", "near-tie", "far", "plain not greedy", "not among the alternatives", "shorter"],
)
async def test_replies_are_compared_with_those_of_a_plain_server(plain, near):
    routes = {"/v1/models": models("m", owner="llamacpp"), CHAT: SAID}
    async with PlayedServer(routes) as one, PlayedServer(routes | {CHAT: plain}) as other:
        result = await asyncio.to_thread(compare, one.url, other.url)
    assert [d.near_tie for d in result.divergences] == ([] if near is None else [near])
    assert result.exact is (near is not False)


@pytest.mark.parametrize(
    ("one", "two", "gap"),
    [
        # the plain reply ends; control tokens and parts of characters have no text of their own
        (
            reply(("H", -0.04)),
            reply(("", -0.05), tops={0: {"H": -3.1, "": -9.0}}),
            3.05,
        ),
        # parts of two characters: the same text, other tokens
        (
            reply(("", -0.75), ("x", -0.1), ids=(7, 3)),
            reply(("", -0.65), ("x", -0.1), ids=(9, 3)),
            0.1,
        ),
        # each is sure of its own, so the other's can have 1 % at most
        (reply(("", -0.01), ids=(7,)), reply(("", -0.01), ids=(9,)), 4.6),
        (reply(("", 0.0), ids=(7,)), reply(("", 0.0), ids=(9,)), 1e9),
    ],
    ids=["texts twice", "ids", "both sure", "both certain"],
)
async def test_tokens_of_one_text_are_told_apart(one, two, gap):
    result = await beside(one, two)
    (found,) = result.divergences
    assert (found.position, found.gap) == (0, pytest.approx(gap, abs=1e-3))
    assert result.exact is (gap < 2 * USUAL_NOISE)


async def beside(one, two):
    """The result where the two servers answer so."""
    routes = {"/v1/models": models("m", owner="llamacpp")}
    servers = PlayedServer(routes | {CHAT: one}), PlayedServer(routes | {CHAT: two})
    async with servers[0] as server, servers[1] as plain:
        return await asyncio.to_thread(compare, server.url, plain.url)


@pytest.mark.parametrize("empty", ["", None])
async def test_thoughts_that_are_cut_before_an_answer_are_compared(empty):
    """Both replies are empty to the reader; what was thought differs."""
    alpha = reply(("Alpha", -0.1), ("b", -0.2), content=empty, reasoning_content="Alphab")
    beta = reply(("Beta", -0.1), ("b", -0.2), content=empty, reasoning_content="Betab")
    result = await beside(alpha, beta)
    assert (result.exact, result.identical, result.tokens) == (False, 0, 1)
    same = await beside(alpha, alpha)
    assert (same.exact, same.identical, same.tokens, same.by_text) == (True, 1, 2, 0)
    hidden = [
        reply((word, -0.1), ("b", -0.2), content=empty, reasoning=None)
        for word in ("Alpha", "Beta")
    ]
    assert not (await beside(*hidden)).exact  # by their tokens, which alone tell it


def told(message):
    """A reply without tokens."""
    return http(200, {"choices": [{"message": message, "finish_reason": "stop"}]})


async def test_replies_without_tokens_are_compared_by_text_and_counted_so():
    one, other = (told({"content": None, "reasoning": word}) for word in ("Alpha", "Beta"))
    same = await beside(one, one)
    assert (same.exact, same.replies, same.by_text, same.tokens) == (True, 1, 1, 0)
    assert not (await beside(one, other)).exact
    assert not (await beside(told({"content": ""}), one)).exact


@pytest.mark.parametrize("message", [{"content": ""}, {"content": None}, {}])
async def test_where_both_answer_nothing_nothing_is_exact(message):
    with pytest.raises(RemoteError, match="nothing compared"):
        await beside(told(message), told(message))


async def test_empty_replies_are_not_counted_as_compared(capsys):
    routes = {"/v1/models": models("m", owner="llamacpp")}
    routes[CHAT] = (told({"content": "a"}), told({"content": ""}))
    async with PlayedServer(routes) as one, PlayedServer(routes) as two:
        line = ["verify", "--url", one.url, "--plain-url", two.url, "--limit", "2"]
        assert await asyncio.to_thread(_called, line) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 greedy replies, 0 tokens; compared with those of the plain server")
    assert said[0].endswith("1 by the text alone")
    assert said[1:] == [
        "1 more were empty on both servers: nothing to compare",
        "exact: all 1 replies",
    ]


async def test_a_reply_that_goes_on_behind_equal_tokens_differs():
    one = [("a", -0.1), ("b", -0.1)]
    end = await beside(reply(*one), reply(*one, ("</s>", -0.1), content="ab"))
    assert end.exact  # one of them lists the token that ends it
    further = reply(*one, *one, content="ab")
    assert not (await beside(reply(*one), further)).exact


async def test_the_command_prints_json_and_fails_where_it_is_not_exact(capsys):
    wrong = scores((2, -3, {}), (7, -0.1, {}), (8, -5.0, {5: -0.3}))
    routes = {"/v1/models": VLLM, CHAT: SAID, TEXT: wrong}
    async with PlayedServer(routes) as server:
        line = ["verify", "--url", server.url, "--limit", "1", "--json"]
        code = await asyncio.to_thread(_called, line)
    assert code == 1
    report = json.loads(capsys.readouterr().out)
    assert report["exact"] is False
    assert report["divergences"][0]["emitted"] == "'b'"
    assert report["model"]["engine"] == "vLLM"


def _called(line):
    """The exit code; signals belong to the main thread, where no test of this loop runs."""
    from unittest.mock import patch

    with patch("signal.signal", lambda *_: None):
        return call(line)


async def test_drafts_that_only_the_counters_tell_are_counted_and_unknown_ones_are_null():
    counters = tuple(
        http(
            200,
            f"vllm:spec_decode_num_draft_tokens_total {drafted}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {accepted}\n".encode(),
            "text/plain",
        )
        for drafted, accepted in ((5, 1), (5, 1), (12, 4))
    )
    exact = scores((2, -3, {9: -0.1}), (7, -0.11, {}), (8, -0.2, {}))
    for metrics, expected in ((counters, (7, 3)), (http(404), (None, None))):
        routes = {"/v1/models": VLLM, CHAT: SAID, TEXT: exact, "/metrics": metrics}
        async with PlayedServer(routes) as server:
            result = await asyncio.to_thread(compare, server.url)
        assert (result.drafted, result.accepted) == expected


async def test_a_speculating_server_is_not_compared_with_as_plain(capsys):
    routes = {
        "/v1/models": models("m", owner="llamacpp"),
        "/slots": http(200, [{"speculative": True}]),
        CHAT: SAID,
    }
    async with PlayedServer(routes) as server:
        line = ["verify", "--url", server.url, "--plain-url", server.url, "--limit", "1"]
        assert await asyncio.to_thread(_called, line) == 2
    assert "speculates itself" in capsys.readouterr().err


async def test_speed_is_measured_against_a_plain_server():
    stream = [STREAM, said("a"), said("b"), ended(), DONE]
    routes = {"/v1/models": models("m"), CHAT: stream}
    async with PlayedServer(routes) as one, PlayedServer(routes) as other:

        def measure():
            with opened(one.url) as engine, opened(other.url) as plain:
                work = [Workload("short", ("x", "y"))]
                measuring = RemoteMeasuring(engine, work, (0.0,), max_tokens=4, plain=plain)
                list(measuring.steps())
                return measuring.results

        (row,) = await asyncio.to_thread(measure)
        assert (row.workload, row.prompts, row.tokens) == ("short", 2, 4)
        assert (row.reported, row.acceptance, row.tokens_per_round) == (False, None, None)
        assert len(one.asked_for(CHAT)) == len(other.asked_for(CHAT)) == 2


def timed(tokens, seconds, *, first=0.1, engine=None, **counts):
    """A reply of so many tokens; ``engine`` has the seconds of the server's own clock."""
    stats = Stats(
        prompt_tokens=5,
        cached_tokens=0,
        emitted=tokens,
        rounds=0,
        drafted=0,
        verified=0,
        accepted=0,
        per_position=(),
        by_drafter={},
        prompt_seconds=0.0,
        draft_seconds=0.0,
        verify_seconds=0.0,
        decode_seconds=seconds if engine is None else engine,
        clock="arrivals" if engine is None else "engine",
        speculation=Speculation("on"),
    )
    return Timed(first, seconds, dataclasses.replace(stats, **counts))


def test_a_reply_that_comes_in_one_burst_has_the_speed_of_its_whole_request():
    """It was divided by the time between its first and last arrival: 600,962 tokens a second."""
    burst = timed(64, 1.0, first=0.9999)
    row = measured("w", 0.0, [(burst, timed(64, 2.0, first=1.9999))])
    assert row.clock == "request"
    assert row.speed == pytest.approx(64)
    assert row.ratio == pytest.approx(2)


def test_speeds_are_compared_by_one_clock_and_by_total_time():
    told = timed(40, 9.0, engine=1.0), timed(40, 9.0, engine=3.0)
    row = measured("w", 0.0, [(one, timed(40, 5.0, engine=4.0)) for one in told])
    assert (row.clock, row.speed, row.ratio) == ("engine", 20, pytest.approx(2))
    mixed = measured("w", 0.0, [(told[0], timed(40, 18.0))])
    assert (mixed.clock, mixed.ratio) == ("request", pytest.approx(2))


@pytest.mark.parametrize(
    ("ours", "plain", "doubt"),
    [
        ([timed(60, 0.2)], [timed(60, 0.4)], "less than 0.5 s"),
        ([timed(60, 2.0)] * 2, [timed(60, 2.0), timed(60, 8.0)], "plain replies alone differed"),
        ([timed(60, 1.0, rounds=40, drafted=30)], [timed(60, 9.0)], "cannot be so much faster"),
        ([timed(60, 1.0, rounds=30, drafted=30)], [timed(60, 1.5)], None),
    ],
)
def test_a_ratio_that_cannot_be_is_doubted(ours, plain, doubt):
    row = measured("w", 0.0, list(zip(ours, plain, strict=True)))
    assert row.doubt is None if doubt is None else doubt in row.doubt


def test_plain_replies_without_a_token_have_no_speed_to_be_doubted():
    ours = [timed(60, 2.0)] * 3
    row = measured("w", 0.0, list(zip(ours, [timed(60, 4.0), timed(0, 0.3)] * 2, strict=False)))
    assert (row.ratio is not None, row.doubt) == (True, None)
    burst = timed(60, 1.0, engine=0.0)  # its tokens are there, its seconds in another reply
    row = measured(
        "w", 0.0, [(timed(60, 2.0, engine=2.0), one) for one in (burst, timed(0, 1.0, engine=1.0))]
    )
    assert (row.ratio is not None, row.doubt) == (True, None)


def test_too_little_gives_no_figure():
    row = measured("w", 0.0, [(timed(8, 1.0), timed(8, 2.0))])
    assert (row.speed, row.ratio, row.doubt) == (None, None, None)


async def test_a_workload_that_fails_is_a_row_and_the_flags_of_sampling_are_sent(capsys):
    whole = [STREAM, said("a"), ended(), DONE]
    failing = http(500, {"error": {"message": "out of luck"}})
    routes = {"/v1/models": VLLM, CHAT: (whole, failing, whole)}
    async with PlayedServer(routes) as server:
        line = ["bench", "--url", server.url, "--min-p", "0", "-t", "0.5", "--json"]
        line += ["--workload", "chat", "--workload", "json"]
        assert await asyncio.to_thread(_called, line) == 1
        asked = [one.json for one in server.asked_for(CHAT)]
    first, second = json.loads(capsys.readouterr().out)["results"]
    assert "out of luck" in first["error"]
    assert (first["prompts"], second["error"]) == (1, None)
    assert {(one["min_p"], one["temperature"]) for one in asked} == {(0, 0.5)}
