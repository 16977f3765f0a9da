"""Fields of llama-server, vLLM, OpenAI, Ollama and LM Studio: each works, or is refused by name, or
is named in a notice. None is ignored in silence.
"""

import re
from pathlib import Path

import pytest

from localspec.serve.requests.foreign_fields import (
    OF_PROMPTS,
    OF_SCORES,
    OF_VECTORS,
    REFUSED,
    WITHOUT_EFFECT,
)

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ROOT = Path(__file__).parents[2]
MESSAGES = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6}
LEAST = {
    CHAT: MESSAGES,
    COMPLETIONS: {"prompt": "Hi", "max_tokens": 6},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": MESSAGES,
}
"""A valid body for each path."""

WORKS = {
    # OpenAI
    "temperature": (0.5, lambda r: r.sampling.temperature == 0.5),
    "top_p": (0.5, lambda r: r.sampling.top_p == 0.5),
    "frequency_penalty": (0.5, lambda r: r.sampling.frequency_penalty == 0.5),
    "presence_penalty": (0.5, lambda r: r.sampling.presence_penalty == 0.5),
    "logit_bias": ({"5": -100}, lambda r: r.sampling.logit_bias == ((5, -100.0),)),
    "max_tokens": (3, lambda r: r.max_tokens == 3),
    "stop": (["a"], lambda r: r.stop == ("a",)),
    "seed": (11, lambda r: r.seed == 11),
    "prediction": ("Hello", lambda r: r.prediction == "Hello"),
    "response_format": ({"type": "json_object"}, lambda r: r.grammar.kind == "json"),
    # llama-server
    "top_k": (7, lambda r: r.sampling.top_k == 7),
    "min_p": (0.2, lambda r: r.sampling.min_p == 0.2),
    "repeat_penalty": (1.2, lambda r: r.sampling.repeat_penalty == 1.2),
    "repeat_last_n": (32, lambda r: r.sampling.penalty_last_n == 32),
    "grammar": ('root ::= "a"', lambda r: r.grammar.kind == "gbnf"),
    "json_schema": ({"type": "object"}, lambda r: r.grammar.kind == "schema"),
    # vLLM
    "repetition_penalty": (1.2, lambda r: r.sampling.repeat_penalty == 1.2),
    "guided_json": ({"type": "object"}, lambda r: r.grammar.kind == "schema"),
    "guided_regex": ("a+", lambda r: r.grammar.kind == "regex"),
    "guided_choice": (["a", "b"], lambda r: r.grammar.choices == ("a", "b")),
    "guided_grammar": ('start: "a"', lambda r: r.grammar.kind == "lark"),
    "structured_outputs": ({"regex": "a+"}, lambda r: r.grammar.kind == "regex"),
    "prompt_logprobs": (1, lambda r: r.prompt_logprobs == 1),
    "logprobs_mode": ("processed", lambda r: r.logprobs_mode == "processed"),
    "cache_salt": ("x", lambda r: len(r.owner) == 65),
    "mirostat": (2, lambda r: r.sampling.mirostat == 2),
    "mirostat_tau": (4.0, lambda r: r.sampling.mirostat_tau == 4.0),
    "mirostat_eta": (0.2, lambda r: r.sampling.mirostat_eta == 0.2),
    "typical_p": (0.5, lambda r: r.sampling.typical_p == 0.5),
    "top_n_sigma": (1.5, lambda r: r.sampling.top_n_sigma == 1.5),
    "xtc_probability": (0.5, lambda r: r.sampling.xtc_probability == 0.5),
    "xtc_threshold": (0.2, lambda r: r.sampling.xtc_threshold == 0.2),
    "dry_multiplier": (0.8, lambda r: r.sampling.dry_multiplier == 0.8),
    "dynatemp_range": (0.3, lambda r: r.sampling.dynatemp_range == 0.3),
    "samplers": (["top_k"], lambda r: r.sampling.order == ("top_k",)),
}
CHANGES = {
    "truncate_prompt_tokens": 5, "prompt_embeds": "AAAA", "guided_whitespace_pattern": " ",
    "thinking_token_budget": 9, "audio": {"voice": "a"}, "web_search_options": {}, "think": True,
    "modalities": ["audio"], "format": "json", "suffix": "}",
    "add_generation_prompt": False, "chat_template": "{{ x }}", "detokenize": False,
    "skip_special_tokens": False, "parse_tool_calls": False, "function_call": {"name": "f"},
    "options": {"temperature": 0}, "vllm_xargs": {"a": 1}, "input_prefix": "a",
    "continue_final_message": True, "embd_normalize": -1, "normalize": False,
    "add_special_tokens": False, "embed_dtype": "float16", "endianness": "big",
    "activation": True, "use_activation": True,
    "input_suffix": "a", "min_keep": 2, "tfs_z": 0.5, "length_penalty": 0.5,
}  # fmt: skip
"""Values of refused fields that would change a reply; of the others, see `changing`."""


