"""Checking a server from outside: scores of its own replies, or those of a plain server."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from played_server import DONE, STREAM, PlayedServer, ended, http, models, said

from localspec.bench.workloads import Workload
from localspec.cli import call
from localspec.errors import UsageError
from localspec.remote.address import parse
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient
from localspec.remote.exactness import RemoteComparing
from localspec.remote.keys import Key
from localspec.remote.measuring import RemoteMeasuring

VLLM = models("m", owner="vllm")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def opened(url):
    return BlockingClient(RemoteClient(parse(url), Key()))


def reply(*tokens, ids=(), prompt=(), tops=None):
    """A whole greedy reply: (text, logprob) each, perhaps with ids and alternatives."""
    content = []
    for place, (text, logprob) in enumerate(tokens):
        top = [{"token": text, "logprob": logprob}]
        top += [{"token": t, "logprob": p} for t, p in (tops or {}).get(place, {}).items()]
        content.append({"token": text, "logprob": logprob, "top_logprobs": top})
    message = {"role": "assistant", "content": "".join(text for text, _ in tokens)}
    choice = {"message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
    whole = {"choices": [choice | ({"token_ids": list(ids)} if ids else {})]}
    return http(200, whole | ({"prompt_token_ids": list(prompt)} if prompt else {}))


def scores(*places):
    """An answer with prompt_logprobs: for each token its id, logprob, and better ones."""
    found = [None]
    for token, logprob, better in places:
        entry = {str(token): {"logprob": logprob, "rank": 1 + len(better)}}
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
    result = await checked(SAID, scores((2, -3, {}), (7, -0.1, {}), (8, -1.2, {5: -0.3})))
    (found,) = result.divergences
    assert not result.exact
    assert (found.position, found.expected, found.gap) == (1, "token 5", pytest.approx(0.9))


async def test_the_noise_of_two_passes_is_what_a_near_tie_may_bridge():
    near = await checked(SAID, scores((2, -3, {}), (7, -0.13, {5: -0.1}), (8, -0.22, {})))
    assert [d.near_tie for d in near.divergences] == [True]
    far = await checked(SAID, scores((2, -3, {}), (7, -0.11, {5: -0.05}), (8, -0.21, {})))
    assert [d.near_tie for d in far.divergences] == [False]


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
        (reply(("a", -0.1), ("c", -0.2)), False),
        (reply(("a", -0.1)), False),
    ],
    ids=["equal", "near-tie", "far", "not among the alternatives", "shorter"],
)
async def test_replies_are_compared_with_those_of_a_plain_server(plain, near):
    routes = {"/v1/models": models("m", owner="llamacpp"), CHAT: SAID}
    async with PlayedServer(routes) as one, PlayedServer(routes | {CHAT: plain}) as other:
        result = await asyncio.to_thread(compare, one.url, other.url)
    assert [d.near_tie for d in result.divergences] == ([] if near is None else [near])
    assert result.exact is (near is not False)


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
