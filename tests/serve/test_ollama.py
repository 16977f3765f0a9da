"""Ollama's interface on a fake engine: shapes, options, durations, names, and what is refused."""

import base64
import io
import json

import pytest
from PIL import Image
from waiting import until_so

from localspec.core.errors import ContextError, DecodeError
from localspec.core.events import ReplyFormat
from localspec.core.sampling_params import Sampling

CHAT, GENERATE = "/api/chat", "/api/generate"
HI = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
HERMES = ReplyFormat(tools="hermes")


def lines(text):
    return [json.loads(one) for one in text.splitlines()]


def picture():
    raw = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(raw, "PNG")
    return base64.b64encode(raw.getvalue()).decode()


async def test_a_chat_is_a_stream_of_lines_unless_the_request_says_otherwise(world):
    answer = await world.client.post(CHAT, json=HI)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    *parts, last = lines(answer.text)
    assert [part["message"]["content"] for part in parts] == ["Hello from", " the fake", " engine."]
    assert not any(part["done"] for part in parts)
    assert {part["model"] for part in (*parts, last)} == {"fake"}
    assert last["done"] is True
    assert last["done_reason"] == "stop"
    assert last["message"] == {"role": "assistant", "content": ""}


async def test_a_whole_answer_has_counts_durations_and_what_drafting_did(world):
    answer = (await world.client.post(CHAT, json=HI | {"stream": False})).json()
    assert answer["message"]["content"] == "Hello from the fake engine."
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (4, 6)
    assert (answer["prompt_eval_duration"], answer["eval_duration"]) == (10_000_000, 20_000_000)
    assert answer["total_duration"] >= answer["load_duration"] >= 0
    assert answer["timings"]["draft_n_accepted"] == 3
    assert answer["created_at"].endswith("Z")
    assert "accepted 50%" in world.lines[0]


