"""/v1/chat/completions on a fake engine: shapes, fields and errors."""

import asyncio
import gc
import json

import pytest
from fake_serving import FakeEngine
from waiting import until_so

from localspec.core.errors import (
    ContextError,
    DecodeError,
    DefectError,
    EngineError,
    QueueFullError,
    UsageError,
)
from localspec.core.events import Reading, Token
from localspec.core.sampling_params import Sampling
from localspec.serve.http.errors import without_folders

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


def chunks(text):
    """The data of a stream's events, without [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data:")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_an_answer_has_text_usage_timings_and_counters(world):
    answer = await world.client.post(CHAT, json=HI)
    assert answer.status_code == 200
    body = answer.json()
    choice = body["choices"][0]
    assert choice["message"]["content"] == "Hello from the fake engine."
    assert choice["finish_reason"] == "stop"
    assert body["object"] == "chat.completion"
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["total_tokens"] == 10
    assert body["timings"]["draft_n"] == 6
    assert body["timings"]["draft_n_accepted"] == 3
    assert body["metrics"]["speculative_decoding"]["mean_acceptance_length"] == 2.0


async def test_a_stream_has_one_chunk_a_round_and_ends_with_usage(world):
    asked = HI | {"stream": True, "stream_options": {"include_usage": True}}
    answer = await world.client.post(CHAT, json=asked)
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = chunks(answer.text)
    texts = [c["choices"][0]["delta"].get("content") for c in found if c["choices"]]
    assert texts == ["Hello from", " the fake", " engine.", None]
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert found[-2]["choices"][0]["finish_reason"] == "stop"
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 6
    assert all(chunk["usage"] is None for chunk in found[:-1])
    assert len({chunk["id"] for chunk in found}) == 1


async def test_the_usage_so_far_is_in_every_chunk_where_that_is_asked_for(world):
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await world.client.post(CHAT, json=HI | {"stream": True, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks(answer.text)]
    assert counts == [2, 4, 6, 6, 6]
    assert all(chunk["usage"]["prompt_tokens"] == 4 for chunk in chunks(answer.text))
    asked = {"prompt": "Hi", "stream": True, "stream_options": options}
    answer = await world.client.post("/v1/completions", json=asked)
    assert [c["usage"]["total_tokens"] > 0 for c in chunks(answer.text)] == [True] * 5


async def test_each_progress_of_a_prompt_is_a_chunk_also_of_those_that_come_together(
    world, monkeypatch
):
    played = FakeEngine._batches

    def together(engine, request):
        first, *others = played(engine, request)
        yield [*first[:-1], Reading(1, 4, 0), first[-1], *others[0]]
        yield from others[1:]

    monkeypatch.setattr(FakeEngine, "_batches", together)
    answer = await world.client.post(CHAT, json=HI | {"stream": True, "return_progress": True})
    found = [
        c["prompt_progress"]["processed"] for c in chunks(answer.text) if "prompt_progress" in c
    ]
    assert found == [1, 4]


async def test_choices_are_requests_with_seeds_that_follow_each_other(world):
    answer = await world.client.post(CHAT, json=HI | {"n": 3, "seed": 41})
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2]
    assert [request.seed for request in world.requests] == [41, 42, 43]
    assert answer.json()["usage"] == answer.json()["usage"] | {
        "prompt_tokens": 4,
        "completion_tokens": 18,
    }


@pytest.mark.parametrize("seed", [None, 41])
async def test_the_first_choice_alone_scores_the_prompt(world, seed):
    asked = HI | {"n": 3, "seed": seed, "prompt_logprobs": 1}
    assert len((await world.client.post(CHAT, json=asked)).json()["prompt_logprobs"]) == 4
    assert [request.prompt_logprobs for request in world.requests] == [1, None, None]
    assert seed is None or [request.seed for request in world.requests] == [41, 42, 43]
    found = chunks((await world.client.post(CHAT, json=asked | {"stream": True})).text)
    assert sum("prompt_logprobs" in chunk for chunk in found) == 1


async def test_choices_in_a_stream_keep_their_index(world):
    answer = await world.client.post(CHAT, json=HI | {"n": 2, "stream": True})
    said = {0: "", 1: ""}
    for chunk in chunks(answer.text):
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content") or ""
    assert said == {0: "Hello from the fake engine.", 1: "Hello from the fake engine."}


async def test_sampling_fields_arrive_and_the_rest_is_the_servers_default(make_world):
    world = await make_world(sampling=Sampling(temperature=0.3, top_k=7))
    await world.client.post(
        CHAT,
        json=HI
        | {
            "top_p": 0.5,
            "min_p": 0.1,
            "frequency_penalty": 0.2,
            "presence_penalty": -0.1,
            "repetition_penalty": 1.2,
            "logit_bias": {"5": -100, "7": 1.5},
            "stop": ["a", "b"],
            "max_completion_tokens": 9,
        },
    )
    (request,) = world.requests
    assert request.sampling == Sampling(
        temperature=0.3,
        top_k=7,
        top_p=0.5,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=-0.1,
        repeat_penalty=1.2,
        logit_bias=((5, -100.0), (7, 1.5)),
    )
    assert request.stop == ("a", "b")
    assert request.max_tokens == 9


async def test_samplers_of_llama_server_have_its_names_at_every_endpoint(world):
    fields = {
        "dry_multiplier": 0.8,
        "dry_penalty_last_n": -1,
        "dry_sequence_breakers": ["\n", "x"],
        "xtc_probability": 0.5,
        "typical_p": 0.9,
        "top_n_sigma": -1,
        "dynatemp_range": 0.2,
        "mirostat": 0,
        "samplers": ["dry", "xtc", "temp"],
    }
    prompt = {"prompt": "Hi", "max_tokens": 2}
    for path, body in ((CHAT, HI), ("/v1/completions", prompt)):
        answer = await world.client.post(path, json=body | fields)
        assert answer.status_code == 200, answer.text
        sampling = world.requests[-1].sampling
        assert (sampling.dry_multiplier, sampling.dry_penalty_last_n) == (0.8, 1 << 30)
        assert sampling.breakers == ("\n", "x")
        assert sampling.order == ("dry", "xtc", "temperature")
        assert (sampling.typical_p, sampling.top_n_sigma, sampling.dynatemp_range) == (0.9, 0, 0.2)
    answer = await world.client.post(CHAT, json=HI | {"samplers": "kt"})
    assert world.requests[-1].sampling.order == ("top_k", "temperature")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"samplers": ["adaptive_p"]}, "localspec has no adaptive_p"),
        ({"samplers": ["tfs_z"]}, "no sampler called 'tfs_z'"),
        ({"samplers": [1]}, "samplers must be a list of texts"),
        ({"samplers": 5}, "samplers must be a list"),
        ({"dry_sequence_breakers": [""]}, "each of dry_sequence_breakers must have"),
        ({"mirostat": 3}, "mirostat must be between 0 and 2"),
        ({"dry_base": 0.5}, "dry_base must be between 1 and 100"),
        ({"lora": [{"id": 0, "scale": 1}]}, "there is no adapter 0; ids: none is loaded"),
    ],
)
async def test_samplers_that_are_not_there_are_refused_by_name(world, fields, said):
    answer = await world.client.post(CHAT, json=HI | fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == next(iter(fields))


async def test_logprobs_have_bytes_and_as_many_alternatives_as_asked(world):
    answer = await world.client.post(CHAT, json=HI | {"logprobs": True, "top_logprobs": 2})
    content = answer.json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == list(world.words)
    assert content[0]["logprob"] == -0.5
    assert bytes(content[0]["bytes"]).decode() == "Hello"
    assert [other["token"] for other in content[0]["top_logprobs"]] == ["t0", "t1"]


async def test_a_stream_with_logprobs_begins_with_a_chunk_that_has_none(world):
    """The openai package for Node appends those of a choice's first chunk to themselves."""
    asked = HI | {"stream": True, "logprobs": True, "n": 2, "prompt_logprobs": 1}
    found = chunks((await world.client.post(CHAT, json=asked)).text)
    for index in (0, 1):
        mine = [c["choices"][0] for c in found if c["choices"][0]["index"] == index]
        role, *others = (one for one in mine if one["delta"])
        assert role["delta"] == {"role": "assistant", "content": ""}
        assert role["logprobs"] is None
        assert not any("role" in one["delta"] for one in others)
        told = [place["token"] for one in others for place in one["logprobs"]["content"]]
        assert told == list(world.words)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"n_predict": 3}, 3),
        ({"n_predict": 0}, 0),
        ({"n_predict": -1}, None),
        ({"n_predict": 2, "max_tokens": 5}, 2),
        ({"n_predict": None, "max_tokens": 5}, 5),
    ],
)
async def test_llama_servers_name_of_a_limit_comes_before_openais(world, path, fields, most):
    answer = await world.client.post(path, json=HI | {"prompt": "Hi"} | fields)
    assert answer.status_code == 200, answer.text
    assert world.requests[0].max_tokens == most
    wanted = len(world.words) if most is None else most
    assert answer.json()["usage"]["completion_tokens"] == wanted


