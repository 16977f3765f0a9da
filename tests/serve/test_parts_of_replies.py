"""Thinking, answers and calls of tools in the shapes of three APIs, as their SDKs read them."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from localspec.core.errors import ContextError, DecodeError, EngineError, QueueFullError
from localspec.core.events import ReplyFormat

HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
FORM = ReplyFormat(("<think>", "</think>"), tools="hermes")
WHOLE = (
    *("<th", "ink>", "Hm", ".\n", "</think>\n\n", "Let me", " see.", "\n<tool", "_call>\n"),
    *('{"name": "look",', ' "arguments": {"at"', ': "é"}}', "\n</tool_call>\n<tool_call>\n"),
    *('{"name": "look", "arguments": {}}', "\n</tool_call>"),
)
CUT = WHOLE[:11]


@pytest.fixture
def chat(world):
    client = openai.AsyncOpenAI(
        base_url="http://127.0.0.1:8080/v1",
        api_key="x",
        max_retries=0,
        http_client=world.client,
        _strict_response_validation=True,
    )
    world.words, world.form = WHOLE, FORM
    return client


@pytest.fixture
def claude(world):
    client = anthropic.AsyncAnthropic(
        base_url="http://127.0.0.1:8080",
        api_key="x",
        max_retries=0,
        http_client=world.client,
        _strict_response_validation=True,
    )
    world.words, world.form = WHOLE, FORM
    return client


def chat_fields(**fields):
    tool = {"name": "look", "description": "", "parameters": SCHEMA}
    tools = [{"type": "function", "function": tool}]
    return {"model": "fake", "messages": HELLO, "tools": tools, **fields}


def response_fields(**fields):
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    return {"model": "fake", "input": "Hello", "tools": tools, **fields}


def message_fields(**fields):
    tools = [{"name": "look", "input_schema": SCHEMA}]
    return {"model": "fake", "max_tokens": 99, "messages": HELLO, "tools": tools, **fields}


async def test_a_chat_divides_its_reply(chat, world):
    whole = await chat.chat.completions.create(**chat_fields())
    message = whole.choices[0].message
    assert message.reasoning_content == "Hm."
    assert message.content == "Let me see."
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"at": "é"}, {}]
    assert len({call.id for call in message.tool_calls}) == 2
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage.completion_tokens_details.reasoning_tokens > 0
    (request,) = world.requests
    assert json.loads(request.tools)[0]["function"]["name"] == "look"
    assert request.grammar.kind == "tools"
    async with chat.chat.completions.stream(**chat_fields()) as stream:
        thought = ""
        async for event in stream:
            if event.type == "chunk" and event.chunk.choices:
                thought += getattr(event.chunk.choices[0].delta, "reasoning_content", None) or ""
        final = (await stream.get_final_completion()).choices[0].message
    assert thought == "Hm."
    assert final.content == "Let me see."
    assert [call.function.arguments for call in final.tool_calls] == [
        call.function.arguments for call in message.tool_calls
    ]


async def test_a_chat_that_is_cut_in_a_call_has_called_nothing(chat, world):
    world.words = (*CUT, "never")
    whole = await chat.chat.completions.create(**chat_fields(max_tokens=len(CUT)))
    assert whole.choices[0].finish_reason == "length"
    assert whole.choices[0].message.tool_calls[0].function.arguments == '{"at"'


async def test_a_call_that_a_stop_text_cuts_is_not_made(chat, world):
    world.words = CUT
    whole = await chat.chat.completions.create(**chat_fields())
    assert whole.choices[0].finish_reason == "stop"
    assert not whole.choices[0].message.tool_calls
    reasons = []
    async for chunk in await chat.chat.completions.create(**chat_fields(), stream=True):
        reasons += [choice.finish_reason for choice in chunk.choices]
    assert reasons[-1] == "stop"


async def test_thinking_stays_in_the_answer_on_request(chat):
    body = {"reasoning_format": "none"}
    whole = await chat.chat.completions.create(**chat_fields(extra_body=body))
    assert whole.choices[0].message.content == "<think>Hm.\n</think>\n\nLet me see."


async def test_earlier_thinking_calls_and_results_come_back(chat, world):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    said = [
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a bird"}]},
    ]
    await chat.chat.completions.create(**chat_fields(messages=[*HELLO, *said]))
    _, assistant, tool = world.requests[0].messages
    assert (assistant.content, assistant.reasoning) == ("", "Hm.")
    assert assistant.calls[0].arguments == "{}"
    assert (tool.content, tool.call_id, tool.name) == ("a bird", "c1", "look")


NO_OBJECTS = ('{"at": "é', "[1]", "null", "oops", '{"at": ' * 200)
"""Arguments that are no object, as those of a call that a limit has cut."""
GIVEN_AS_TEXT = "given to the model as a text, for they are no JSON object: arguments of look"


def told_as_text(world, arguments):
    """Whether the last request has a call with these arguments as a text, and then its result."""
    *_, assistant, result = world.requests[-1].messages
    told = [(call.name, json.loads(call.arguments)) for call in assistant.calls]
    return told == [("look", {"arguments": arguments})] and result.call_id == "c1"


@pytest.mark.parametrize("arguments", NO_OBJECTS)
async def test_a_chat_goes_on_after_a_call_whose_arguments_are_no_object(chat, world, arguments):
    function = {"name": "look", "arguments": arguments}
    said = [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Error"},
    ]
    asked = chat_fields(messages=[*HELLO, *said], extra_body={"nonsense": 1})
    whole = await chat.chat.completions.create(**asked)
    unknown, notice = whole.choices[0].localspec["notices"]
    assert "nonsense" in unknown
    assert notice == GIVEN_AS_TEXT
    assert told_as_text(world, arguments)
    chunks = [c async for c in await chat.chat.completions.create(**asked, stream=True)]
    assert any(GIVEN_AS_TEXT in str(chunk) for chunk in chunks)
    older = [
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "look", "tool_call_id": "c1", "content": "Error"},
    ]
    await chat.chat.completions.create(**chat_fields(messages=[*HELLO, *older]))
    assert told_as_text(world, arguments)


@pytest.mark.parametrize("arguments", NO_OBJECTS)
async def test_a_response_goes_on_after_a_call_whose_arguments_are_no_object(
    chat, world, arguments
):
    items = [
        {"role": "user", "content": "Hello"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": arguments,
         "status": "incomplete"},
        {"type": "function_call_output", "call_id": "c1", "output": "Error"},
    ]  # fmt: skip
    whole = await chat.responses.create(**response_fields(input=items))
    assert whole.localspec["notices"] == [GIVEN_AS_TEXT]
    assert told_as_text(world, arguments)


@pytest.mark.parametrize("arguments", NO_OBJECTS)
async def test_a_message_goes_on_after_a_call_whose_arguments_are_no_object(
    claude, world, arguments
):
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Error"}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    whole = await claude.messages.create(**message_fields(messages=[*HELLO, *said]))
    assert whole.localspec["notices"] == [GIVEN_AS_TEXT]
    assert told_as_text(world, arguments)
    counted = {"model": "fake", "messages": [*HELLO, *said]}
    assert (await claude.messages.count_tokens(**counted)).input_tokens


async def test_what_the_server_answered_when_it_cut_a_call_may_be_sent_back(chat, world):
    world.words = (*CUT, "never")
    whole = await chat.chat.completions.create(**chat_fields(max_tokens=len(CUT)))
    message = whole.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Error"}
    said = [*HELLO, message.model_dump(exclude_none=True), result]
    whole = await chat.chat.completions.create(**chat_fields(messages=said))
    assert whole.choices[0].localspec["notices"] == [GIVEN_AS_TEXT]
    whole = await chat.responses.create(**response_fields(max_output_tokens=len(CUT)))
    assert whole.status == whole.output[-1].status == "incomplete"
    output = {"type": "function_call_output", "call_id": whole.output[-1].call_id, "output": "a"}
    back = [item.model_dump(exclude_none=True) for item in whole.output]
    asked = response_fields(input=[{"role": "user", "content": "Hello"}, *back, output])
    assert (await chat.responses.create(**asked)).localspec["notices"] == [GIVEN_AS_TEXT]


async def test_of_very_many_calls_whose_arguments_are_no_object_some_are_named(chat):
    calls = [{"id": f"c{n}", "function": {"name": f"f{n}", "arguments": "["}} for n in range(20)]
    said = [{"role": "assistant", "tool_calls": [*calls, *calls]}]
    said += [{"role": "tool", "tool_call_id": one["id"], "content": "a"} for one in calls]
    whole = await chat.chat.completions.create(**chat_fields(messages=[*HELLO, *said]))
    (notice,) = whole.choices[0].localspec["notices"]
    assert notice.endswith("f14, f15 and 4 more")


async def test_a_response_divides_its_reply_into_items(chat, world):
    whole = await chat.responses.create(**response_fields())
    reasoning, message, first, second = whole.output
    assert reasoning.content[0].text == "Hm."
    assert message.content[0].text == "Let me see."
    assert (json.loads(first.arguments), json.loads(second.arguments)) == ({"at": "é"}, {})
    assert [item.status for item in whole.output] == ["completed"] * 4
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    events = [
        event async for event in await chat.responses.create(**response_fields(), stream=True)
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.type for item in done] == ["reasoning", "message", *["function_call"] * 2]
    for item in done:
        own = [e for e in events if getattr(e, "item_id", None) == item.id]
        deltas = "".join(e.delta for e in own if e.type.endswith(".delta"))
        text = item.arguments if item.type == "function_call" else item.content[0].text
        assert deltas == text
    assert events[-1].type == "response.completed"
    assert [item.type for item in events[-1].response.output] == [item.type for item in done]


async def test_items_of_one_turn_are_one_message(chat, world):
    items = [
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a bird"},
        {"type": "function_call_output", "call_id": "c2", "output": "a cat"},
    ]
    await chat.responses.create(**response_fields(input=items, instructions="Be brief."))
    system, user, assistant, *results = world.requests[0].messages
    assert (system.role, user.role) == ("system", "user")
    assert (assistant.reasoning, assistant.content) == ("Hm.", "Let me see.")
    assert [call.id for call in assistant.calls] == ["c1", "c2"]
    assert [(m.role, m.content, m.name) for m in results] == [
        ("tool", "a bird", "look"),
        ("tool", "a cat", "look"),
    ]


async def test_a_response_that_is_cut_is_incomplete(chat, world):
    world.words = (*CUT, "never")
    cut = response_fields(max_output_tokens=len(CUT))
    whole = await chat.responses.create(**cut)
    assert whole.status == "incomplete"
    assert [item.status for item in whole.output] == ["completed", "completed", "incomplete"]
    events = [event async for event in await chat.responses.create(**cut, stream=True)]
    assert events[-1].type == "response.incomplete"


async def test_a_response_leaves_out_a_call_that_a_stop_text_cuts(chat, world):
    world.words = CUT
    whole = await chat.responses.create(**response_fields())
    assert whole.status == "completed"
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    events = [
        event async for event in await chat.responses.create(**response_fields(), stream=True)
    ]
    last = events[-1].response.output[-1]  # it was told of before the stop text came
    assert (last.type, last.status) == ("function_call", "incomplete")


async def test_a_response_that_fails_says_so_in_its_stream(chat, world):
    world.error, world.error_at = DecodeError("no"), 3
    stream = await chat.responses.create(**response_fields(), stream=True)
    events = [event async for event in stream]
    assert events[0].type == "response.created"
    assert events[-1].type == "response.failed"
    assert world.service.metrics.failed == 1
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error"


async def test_a_message_divides_its_reply_into_blocks(claude):
    whole = await claude.messages.create(**message_fields())
    thinking, text, first, second = whole.content
    assert (thinking.thinking, text.text) == ("Hm.", "Let me see.")
    assert (first.input, second.input) == ({"at": "é"}, {})
    assert whole.stop_reason == "tool_use"
    async with claude.messages.stream(**message_fields()) as stream:
        final = await stream.get_final_message()
    assert final.content[0].thinking == "Hm."
    assert final.content[1].text == "Let me see."
    assert [use.input for use in final.content[2:]] == [{"at": "é"}, {}]
    assert final.stop_reason == "tool_use"


async def test_a_message_that_is_cut_in_a_call_leaves_it_out(claude, world):
    world.words = (*CUT, "never")
    whole = await claude.messages.create(**message_fields(max_tokens=len(CUT)))
    assert whole.stop_reason == "max_tokens"
    assert [block.type for block in whole.content] == ["thinking", "text"]


async def test_a_message_thinks_only_where_it_is_asked_to(claude, world):
    await claude.messages.create(**message_fields())
    await claude.messages.create(**message_fields(thinking={"type": "adaptive"}))
    await claude.messages.create(
        **message_fields(thinking={"type": "enabled", "budget_tokens": 1024})
    )
    switches = [json.loads(request.template_arguments) for request in world.requests]
    assert [one["enable_thinking"] for one in switches] == [False, True, True]


async def test_results_and_texts_of_one_turn_keep_their_order(claude, world):
    said = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "a bird"},
                {"type": "text", "text": "Well?"},
            ],
        },
        {"role": "user", "content": "Say!"},
    ]
    await claude.messages.create(**message_fields(messages=[*HELLO, *said]))
    _, assistant, result, user = world.requests[0].messages
    assert (assistant.reasoning, assistant.content) == ("Hm.", "Let me see.")
    assert json.loads(assistant.calls[0].arguments) == {"at": "é"}
    assert (result.content, result.call_id, result.name) == ("a bird", "t1", "look")
    assert user.content == "Well?\nSay!"


async def test_turns_of_the_user_that_follow_each_other_are_one_with_all_its_pictures(
    claude, world
):
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": source},
        {"type": "text", "text": "What is it?"},
    ]
    whole = [{"role": "user", "content": blocks}]
    apart = [{"role": "user", "content": [block]} for block in blocks]
    for messages in (whole, apart):
        await claude.messages.create(**message_fields(messages=messages))
    assert world.requests[0].messages == world.requests[1].messages
    assert [picture.at for picture in world.requests[1].messages[0].pictures] == [6]


async def test_tools_that_others_run_are_left_out_and_told_of(claude, world):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = await claude.messages.create(**message_fields(tools=tools))
    assert world.requests[0].tools is None
    assert any("web_search_20250305" in notice for notice in world.notices)
    assert answer.localspec["notices"] == ["without effect here: tools: web_search_20250305"]


@pytest.mark.parametrize(
    ("path", "field"), [("/v1/chat/completions", "messages"), ("/v1/responses", "input")]
)
async def test_tools_of_free_text_are_refused_by_name(world, path, field):
    tools = [{"type": "custom", "name": "patch", "custom": {"name": "patch"}}]
    body = {field: [{"role": "user", "content": "Hi"}], "tools": tools}
    answer = await world.client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools[0].type"
    assert world.requests == []


@pytest.mark.parametrize(
    ("path", "asked", "field"),
    [
        (
            "/v1/responses",
            {"input": "Hi", "text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "text.format",
        ),
        (
            "/v1/messages",
            {
                "max_tokens": 9,
                "messages": HELLO,
                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            },
            "output_config.format",
        ),
    ],
)
async def test_a_second_grammar_is_refused_wherever_it_stands(world, path, asked, field):
    answer = await world.client.post(path, json=asked | {"guided_choice": ["yes", "no"]})
    assert answer.status_code == 400
    said = f"{field} and guided_choice exclude each other: a reply follows one grammar"
    assert answer.json()["error"]["message"] == said
    assert not world.requests
    for one in (asked, {**asked, "grammar": " "}):  # a blank grammar is none
        assert (await world.client.post(path, json=one)).status_code == 200
        assert world.requests.pop().grammar.kind == "schema"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ContextError("the messages do not fit"), 400, "invalid_request_error"),
        (QueueFullError("full"), 429, "rate_limit_error"),
        (EngineError("/home/me/engine.log"), 503, "overloaded_error"),
    ],
)
async def test_failures_have_anthropics_shape(claude, world, error, status, kind):
    world.error = error
    for stream in (False, True):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await claude.messages.create(**message_fields(stream=stream))
        assert caught.value.status_code == status
        assert caught.value.type == kind
        assert "/home" not in str(caught.value)


async def test_a_stream_of_messages_that_fails_ends_with_an_error(claude, world):
    world.error, world.error_at = DecodeError("no"), 3
    stream = await claude.messages.create(**message_fields(stream=True))
    with pytest.raises(anthropic.APIStatusError, match="could not decode"):
        [event async for event in stream]


CALLED = [{"function": {"name": name, "arguments": {}}} for name in ("look", "hear")]
TURN = [{"role": "assistant", "content": "", "tool_calls": CALLED}]
RESULTS = [{"role": "tool", "content": "a bird"}, {"role": "tool", "content": "a song"}]
OLDER = [
    part
    for name in ("look", "hear")
    for part in (
        {"role": "assistant", "content": None, "function_call": {"name": name}},
        {"role": "tool", "content": name},
    )
]
ITEMS = [
    *({"type": "function_call", "name": name, "arguments": "{}"} for name in ("look", "hear")),
    *({"type": "function_call_output", "output": said} for said in ("a bird", "a song")),
]


@pytest.mark.parametrize(
    ("path", "field", "turns"),
    [
        ("/api/chat", "messages", TURN + RESULTS),
        ("/v1/chat/completions", "messages", TURN + RESULTS),
        ("/v1/chat/completions", "messages", OLDER),
        ("/v1/responses", "input", ITEMS),
    ],
)
async def test_results_of_calls_without_ids_have_the_names_in_their_order(
    world, path, field, turns
):
    user = {"role": "user", "content": "Hi"}
    system = {"role": "system", "content": "Be brief."}
    answer = await world.client.post(path, json={field: [system, user, *turns, user]})
    assert answer.status_code == 200, answer.text
    messages = world.requests[0].messages
    assert [m.name for m in messages if m.role == "tool"] == ["look", "hear"]
    assert not any(m.name for m in messages if m.role != "tool")


async def test_an_id_that_comes_again_names_the_tool_of_its_own_turn(world):
    def turn(name):
        call = {"id": "0", "function": {"name": name, "arguments": "{}"}}
        return [{"role": "assistant", "tool_calls": [call]}, RESULTS[0] | {"tool_call_id": "0"}]

    said = [{"role": "user", "content": "Hi"}, *turn("look"), *turn("hear")]
    await world.client.post("/v1/chat/completions", json={"messages": said})
    assert [m.name for m in world.requests[0].messages if m.role == "tool"] == ["look", "hear"]