DECLARED = ((COMPLETIONS, "suffix"), (COMPLETIONS, "n_predict"), (CHAT, "n_predict"))
"""Refused fields that some paths have: see the tests of those."""


def changing(name):
    """A value of a refused field that is not neutral."""
    if name in CHANGES:
        return CHANGES[name]
    for neutral, other in ((False, True), ([], ["a"]), (0, 5), (-1, 5)):
        if any(type(one) is type(neutral) and one == neutral for one in REFUSED[name].neutral):
            return other
    raise AssertionError(name)


def test_the_table_is_as_long_as_what_clients_send():
    assert len({*WORKS, *REFUSED, *WITHOUT_EFFECT}) >= 110


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", WORKS)
async def test_a_field_works(world, path, name):
    value, arrived = WORKS[name]
    answer = await world.client.post(path, json=LEAST[path] | {name: value})
    assert answer.status_code == 200, answer.text
    assert arrived(world.requests[0])


@pytest.mark.parametrize("minus_one", [-1, -1.0])
@pytest.mark.parametrize("path", [*LEAST, "/infill"])
async def test_the_seed_minus_one_is_a_new_one(world, path, minus_one):
    asked = LEAST.get(path, {"input_prefix": "a", "input_suffix": "b"})
    for seed in (minus_one, -2, 11):
        answer = await world.client.post(path, json=asked | {"seed": seed})
        assert answer.status_code == 200, answer.text
    assert [request.seed for request in world.requests] == [None, -2, 11]


async def test_choices_with_the_seed_minus_one_have_a_new_one_each(world):
    await world.client.post(CHAT, json=LEAST[CHAT] | {"n": 2, "seed": -1})
    assert [request.seed for request in world.requests] == [None, None]


async def test_the_description_says_what_the_seed_minus_one_is(world):
    described = (await world.client.get("/openapi.json")).json()["components"]["schemas"]
    seeds = {
        name: one["properties"]["seed"]
        for name, one in described.items()
        if name.endswith(("Body", "Options")) and "seed" in one.get("properties", {})
    }
    assert {"ChatBody", "ResponsesBody", "OllamaOptions"} <= {*seeds}
    for seed in seeds.values():
        assert seed["description"].endswith("-1 = a new one")
        assert {"const": -1} in seed["anyOf"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("name", REFUSED)
async def test_a_field_that_would_change_the_reply_is_refused_by_name(world, path, name):
    if (path, name) in DECLARED:
        return
    asked = LEAST[path] | {name: changing(name)}
    answer = await world.client.post(path, json=asked)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message == f"{name} is not supported: {REFUSED[name].instead}"
    assert world.requests == []


@pytest.mark.parametrize("name", REFUSED)
async def test_null_and_the_value_that_changes_nothing_are_taken(world, name):
    for value in (None, *REFUSED[name].neutral):
        answer = await world.client.post(CHAT, json=LEAST[CHAT] | {name: value})
        assert answer.status_code == 200, answer.text
        assert "notices" not in answer.json()["choices"][0]["localspec"]


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
async def test_a_field_that_cannot_change_the_reply_is_named_in_a_notice(world, name):
    for path in (CHAT, COMPLETIONS):
        answer = await world.client.post(path, json=LEAST[path] | {name: 1})
        assert answer.status_code == 200
        notices = answer.json()["choices"][0]["localspec"]["notices"]
        assert any(name in notice and "without effect" in notice for notice in notices)
    assert world.notices == []


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/responses", {"ttl": 60}),
        ("/v1/messages", {"speed": "fast"}),
    ],
)
async def test_other_shapes_have_the_notice_too(world, path, more):
    found = (await world.client.post(path, json=LEAST[path] | more)).json()["localspec"]["notices"]
    assert "without effect here: " in found[0]