@pytest.mark.parametrize("stream", [False, True])
async def test_llama_vims_request_that_only_has_the_prompt_read_is_answered(world, stream):
    asked = {"n_predict": 0, "samplers": [], "id_slot": 1, "cache_prompt": True}
    asked |= {"response_fields": [""], "stream": stream}
    answer = await world.client.post(CHAT, json=HI | asked)
    assert answer.status_code == 200, answer.text
    assert '"finish_reason":"length"' in answer.text
    assert world.requests[0].max_tokens == 0


async def test_token_ids_and_origins_come_on_request(world):
    asked = HI | {"return_token_ids": True, "localspec": {"origins": True}}
    choice = (await world.client.post(CHAT, json=asked)).json()["choices"][0]
    assert choice["token_ids"] == [0, 1, 2, 3, 4, 5]
    assert choice["localspec"]["origins"] == ["accepted", "corrected"] * 3
    assert choice["localspec"]["sources"] == ["model", None] * 3


async def test_a_chat_that_wants_ids_is_not_split_for_them_however_long_it_is(world, monkeypatch):
    def refused(*_, **__):
        raise UsageError("too long to be split")

    monkeypatch.setattr(FakeEngine, "tokenize", refused)
    asked = HI | {"return_token_ids": True}
    assert (await world.client.post(CHAT, json=asked)).status_code == 200
    streamed = await world.client.post(CHAT, json=asked | {"stream": True})
    assert streamed.status_code == 200
    assert '"token_ids"' in streamed.text


