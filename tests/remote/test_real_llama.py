"""What real servers of llama.cpp answer: llama-server's, and llama-cpp-python's."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for played_server

from played_server import PlayedServer, http
from test_client import CHAT, HI, answered, client, collect
from test_real_vllm import recorded

from localspec.bench.workloads import WORKLOADS
from localspec.cli.run_report import report
from localspec.core.emitted import Origin
from localspec.core.events import ModelInfo, Round, Speculation, Stats, Token
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.core.reply_tally import ReplyTally
from localspec.remote.address import Address
from localspec.remote.chunk import parse
from localspec.remote.keys import Key
from localspec.remote.measured import Timed, measured
from localspec.remote.tally import NO_ID, Tally

HERE = Address("http://h:1", "/v1")
INFO = ModelInfo("t", None, "server", 512, "t", 0, 0, 0, Speculation("unknown"))


def routes(server, name="streamed"):
    """The recorded paths of a server, with one of its streams as the reply."""
    asked = {"/v1/models": "models", "/metrics": "metrics", "/slots": "slots"}
    found = {path: recorded(server, one) for path, one in asked.items()}
    return found | {"/openapi.json": recorded(server, "described"), CHAT: recorded(server, name)}


async def told(server, name="streamed"):
    """The events of a recorded stream, and its figures as `run --json` prints them."""
    events, _ = await answered(routes(server, name))
    return events, report(events[-1].reply, INFO)["stats"]


@pytest.mark.parametrize("server", ["llama-server", "llama-server-unused-draft"])
async def test_a_recorded_plain_stream_gives_counts_and_the_servers_clock(server):
    _, stats = await told(server)
    assert (stats["prompt_tokens"], stats["emitted"], stats["rounds"]) == (9, 39, 39)
    assert (stats["drafted"], stats["speculation"]["state"]) == (0, "off")
    assert "--spec-type draft-simple" in stats["speculation"]["reason"]
    assert stats["clock"] == "engine"
    assert stats["plain_tokens_per_second"] == stats["tokens_per_second"]


async def test_a_recorded_drafted_stream_gives_the_rounds_of_its_tokens():
    events, stats = await told("llama-server-draft")
    rounds = [one for one in events if isinstance(one, Round)]
    assert sum(one.emitted for one in rounds) == stats["emitted"] == 39
    assert sum(one.drafted for one in rounds) == stats["drafted"] == 30
    assert sum(one.accepted for one in rounds) == stats["accepted"] == 28
    assert (stats["rounds"], stats["speculation"]["state"]) == (11, "on")
    assert stats["accepted"] <= stats["verified"] <= stats["drafted"]
    assert stats["plain_tokens_per_second"] is None


@pytest.mark.parametrize("server", ["llama-server", "llama-server-draft"])
async def test_one_token_has_no_speed_by_a_clock_that_starts_behind_it(server):
    """llama-server says 0.001 ms of it: a million tokens per second."""
    _, stats = await told(server, "one")
    assert (stats["emitted"], stats["clock"]) == (1, "request")
    assert stats["tokens_per_second"] is None or stats["tokens_per_second"] < 20_000


@pytest.mark.parametrize(("first_untimed", "seconds"), [(True, 0.16), (False, 0.15)])
def test_the_first_token_counts_as_long_as_those_behind_it(first_untimed, seconds):
    tally = Tally(1, Speculation("off"), first_untimed=first_untimed)
    for n in range(16):
        timings = {"predicted_n": n + 1, "predicted_ms": 10.0 * n or 0.001}
        event = {"choices": [{"delta": {"content": "x"}}], "timings": timings}
        tally.take(parse(json.dumps(event).encode(), HERE, Key()))
    stats = tally.finished("stop").reply.stats
    assert (stats.clock, stats.decode_seconds) == ("engine", pytest.approx(seconds))


@pytest.mark.parametrize("before", [0, 4])
def test_a_draft_that_only_the_end_of_the_reply_tells_is_none_of_its_tokens(before):
    """A round whose first token ends the text, behind a round of five tokens or plain ones."""
    tally = Tally(1, Speculation("on"))
    sums = [(1, 0), *[(n, before) for n in range(2, 7)], (6, before + 4)]
    for at, (n, drafted) in enumerate(sums):
        timings = {"predicted_n": n, "predicted_ms": 10.0 * n}
        timings |= {"draft_n": drafted, "draft_n_accepted": drafted} if drafted else {}
        last = at == len(sums) - 1
        choice = {"delta": {} if last else {"content": "x"}}
        choice |= {"finish_reason": "stop"} if last else {}
        tally.take(
            parse(json.dumps({"choices": [choice], "timings": timings}).encode(), HERE, Key())
        )
    stats = tally.finished("stop").reply.stats
    assert (stats.emitted, stats.drafted) == (6, before + 4)
    assert (stats.verified, stats.accepted, stats.rounds) == (before, before, 6 - before)


@pytest.mark.parametrize("milliseconds", [0, 0.001])
def test_an_engines_clock_that_cannot_be_is_not_used(milliseconds):
    now = [0.0]
    tally = Tally(1, Speculation("off"), clock=lambda: now[0])
    for n in range(40):
        now[0] += 0.1
        timings = {"predicted_n": n + 1, "predicted_ms": milliseconds}
        event = {"choices": [{"delta": {"content": "x"}}], "timings": timings}
        tally.take(parse(json.dumps(event).encode(), HERE, Key()))
    stats = tally.finished("stop").reply.stats
    assert (stats.clock, stats.tokens_per_second) == ("arrivals", pytest.approx(10))


def test_a_reply_that_comes_faster_than_any_model_decodes_has_no_speed():
    now = [0.0]
    tally = Tally(1, Speculation("unknown"), clock=lambda: now[0])
    now[0] = 0.001  # from the memory of a proxy
    for _ in range(40):
        data = b'{"choices": [{"delta": {"content": "x"}}]}'
        tally.take(parse(data, HERE, Key()))
    stats = report(tally.finished("stop").reply, INFO)["stats"]
    assert (stats["emitted"], stats["tokens_per_second"]) == (40, None)


async def test_a_server_that_tells_nothing_gets_no_figures():
    """Neither its prompt had no tokens, nor is its speed that of plain decoding."""
    _, stats = await told("llama_cpp.server")
    unknown = ("prompt_tokens", "cached_tokens", "rounds", "drafted", "accepted")
    assert {stats[name] for name in (*unknown, "plain_tokens_per_second")} == {None}
    assert stats["emitted"] == 38


async def test_the_server_of_llama_cpp_python_gets_grammars_in_its_own_words():
    """It refuses OpenAI's `json_schema`, as its recorded answer says."""
    server = "llama_cpp.server"
    assert b"Input should be 'text' or 'json_object'" in recorded(server, "schema")
    async with PlayedServer(routes(server)) as played:
        engine = client(played)
        info = await engine.open()
        for grammar in (
            GrammarSpec("schema", '{"type": "boolean"}'),
            GrammarSpec("choice", choices=("yes", "no")),
        ):
            await collect(engine.reply(ReplyRequest(HI.messages, grammar=grammar, seed=1)))
        await engine.close()
    schema, choice = (one.json for one in played.asked_for(CHAT))
    assert info.backend == server
    assert schema["response_format"] == {"type": "json_object", "schema": {"type": "boolean"}}
    assert choice["grammar"] == 'root ::= "yes" | "no"'
    assert {"top_k", "min_p", "repeat_penalty"} <= set(schema)