async def test_unknown_fields_are_named_in_the_answer_and_the_log(world):
    answer = await world.client.post(CHAT, json=LEAST[CHAT] | {"wizardry": 9})
    said = answer.json()["choices"][0]["localspec"]["notices"]
    assert any("wizardry" in notice for notice in said)
    assert any("wizardry" in notice for notice in world.notices)


async def test_a_stream_has_the_notice_in_its_last_chunk(world):
    answer = await world.client.post(CHAT, json=LEAST[CHAT] | {"user": "me", "stream": True})
    assert '"notices":["without effect here: user' in answer.text


NO_REPLIES = {
    "/tokenize": ({"messages": MESSAGES["messages"]}, OF_PROMPTS),
    "/apply-template": ({"messages": MESSAGES["messages"]}, OF_PROMPTS),
    "/v1/embeddings": ({"input": "Hi"}, OF_VECTORS),
    "/embedding": ({"content": "Hi"}, OF_VECTORS),
    "/v1/rerank": ({"query": "Hi", "documents": ["a"]}, OF_SCORES),
}
"""A valid body for each path whose answer is no reply, and what is refused there."""


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, (_, table) in NO_REPLIES.items() for name in table]
)
async def test_a_field_that_would_change_another_answer_is_refused_by_name_too(world, path, name):
    least, table = NO_REPLIES[path]
    answer = await world.client.post(path, json=least | {name: changing(name)})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message == f"{name} is not supported: {table[name].instead}"
    for value in (None, *table[name].neutral):
        answer = await world.client.post(path, json=least | {name: value})
        if table is OF_PROMPTS:
            assert answer.status_code == 200, answer.text
        else:  # no model for it is loaded
            assert answer.json()["error"]["code"] == "not_supported"


BEGUN = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The"}]
CONTINUED = {"add_generation_prompt": False, "continue_final_message": True}
"""vLLM's way to have the last message of the assistant continued, which is done anyway."""


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/tokenize", "/apply-template"])
async def test_the_last_message_is_continued_in_vllms_words_too(world, path):
    answer = await world.client.post(path, json={"max_tokens": 6, "messages": BEGUN} | CONTINUED)
    assert answer.status_code == 200, answer.text
    assert "without effect" not in answer.text


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
@pytest.mark.parametrize(
    "fields",
    [
        CONTINUED | {"messages": BEGUN[:1]},
        {"messages": BEGUN[:1], "continue_final_message": True},
        CONTINUED | {"messages": [*BEGUN, BEGUN[0]]},
        CONTINUED | {"messages": BEGUN, "add_generation_prompt": 0},
        {"messages": BEGUN, "add_generation_prompt": False},
        {"messages": BEGUN, "add_generation_prompt": False, "continue_final_message": False},
    ],
)
async def test_no_other_message_is_continued(world, path, fields):
    answer = await world.client.post(path, json=fields)
    assert answer.status_code == 400
    assert "last message of the assistant is continued" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        (CHAT, {"echo": True}, "echo is not supported: use /v1/completions"),
        (CHAT, {"add_special_tokens": True}, "add_special_tokens is not supported"),
        (COMPLETIONS, {"add_special_tokens": False}, "send token ids"),
        (CHAT, {"structured_outputs": {"structural_tag": {}}}, "structural_tag is not supported"),
        (
            CHAT,
            {"structured_outputs": {"json": {}, "disable_additional_properties": True}},
            "structured_outputs.disable_additional_properties is not supported: write",
        ),
        (CHAT, {"n_probs": True}, "n_probs is not supported"),  # true is not 1, false not 0
        (CHAT, {"n_probs": False}, "n_probs is not supported"),
        (CHAT, {"lora": [{"id": 0, "scale": 1}]}, "there is no adapter 0; ids: none is loaded"),
    ],
)
async def test_what_differs_by_path_or_lies_deeper_is_refused_too(world, path, more, said):
    answer = await world.client.post(path, json=LEAST[path] | more)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("path", "more", "named", "logged"),
    [
        (CHAT, {"stream_options": {"include_usage": True, "wand": 1}}, "stream_options.wand", True),
        (COMPLETIONS, {"stream_options": {"wand": None}}, "stream_options.wand", True),
        (CHAT, {"stream_options": {"include_obfuscation": True}}, "include_obfuscation", False),
        (CHAT, {"structured_outputs": {"json": SCHEMA, "wand": 1}}, "outputs.wand", True),
        (CHAT, {"structured_outputs": {"json": SCHEMA, "disable_fallback": True}},
         "structured_outputs.disable_fallback", False),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
            "schema": SCHEMA, "wand": 1}}}, "response_format.json_schema.wand", True),
        (CHAT, {"prediction": {"content": "a", "wand": 1}}, "prediction.wand", True),
        (CHAT, {"tool_choice": {"function": {"name": "f", "wand": 1}},
                "tools": [{"function": {"name": "f"}}]}, "tool_choice.function.wand", True),
        ("/v1/responses", {"text": {"verbosity": "low"}}, "text.verbosity", False),
        ("/v1/responses", {"text": {"format": {"type": "text", "wand": 1}}}, "format.wand", True),
        ("/v1/responses", {"reasoning": {"summary": "auto"}}, "reasoning.summary", False),
        ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 1024}},
         "thinking.budget_tokens", False),
        ("/v1/messages", {"output_config": {"wand": 1}}, "output_config.wand", True),
        ("/v1/messages", {"tool_choice": {"type": "none", "wand": 1}}, "tool_choice.wand", True),
        ("/api/chat", {"options": {"wand": 1}}, "options.wand", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_a_field_without_effect_in_an_object_is_named_with_its_place(
    world, path, more, named, logged, stream
):
    answer = await world.client.post(path, json=OWN[path] | more | {"stream": stream})
    assert answer.status_code == 200, answer.text
    assert len(re.findall(rf'"notices":\["without effect here: \S*{named}"\]', answer.text)) == 1
    assert any(named in notice for notice in world.notices) is logged


NEUTRAL = [
    (CHAT, {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": False}}),
    (CHAT, {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}}),
    (CHAT, {"structured_outputs": {"json": SCHEMA, "structural_tag": None}}),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "strict": True, "schema": SCHEMA}}}),
    ("/v1/responses", {"text": {"format": {
        "type": "json_schema", "name": "a", "strict": True, "schema": SCHEMA}}}),
    ("/v1/responses", {"text": {"verbosity": None}, "reasoning": {"summary": None}}),
    (CHAT, {"chat_template_kwargs": {"wand": 1}, "logit_bias": {"5": -100}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "more"), NEUTRAL)