async def test_a_prompt_is_answered_and_a_raw_one_continued(world):
    whole = {"model": "fake:latest", "prompt": "Hi", "system": "Be brief.", "stream": False}
    answer = (await world.client.post(GENERATE, json=whole)).json()
    assert answer["response"] == "Hello from the fake engine."
    assert answer["model"] == "fake:latest"
    raw = {"prompt": "Once", "raw": True, "stream": False}
    assert (await world.client.post(GENERATE, json=raw)).status_code == 200
    asked, continued = world.requests
    assert [(m.role, m.content) for m in asked.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert (continued.prompt, continued.messages) == ("Once", ())


async def test_options_are_sampling_parameters_and_limits(make_world):
    world = await make_world(sampling=Sampling(temperature=0.3, top_k=7))
    options = {
        "top_p": 0.5, "min_p": 0.1, "repeat_penalty": 1.2, "repeat_last_n": 32,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "seed": 11, "stop": "END",
        "num_predict": 5, "typical_p": 1.0, "mirostat": 0,
    }  # fmt: skip
    await world.client.post(CHAT, json=HI | {"options": options})
    (request,) = world.requests
    assert request.sampling == Sampling(
        temperature=0.3, top_k=7, top_p=0.5, min_p=0.1, repeat_penalty=1.2, penalty_last_n=32,
        presence_penalty=0.1, frequency_penalty=0.2,
    )  # fmt: skip
    assert (request.seed, request.stop, request.max_tokens) == (11, ("END",), 5)


@pytest.mark.parametrize("n", [-2, -1, 0])
async def test_no_limit_is_any_number_below_one_and_minus_one_a_fresh_seed(world, n):
    await world.client.post(CHAT, json=HI | {"options": {"num_predict": n, "seed": -1}})
    assert (world.requests[0].max_tokens, world.requests[0].seed) == (None, None)


async def test_options_of_loading_are_named_in_a_notice_and_logged_once(world):
    options = {"num_ctx": 8192, "num_gpu": 99, "wizardry": 3}
    asked = HI | {"options": options, "stream": False}
    answer = (await world.client.post(CHAT, json=asked)).json()
    (notice,) = answer["localspec"]["notices"]
    for said in ("options.num_ctx (the server's --ctx says it)", "num_gpu", "options.wizardry"):
        assert said in notice
    await world.client.post(CHAT, json=asked)
    assert len(world.notices) == 1


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        (CHAT, {"options": {"tfs_z": 0.5}}, "options.tfs_z"),
        (CHAT, {"options": {"temperature": "hot"}}, "temperature must be a number"),
        (CHAT, {"options": []}, "options must be an object"),
        (CHAT, {"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "images": ["?"]}]}, "not in base64"),
        (CHAT, {"keep_alive": "a while"}, "keep_alive must be a number of seconds"),
        (CHAT, {"format": "yaml"}, 'format must be "json" or a JSON schema'),
        (CHAT, {"think": "deeply"}, "think must be true, false, low"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs needs logprobs"),
        (GENERATE, {"context": [1, 2]}, "context is not supported: send the conversation to"),
        (GENERATE, {"template": "{{ .Prompt }}"}, "template is not supported"),
        (GENERATE, {"suffix": "}", "system": "Be brief."}, "system has no place beside suffix"),
        (GENERATE, {"suffix": "}", "raw": True}, "raw has no place beside suffix"),
        (GENERATE, {"width": 512}, "width is not supported"),
        (GENERATE, {"raw": True, "system": "Be brief."}, "system has no place in a raw prompt"),
    ],
)
async def test_what_would_change_the_reply_and_is_not_done_is_refused_by_name(
    world, path, more, said
):
    answer = await world.client.post(path, json={"messages": HI["messages"], "prompt": "Hi"} | more)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]
    assert world.requests == []


async def test_what_changes_nothing_is_taken(world):
    none = {"context": [], "template": "", "suffix": "", "width": 0, "options": {"tfs_z": 1.0}}
    answer = await world.client.post(GENERATE, json={"prompt": "Hi", "stream": False} | none)
    assert answer.status_code == 200
    assert "notices" not in answer.json()["localspec"]


async def test_a_format_is_json_or_a_schema(world):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    for wanted in ("json", schema, ""):
        await world.client.post(CHAT, json=HI | {"format": wanted})
    json_object, of_schema, none = (request.grammar for request in world.requests)
    assert json_object is not None
    assert json.loads(of_schema.text) == schema
    assert none is None


async def test_thinking_is_switched_in_the_template_and_told_apart(world):
    world.form = ReplyFormat(thinking=("<think>", "</think>"))
    world.words = ("<think>", "Hm", ".", "</think>", "Yes", ".")
    answer = (await world.client.post(CHAT, json=HI | {"think": True, "stream": False})).json()
    assert (answer["message"]["thinking"], answer["message"]["content"]) == ("Hm.", "Yes.")
    assert "notices" not in answer["localspec"]
    await world.client.post(CHAT, json=HI | {"think": False})
    await world.client.post(CHAT, json=HI | {"think": "high"})
    on, off, high = (json.loads(request.template_arguments) for request in world.requests)
    assert (on, off) == ({"enable_thinking": True}, {"enable_thinking": False})
    assert high == {"enable_thinking": True, "reasoning_effort": "high"}


async def test_thinking_that_a_template_does_not_know_is_a_notice(world):
    answer = (await world.client.post(CHAT, json=HI | {"think": True, "stream": False})).json()
    assert answer["localspec"]["notices"] == [
        "think: the chat template of this model has no thinking"
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_tool_is_whole_with_an_object_of_arguments(world, stream):
    world.form, world.words = HERMES, ("Wait. ", CALL)
    answer = await world.client.post(CHAT, json=HI | {"tools": [TOOL], "stream": stream})
    found = lines(answer.text) if stream else [answer.json()]
    calls = [call for one in found for call in one["message"].get("tool_calls", ())]
    assert [call["function"]["name"] for call in calls] == ["weather"]
    assert calls[0]["function"]["arguments"] == {"city": "Rome"}
    assert "".join(one["message"]["content"] for one in found).strip() == "Wait."
    assert found[-1]["done_reason"] == "stop"


async def test_a_call_that_was_cut_is_left_out(world):
    world.form, world.words = HERMES, (CALL[:40],)
    answer = await world.client.post(CHAT, json=HI | {"tools": [TOOL], "stream": False})
    assert "tool_calls" not in answer.json()["message"]


async def test_calls_results_and_pictures_of_earlier_messages_arrive(world):
    earlier = [
        {"role": "user", "content": "What is this?", "images": [picture()]},
        {
            "role": "assistant",
            "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}],
        },
        {"role": "tool", "tool_name": "weather", "content": "sunny"},
    ]
    await world.client.post(CHAT, json=HI | {"messages": earlier})
    user, assistant, tool = world.requests[0].messages
    assert len(user.pictures) == 1
    assert user.content.strip() == "What is this?"
    assert (assistant.calls[0].name, assistant.reasoning) == ("weather", "Hm.")
    assert json.loads(assistant.calls[0].arguments) == {"city": "Rome"}
    assert (tool.role, tool.name, tool.content) == ("tool", "weather", "sunny")


async def test_logprobs_are_a_list(world):
    asked = HI | {"logprobs": True, "top_logprobs": 2, "stream": False}
    found = (await world.client.post(CHAT, json=asked)).json()["logprobs"]
    assert [one["token"] for one in found] == list(world.words)
    assert len(found[0]["top_logprobs"]) == 2


async def test_an_error_is_one_sentence_before_and_within_a_stream(world):
    world.error, world.error_at = ContextError("the messages do not fit: raise --ctx"), 0
    answer = await world.client.post(CHAT, json=HI)
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "the messages do not fit: start the server with a larger --ctx"
    }
    world.error, world.error_at = DecodeError("/home/me/x.gguf broke"), 2
    answer = await world.client.post(CHAT, json=HI)
    assert answer.status_code == 200
    *_, last = lines(answer.text)
    assert last == {
        "error": "the engine could not decode this reply; the server's log has the reason"
    }


async def test_unknown_models_and_paths_answer_in_ollamas_shape(world):
    answer = await world.client.post(CHAT, json=HI | {"model": "llama9"})
    assert answer.status_code == 404
    assert "there is no model 'llama9'" in answer.json()["error"]
    for path in ("/api/embed", "/api/create", "/api/copy", "/api/push"):
        answer = await world.client.post(path, json={"model": "fake", "input": "a"})
        assert (answer.status_code, [*answer.json()]) == (400, ["error"])
    assert (await world.client.get("/api/nothing")).json()["error"].startswith("there is nothing")
    answer = await world.client.get("/api/chat")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# -- loading and unloading -------------------------------------------------------------------------


async def test_an_empty_request_loads_the_model_and_keep_alive_0_unloads_it(world):
    loaded = (await world.client.post(GENERATE, json={"model": "fake", "stream": False})).json()
    assert (loaded["done_reason"], loaded["response"]) == ("load", "")
    (listed,) = (await world.client.get("/api/ps")).json()["models"]
    assert listed["name"] == "fake:latest"
    assert listed["context_length"] == 512
    assert listed["expires_at"] > "2300"
    unloaded = await world.client.post(
        CHAT, json={"model": "fake", "messages": [], "keep_alive": 0}
    )
    assert lines(unloaded.text)[0]["done_reason"] == "unload"
    await until_so(lambda: world.slot.info is None)
    assert (await world.client.get("/api/ps")).json() == {"models": []}


async def test_keep_alive_holds_until_another_request_says_otherwise(make_world):
    world = await make_world(keep_loaded=900.0)
    for given, least, most in (("5m", 290, 300), (60, 50, 60), ("1h30m", 5390, 5400)):
        await world.client.post(CHAT, json=HI | {"keep_alive": given})
        assert least < world.slot.kept <= most
    for given in (-1, 1e12, "99999999h", "-99999999h", "-5m"):
        await world.client.post(CHAT, json=HI | {"keep_alive": 60})
        await world.client.post(CHAT, json=HI | {"keep_alive": given})
        assert world.slot.kept is None
        assert (await world.client.get("/api/ps")).status_code == 200
    await world.client.post(CHAT, json=HI)
    assert 890 < world.slot.kept <= 900


@pytest.fixture
def make_models(make_world, monkeypatch):
    """Servers that have "fake" loaded and may load "other" in its place."""

    async def make(**settings):
        world = await make_world(**settings)
        monkeypatch.setattr(
            "localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),)
        )
        await world.slots.load()
        return world

    return make


@pytest.mark.parametrize("prompt", [{"prompt": "Hi"}, {}])
@pytest.mark.parametrize("stream", [False, True])
async def test_keep_alive_is_of_the_model_that_its_request_exchanges(make_models, prompt, stream):
    world = await make_models()
    asked = {"model": "other", "stream": stream} | prompt
    for given, least, most in (("5m", 290, 300), (60, 50, 60)):
        assert (await world.client.post(GENERATE, json=asked | {"keep_alive": given})).is_success
        assert least < world.slot.kept <= most
        assert world.slot.options.model == "other"
        assert (await world.client.post(GENERATE, json={"model": "fake"})).is_success
        assert world.slot.kept is None
    if prompt:
        await world.client.post(GENERATE, json=asked | {"keep_alive": 0})
        await until_so(lambda: not any(engine.alive for engine in world.engines))


@pytest.mark.parametrize(("usual", "given"), [(60.0, -1), (None, 1000), (60.0, 1000)])
async def test_keep_alive_ends_with_its_model(make_models, usual, given):
    """The next one stays as long as the server was started with; so does it, loaded again."""
    world = await make_models(keep_loaded=usual)
    await world.client.post(CHAT, json=HI | {"keep_alive": given})
    assert world.slot.kept is None if given < 0 else world.slot.kept > 900
    for name in ("other", "fake"):
        answer = await world.client.post("/v1/chat/completions", json=HI | {"model": name})
        assert answer.json()["model"] == name
        assert world.slot.kept is None if usual is None else 0 < world.slot.kept <= usual


async def test_keep_alive_of_a_model_that_is_not_loaded_has_no_effect(world):
    for _ in range(2):
        unloaded = await world.client.post(CHAT, json={"model": "fake", "keep_alive": 0})
        assert unloaded.json()["done_reason"] == "unload"
        assert world.slot.kept is None
    assert not world.engines


async def test_the_version_is_that_of_the_interface_and_ours(world):
    found = (await world.client.get("/api/version")).json()
    assert found["version"].count(".") == 2
    assert "localspec" in found


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_root_tells_that_the_server_is_up(world, method):
    answer = await world.client.request(method, "/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")


async def test_a_prompt_with_a_suffix_is_a_gap_to_be_filled(make_world):
    world = await make_world(suffix_first=True)
    asked = {"prompt": "def f():", "suffix": "return x", "stream": False}
    answer = await world.client.post(GENERATE, json=asked)
    assert answer.status_code == 200
    assert answer.json()["response"]
    (request,) = world.requests
    assert (request.infill.before, request.infill.suffix) == ("def f():", "return x")
    assert request.infill.suffix_first
    assert not request.messages