def timed(tokens, seconds, rounds=0, accepted=0):
    """A reply by the clock of its engine."""
    stats = Stats(
        9, 0, tokens, rounds, accepted, accepted, accepted, (), {}, 0.1, seconds, 0.0, 0.0,
        Speculation("on" if rounds else "off"),
    )  # fmt: skip
    return Timed(0.1, seconds, stats)


def test_a_ratio_that_the_tokens_of_a_round_forbid_is_not_given():
    pairs = [(timed(64, 1.0, rounds=17, accepted=47), timed(64, 5.6))]
    found = measured(WORKLOADS[0].name, 0.0, pairs)
    assert (found.ratio, found.tokens_per_round) == (None, pytest.approx(64 / 17))
    assert "cannot be so much faster" in found.doubt


async def test_a_server_without_the_description_stays_unknown():
    played = routes("llama_cpp.server") | {"/openapi.json": http(200, {"info": {"title": 7}})}
    async with PlayedServer(played) as server:
        engine = client(server)
        assert (await engine.open()).backend == "server"
        await engine.close()


def test_a_reply_that_a_server_broke_off_took_as_long_as_since_it_was_asked_for():
    """The rounds of pieces that arrive together have no times of their own."""
    now = [10.0]
    tally = ReplyTally(1, arrives=True, clock=lambda: now[0])
    now[0] = 12.0
    for _ in range(30):
        tally.take(Token(NO_ID, "x", Origin.UNKNOWN, None))
        tally.take(Round(0, 0, 0, 1, 0.0, 0.0, 1e-6, "", 9, Speculation("off", "not told")))
    now[0] = 90.0  # nothing more came
    stats = report(tally.finished("interrupt").reply, INFO)["stats"]
    assert (stats["clock"], stats["tokens_per_second"]) == ("request", 15)
    assert stats["plain_tokens_per_second"] is None
    assert stats["rounds"] is None