async def test_what_an_object_has_with_its_effect_is_in_no_notice(world, path, more):
    answer = await world.client.post(path, json=OWN[path] | more)
    assert answer.status_code == 200, answer.text
    assert "notices" not in answer.text
    assert world.notices == []


OWN = LEAST | {
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/api/chat": {"messages": MESSAGES["messages"]},
    "/api/generate": {"prompt": "Hi"},
}


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("stream", [False, True])
async def test_own_fields_have_their_effect_at_every_path(world, path, stream):
    body = OWN[path] | {"stream": stream, "wizardry": 1}
    strict = await world.client.post(path, json=body | {"localspec": {"strict": True}})
    assert strict.status_code == 400
    assert "does not compute in strict mode" in strict.text
    said = (await world.client.post(path, json=body | {"localspec": {"origins": True}})).text
    found = re.findall(r'"origins":\[([^]]*)\]', said)
    assert [word for part in found for word in part.split(",")] == ['"accepted"', '"corrected"'] * 3
    assert len(re.findall(r'"notices":\["without effect here: wizardry"\]', said)) == 1


@pytest.mark.parametrize("path", [path for path in OWN if path not in {CHAT, COMPLETIONS}])
async def test_a_scored_prompt_is_named_where_no_answer_has_it(world, path):
    answer = await world.client.post(path, json=OWN[path] | {"prompt_logprobs": 1, "stream": False})
    assert "without effect here: prompt_logprobs" in answer.text
    assert world.requests[0].prompt_logprobs is None


@pytest.mark.parametrize("path", OWN)
async def test_the_end_of_a_stream_has_what_was_told_before(world, path):
    world.told = "the oldest message was left out"
    answer = await world.client.post(path, json=OWN[path] | {"stream": True})
    assert answer.text.count(world.told) == 1


def test_the_page_of_the_server_counts_the_fields_of_others():
    page = " ".join((ROOT / "docs/server.md").read_text(encoding="utf-8").split())
    assert f"{len(REFUSED)} of llama-server" in page
    assert f"{len(OF_PROMPTS)} at `/tokenize`" in page
    assert f"{len(OF_VECTORS)} for vectors, {len(OF_SCORES)} for scores" in page
    assert f"and {len(WITHOUT_EFFECT)} without effect" in page