async def test_a_stream_keeps_no_tokens_that_it_has_told(world):
    world.words = tuple(f" w{i}" for i in range(400))
    world.hold, world.hold_at = asyncio.Event(), 150
    asked = HI | {"stream": True, "logprobs": True, "localspec": {"origins": True}}
    answer = asyncio.create_task(world.client.post(CHAT, json=asked))
    await until_so(lambda: world.service.metrics.emitted >= 296)
    alive = sum(isinstance(found, Token) for found in gc.get_objects())
    world.hold.set()
    assert (await answer).text.count('"origins"') == 200
    assert alive < 100


async def test_own_fields_choose_verifier_drafter_and_draft_length(world):
    own = {"verifier": "rejection", "drafter": "ngram", "draft_max": 3}
    await world.client.post(CHAT, json=HI | {"localspec": own})
    (request,) = world.requests
    assert (request.verifier, request.drafter, request.draft_max) == ("rejection", "ngram", 3)


@pytest.mark.parametrize(
    "prediction",
    [
        {"type": "content", "content": "x = 1"},
        {"type": "content", "content": [{"type": "text", "text": "x = 1"}]},
    ],
)
async def test_a_prediction_is_a_text_or_parts_of_one(world, prediction):
    await world.client.post(CHAT, json=HI | {"prediction": prediction})
    assert world.requests[0].prediction == "x = 1"


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("temperature", "hot", "temperature"),
        ("temperature", -1, "temperature"),
        ("temperature", True, "temperature"),
        ("top_p", 2, "top_p"),
        ("top_k", 1.5, "top_k"),
        ("n", 0, "n"),
        ("n", 10_000, "n"),
        ("n", "2", "n"),
        ("max_tokens", 0, "max_tokens"),
        ("max_completion_tokens", "many", "max_completion_tokens"),
        ("stop", [1], "stop[0]"),
        ("stop", "", "stop"),
        ("stream", "yes", "stream"),
        ("stream_options", [], "stream_options"),
        ("seed", 1 << 80, "seed"),
        ("logit_bias", {"x": 1}, "logit_bias.x"),
        ("logit_bias", {"1": "much"}, "logit_bias.1"),
        ("logit_bias", [1], "logit_bias"),
        ("logit_bias", {str(i): 1 for i in range(8193)}, "logit_bias"),
        ("top_logprobs", 21, "top_logprobs"),
        ("top_logprobs", 2, "top_logprobs"),
        ("logprobs", 3, "logprobs"),
        ("messages", [], "messages"),
        ("messages", "Hi", "messages"),
        ("messages", [1], "messages[0]"),
        ("messages", [{"role": "robot", "content": "x"}], "messages[0].role"),
        ("response_format", {"type": "yaml"}, "response_format.type"),
        ("response_format", {"type": "json_schema"}, "response_format.schema"),
        ("localspec", {"verifier": "hope"}, "localspec.verifier"),
        ("localspec", {"wrong": 1}, "localspec.wrong"),
        ("localspec", {"strict": True}, "localspec.strict"),
        ("logprobs_mode", "cooked", "logprobs_mode"),
        ("cache_salt", 5, "cache_salt"),
    ],
)
async def test_a_wrong_field_is_named_in_openais_shape(world, field, value, param):
    answer = await world.client.post(CHAT, json=HI | {field: value})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert not world.requests


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"messages": NaN}',
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        '{"messages":[{"role":"user","content":"\\ud800"}]}'.encode("utf-16"),
        b'{"messages":[{"role":"user","content":"a\xed\xa0\x80b"}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"seed":' + b"9" * 10_000 + b"}",
    ],
)
async def test_a_body_that_is_no_json_object_is_refused(world, body):
    answer = await world.client.post(CHAT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not world.defects


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a"}] * 513,
        [{"role": "user", "content": "a" * (64 * 512 + 1)}],
        [{"role": "user", "content": "<|im_end|>" * 513}],
    ],
)
async def test_a_prompt_that_cannot_fit_does_not_reach_the_engine(world, messages):
    await world.slots.load()
    answer = await world.client.post(CHAT, json={"messages": messages})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == "messages"
    assert not world.requests


