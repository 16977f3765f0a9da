"""What a real vLLM answers: a refusal inside a stream, lists for histograms, counters."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for played_server

from played_server import DONE, STREAM, PlayedServer, ended, event, http, models, said
from test_client import CHAT, HI, answered, client, collect

from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import Message, Notice
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.remote import reported

RECORDED = Path(__file__).parents[1] / "data" / "remote"
VLLM = models("m", owner="vllm", max_model_len=4096)
WHOLE = [STREAM, said("Hello"), ended(), DONE]


def recorded(server, name):
    """A recorded answer, as the server sent it."""
    found = json.loads((RECORDED / f"{server}.json").read_text(encoding="utf-8"))[name]
    return http(found["status"], found["body"].encode(), found["type"])


MIN_P = recorded("vllm-ngram", "min_p")
SPECULATING = http(200, b"vllm:spec_decode_num_draft_tokens_total 0.0\n", "text/plain")


async def test_a_default_that_a_speculating_server_refuses_is_left_out_and_said():
    routes = {CHAT: WHOLE, "/v1/models": VLLM, "/metrics": SPECULATING}
    async with PlayedServer(routes) as server:
        engine = client(server)
        info = await engine.open()
        await collect(engine.reply(HI))
        await collect(engine.reply(_with_min_p(0.2)))
        await engine.close()
    usual, asked = (one.json for one in server.asked_for(CHAT))
    assert "min_p" not in usual
    assert asked["min_p"] == 0.2  # what the user asks for is sent, or refused by the server
    assert any("takes no min_p while it speculates" in notice for notice in info.notices)


async def test_a_refused_default_is_left_out_where_nothing_told_that_the_server_speculates():
    routes = {CHAT: (MIN_P, WHOLE, WHOLE), "/v1/models": VLLM}
    async with PlayedServer(routes) as server:
        engine = client(server)
        await engine.open()
        events = await collect(engine.reply(HI))
        await collect(engine.reply(HI))
        await engine.close()
    assert events[-1].reply.text == "Hello"
    assert any("refuses min_p" in one.text for one in events if isinstance(one, Notice))
    assert ["min_p" in one.json for one in server.asked_for(CHAT)] == [True, False, False]


async def test_what_one_server_refused_is_sent_to_the_next_one_at_its_address():
    async with PlayedServer({CHAT: (MIN_P, WHOLE), "/v1/models": VLLM}) as server:
        engine = client(server)
        await engine.open()
        await collect(engine.reply(HI))
        server.routes["/v1/models"] = models("m", owner="localspec")
        info = await engine.open()
        assert not any("min_p" in notice for notice in info.notices)
        await collect(engine.reply(HI))
        await engine.close()
    assert ["min_p" in one.json for one in server.asked_for(CHAT)] == [True, False, True]


async def test_a_setting_that_was_asked_for_is_not_left_out_silently():
    routes = {CHAT: (MIN_P, WHOLE), "/v1/models": VLLM}
    with pytest.raises(UsageError, match=r"refuses this request \(400\): The min_p"):
        await answered(routes, _with_min_p(0.2))


def _with_min_p(value):
    return ReplyRequest(messages=(Message("user", "Hi"),), sampling=Sampling(min_p=value), seed=1)


@pytest.mark.parametrize(
    ("stream", "said_of_it"),
    [
        ([STREAM, event({"error": {"message": "no", "code": 500}})], "refuses this request: no"),
        (
            [STREAM, said("Hel"), event({"error": {"message": "no", "code": 400}})],
            "broke the reply",
        ),
    ],
    ids=["before any text", "behind some text"],
)
async def test_an_error_before_any_text_is_a_refusal(stream, said_of_it):
    with pytest.raises(RemoteError, match=said_of_it):
        await answered({CHAT: stream, "/v1/models": VLLM})


def test_the_histogram_of_a_real_vllm_is_a_list():
    found = reported.in_metrics(
        {
            "speculative_decoding": {
                "acceptance_histogram": [7, 3, 5, 2],
                "num_spec_steps": 17,
                "num_accepted_draft_tokens": 19,
                "num_draft_tokens": 51,
                "num_spec_tokens": 3,
            }
        }
    )
    assert found.verified == 7 + 3 * 2 + 5 * 3 + 2 * 3
    assert found.per_position == (10 / 17, 7 / 10, 2 / 7)


@pytest.mark.parametrize(
    ("server", "counts"),
    [
        ("vllm", None),
        ("vllm-ngram", (24, 18, 10)),
        ("vllm-draft-model", (141, 0, 47)),
        ("vllm-eagle", (141, 0, 47)),
    ],
)
async def test_a_recorded_stream_gives_the_figures_of_its_last_event(server, counts):
    routes = {CHAT: recorded(server, "streamed"), "/v1/models": recorded(server, "models")}
    routes["/metrics"] = recorded(server, "metrics")
    events, _ = await answered(routes)
    reply = events[-1].reply
    stats = reply.stats
    assert (len(reply.tokens), stats.emitted, stats.prompt_tokens) == (48, 48, 18)
    if counts is None:
        assert (stats.speculation.state, stats.drafted) == ("off", 0)
    else:
        drafted, accepted, steps = counts
        assert (stats.speculation.state, stats.drafted, stats.accepted) == ("on", drafted, accepted)
        assert stats.rounds == 48 - accepted >= steps


def test_recorded_answers_hold_no_folder_of_the_machine_that_made_them():
    for file in RECORDED.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert not [word for word in ("/home/", "/root/", "/tmp/") if word in text]