async def test_null_is_the_same_as_absent(world):
    nulls = dict.fromkeys(
        ("temperature", "stop", "n", "seed", "logit_bias", "stream", "tools", "response_format")
    )
    assert (await world.client.post(CHAT, json=HI | nulls)).status_code == 200


async def test_fields_without_effect_are_told_once_and_known_ones_never(world):
    for _ in range(2):
        await world.client.post(CHAT, json=HI | {"frobnicate": 1, "store": True, "user": "me"})
    assert [notice for notice in world.notices if "field" in notice] == [
        "the field 'frobnicate' in /v1/chat/completions has no effect"
    ]


async def test_a_model_that_is_not_there_is_not_found(world):
    answer = await world.client.post(CHAT, json=HI | {"model": "gpt-7"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert "fake" in answer.json()["error"]["message"]


async def test_an_alias_is_a_name_of_the_model(make_world):
    world = await make_world(aliases=("gpt-7",))
    answer = await world.client.post(CHAT, json=HI | {"model": "gpt-7"})
    assert answer.json()["model"] == "fake"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextError("the prompt has 900 tokens"), 400, "context_length_exceeded"),
        (UsageError("there is no file /home/me/x.gguf"), 400, None),
        (QueueFullError("128 requests are waiting already"), 429, "queue_full"),
        (EngineError("signal 6; its log is /home/me/engine.log"), 503, "engine_stopped"),
        (DefectError("internal error, KeyError: 1; see /home/me/x.log"), 500, "request_failed"),
        (DecodeError("llama_decode: /home/me/x.gguf"), 500, "decode_failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_the_engine_have_their_status_and_no_path(
    world, error, status, code, stream
):
    world.error = error
    answer = await world.client.post(CHAT, json=HI | {"stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert "/home" not in answer.text
    if status in {429, 503}:
        assert int(answer.headers["retry-after"]) >= 1
    assert (str(error) in world.notices) is (status == 500)


@pytest.mark.parametrize(
    ("text", "told_as"),
    [
        ("/home/me/models/x.gguf is no model", "x.gguf is no model"),
        ("cannot read '/root/a b/x.gguf': denied", "cannot read 'x.gguf': denied"),
        ("`/home/me/x.gguf`, [/srv/a.bin] and y:/home/me/z.json", "`x.gguf`, [a.bin] and y:z.json"),
        (
            "others may write to /home/me/X; chmod go-w '/home/me/X'",
            "others may write to X; chmod go-w 'X'",
        ),
        ("This Lark grammar is not valid: start: /a/b ^ '/a/b', /x/y/z foo, /[0-9/ 'x'", None),
        ("file:///srv/x.png is empty; see https://e.org/a/b", None),
        ("n/a, 1 / 2, user/repo:Q4, '<|im_end|>'", None),
    ],
)
def test_files_are_told_by_their_names(text, told_as):
    assert without_folders(UsageError(text)) == (told_as or text)


async def test_a_damaged_catalogue_is_no_fault_of_the_request(world, monkeypatch):
    def damaged():
        raise UsageError("/home/me/models.toml, line 3: nonsense")

    monkeypatch.setattr("localspec.models.catalog.catalog.catalog", damaged)
    for path, body in ((CHAT, HI | {"model": "other"}), ("/api/pull", {"model": "other"})):
        answer = await world.client.post(path, json=body)
        assert answer.status_code == 500
        assert "models.toml" not in answer.text
    assert "/home/me/models.toml, line 3: nonsense" in world.notices


async def test_one_line_is_logged_for_each_request(world):
    world.cached = 3
    await world.client.post(CHAT, json=HI | {"n": 2})
    (line,) = world.lines
    for part in ("local", CHAT, "fake", "8 prompt (6 cached)", "12 tokens", "accepted 50%", "stop"):
        assert part in line


async def test_a_limit_of_the_server_holds_whatever_is_asked(make_world):
    world = await make_world(max_tokens=4)
    await world.client.post(CHAT, json=HI)
    await world.client.post(CHAT, json=HI | {"max_tokens": 1000})
    await world.client.post(CHAT, json=HI | {"max_tokens": 2})
    assert [request.max_tokens for request in world.requests] == [4, 4, 2]


async def test_many_unknown_fields_are_one_line_and_silence_no_later_one(world):
    unknown = {f"unknown-{i}": 1 for i in range(250)}
    for _ in range(2):
        await world.client.post(CHAT, json=HI | unknown)
    for i in range(300):
        await world.client.post(CHAT, json=HI | {f"other-{i}": 1})
    first, *others = world.notices
    assert first.endswith("'unknown-7' and 242 more in /v1/chat/completions have no effect")
    assert others[-1] == f"the field 'other-299' in {CHAT} has no effect"
    assert len(world.notices) == 1 + 300


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_minus_one_is_no_limit_of_tokens(world, field):
    for value, status in ((-1, 200), (0, 400), (-2, 400)):
        body = HI | {field: value}
        assert (await world.client.post(CHAT, json=body)).status_code == status
    assert world.requests[0].max_tokens is None
    body = {"prompt": "a", "max_tokens": -1}
    assert (await world.client.post("/v1/completions", json=body)).status_code == 200
    assert world.requests[1].max_tokens is None


async def test_the_older_form_of_calls_is_understood(world):
    said = [
        *HI["messages"],
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "look", "arguments": '{"at": "sky"}'},
        },
        {"role": "function", "name": "look", "content": "clear"},
        {"role": "assistant", "content": None},
        {"role": "function", "name": "look", "content": None},
    ]
    assert (await world.client.post(CHAT, json={"messages": said})).status_code == 200
    _, call, result, empty, nothing = world.requests[0].messages
    assert [(c.name, c.arguments) for c in call.calls] == [("look", '{"at": "sky"}')]
    assert (result.role, result.name, result.content) == ("tool", "look", "clear")
    assert (empty.content, nothing.content) == ("", "")
    for message in ({"role": "function", "content": "x"}, {"role": "user", "content": None}):
        answer = await world.client.post(CHAT, json={"messages": [message]})
        assert answer.status_code == 400
