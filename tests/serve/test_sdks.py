"""The SDKs of OpenAI and Anthropic, which validate every answer, against a real server."""

from __future__ import annotations

import json

import anthropic
import httpx2
import openai
import pytest
from served import Served, served

HELLO = [{"role": "user", "content": "Hello"}]
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
}
TOOL = {"name": "weather", "description": "The weather.", "parameters": PLACE}
COLD = {"temperature": 0}
AGE = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
        with served() as found:
            yield found
    assert found.notes.defects == []


@pytest.fixture
def api(server: Served):
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="x", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
def claude(server: Served):
    with anthropic.Anthropic(
        base_url=server.url, api_key="x", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


# -- OpenAI: chat ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_are_listed(api):
    (model, *_) = api.models.list().data
    assert model.id == "demo"
    assert api.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        api.models.retrieve("nothing")


def test_a_chat_is_answered_and_streamed_alike(api):
    asked = {"model": "demo", "messages": HELLO, "temperature": 0, "max_completion_tokens": 20}
    whole = api.chat.completions.create(**asked)
    said = whole.choices[0].message.content
    assert said.startswith("Hello! I am the demo")
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 20
    streamed, usage = "", None
    for chunk in api.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ):
        streamed += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = chunk.usage or usage
    assert streamed == said
    assert usage.completion_tokens == 20
    assert usage.total_tokens == usage.prompt_tokens + 20


def test_tools_and_a_format_of_the_answer_go_together(api):
    whole = api.chat.completions.create(
        model="demo",
        messages=HELLO,
        tools=[{"type": "function", "function": TOOL}],
        response_format={"type": "json_schema", "json_schema": {"name": "age", "schema": AGE}},
        temperature=0,
        max_completion_tokens=60,
    )
    message = whole.choices[0].message
    if message.tool_calls:
        said = json.loads(message.tool_calls[0].function.arguments)
        assert said["unit"] in {"c", "f"}
    else:
        assert 1 <= json.loads(message.content)["age"] <= 99


def test_every_field_of_a_chat_is_taken(api):
    whole = api.chat.completions.create(
        model="demo",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}], "name": "eva"},
        ],
        frequency_penalty=0.1,
        logit_bias={"17": -100},
        logprobs=True,
        top_logprobs=3,
        max_tokens=6,
        metadata={"a": "b"},
        modalities=["text"],
        n=2,
        parallel_tool_calls=False,
        prediction={"type": "content", "content": "Hello! I am"},
        presence_penalty=0.1,
        prompt_cache_key="k",
        reasoning_effort="low",
        response_format={"type": "text"},
        safety_identifier="s",
        seed=7,
        service_tier="auto",
        stop=["zzz"],
        store=False,
        temperature=0.7,
        tool_choice="none",
        tools=[{"type": "function", "function": TOOL}],
        top_p=0.9,
        user="u",
        verbosity="low",
        extra_body={
            "min_p": 0.05,
            "top_k": 40,
            "repeat_penalty": 1.1,
            "chat_template_kwargs": {"mood": "calm"},
            "return_token_ids": True,
            "localspec": {"verifier": "match", "drafter": "off", "origins": True},
        },
    )
    assert [choice.index for choice in whole.choices] == [0, 1]
    for choice in whole.choices:
        scored = choice.logprobs.content
        assert len(scored) == len(choice.token_ids) == 6
        assert all(len(place.top_logprobs) == 3 and place.logprob <= 0 for place in scored)
        assert "".join(place.token for place in scored) == choice.message.content
    assert whole.choices[0].localspec["seed"] == 7


def test_structured_output_fits_its_schema(api):
    whole = api.chat.completions.create(
        model="demo",
        messages=HELLO,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "age", "schema": AGE, "strict": True},
        },
    )
    assert 1 <= json.loads(whole.choices[0].message.content)["age"] <= 99


def test_calls_of_tools_are_whole_and_streamed(api):
    tools = [{"type": "function", "function": TOOL}]
    asked = {"model": "demo", "messages": HELLO, "tools": tools, "seed": 3, "max_tokens": 120}
    choice = {"type": "function", "function": {"name": "weather"}}
    whole = api.chat.completions.create(**asked, tool_choice=choice, parallel_tool_calls=False)
    (call,) = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.choices[0].message.content is None
    arguments = json.loads(call.function.arguments)
    assert set(arguments) == {"city", "unit"}
    with api.chat.completions.stream(
        **asked, tool_choice="required", parallel_tool_calls=False
    ) as stream:
        final = stream.get_final_completion()
    (streamed,) = final.choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments
    again = api.chat.completions.create(
        model="demo",
        max_tokens=8,
        messages=[
            *HELLO,
            whole.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ],
        tools=tools,
        tool_choice="auto",
    )
    assert again.usage.prompt_tokens > whole.usage.prompt_tokens


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "king", "content": "Hi"}]}, "role must be one of"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "image_url.url is missing",
        ),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "needs a name"),
        ({"tools": [{"type": "function", "function": TOOL}] * 2}, "two tools named 'weather'"),
        (
            {
                "tools": [{"type": "function", "function": TOOL}],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            "no tool 'other'",
        ),
        (
            {
                "tools": [{"type": "function", "function": TOOL}],
                "extra_body": {"guided_regex": "a+"},
            },
            "exclude each other",
        ),
        ({"messages": [{"role": "user", "content": "Hello " * 2000}]}, "do not fit"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_in_a_sentence(api, wrong, said):
    with pytest.raises(openai.BadRequestError, match=said) as caught:
        api.chat.completions.create(**{"model": "demo", "messages": HELLO, **wrong})
    assert caught.value.type == "invalid_request_error"


def test_texts_are_completed_with_logprobs_and_echo(api):
    asked = {"model": "demo", "prompt": "Hello", "max_tokens": 5, "temperature": 0}
    whole = api.completions.create(**asked, logprobs=2, n=1, best_of=1, seed=1)
    said = whole.choices[0]
    assert "".join(said.logprobs.tokens) == said.text
    assert all(len(place) >= 2 for place in said.logprobs.top_logprobs)
    # OpenAI has null for the reason of all chunks but the last, and for the logprob of a prompt's
    # first token; the types of its SDK do not.
    with openai.OpenAI(base_url=api.base_url, api_key="x") as lenient:
        streamed = lenient.completions.create(**asked, stream=True)
        assert "".join(chunk.choices[0].text for chunk in streamed) == said.text
        echoed = lenient.completions.create(**asked, logprobs=2, echo=True).choices[0]
    assert echoed.text == "Hello" + said.text
    assert echoed.logprobs.token_logprobs[0] is None
    assert len(echoed.logprobs.tokens) == whole.usage.total_tokens


# -- OpenAI: responses -----------------------------------------------------------------------------


def test_every_field_of_a_response_is_taken(api):
    whole = api.responses.create(
        model="demo",
        instructions="Be brief.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "?"}]},
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi!", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "message", "role": "user", "content": "Hello"},
        ],
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=2,
        max_output_tokens=5,
        metadata={"a": "b"},
        parallel_tool_calls=False,
        prompt_cache_key="k",
        reasoning={"effort": "low"},
        safety_identifier="s",
        service_tier="auto",
        store=False,
        temperature=0.5,
        text={"format": {"type": "text"}, "verbosity": "low"},
        tool_choice="auto",
        tools=[{"type": "function", "strict": False, **TOOL}, {"type": "web_search"}],
        top_p=0.9,
        truncation="disabled",
        user="u",
        extra_body={"top_k": 40, "seed": 1},
    )
    assert whole.status == "incomplete"
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage.output_tokens == 5
    assert whole.instructions == "Be brief."
    assert whole.metadata == {"a": "b"}
    assert [tool.name for tool in whole.tools] == ["weather"]
    assert whole.store is False
    (item,) = whole.output
    assert "".join(place.token for place in item.content[0].logprobs) == item.content[0].text


@pytest.mark.slow
def test_a_response_streams_its_events_in_their_order(api):
    asked = {"model": "demo", "input": "Hello", "temperature": 0, "max_output_tokens": 90}
    whole = api.responses.create(**asked)
    assert whole.status == "completed"
    events = list(api.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text == whole.output_text
    with api.responses.stream(**asked) as stream:
        assert stream.get_final_response().output_text == said


def test_a_response_calls_tools(api):
    tools = [{"type": "function", "strict": True, **TOOL}]
    asked = {"model": "demo", "input": "Hello", "tools": tools, "parallel_tool_calls": False}
    choice = {"type": "function", "name": "weather"}
    whole = api.responses.create(**asked, tool_choice=choice, max_output_tokens=120)
    (call,) = whole.output
    assert call.type == "function_call"
    assert set(json.loads(call.arguments)) == {"city", "unit"}
    events = list(api.responses.create(**asked, tool_choice="required", stream=True))
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "".join(deltas) == done.arguments
    assert events[-1].response.output[0].arguments == done.arguments


def test_a_response_of_a_schema(api):
    text = {"format": {"type": "json_schema", "name": "age", "schema": AGE, "strict": True}}
    whole = api.responses.create(model="demo", input="Hello", text=text)
    assert 1 <= json.loads(whole.output_text)["age"] <= 99


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"previous_response_id": "resp_1"}, "nothing is stored here"),
        ({"background": True}, "nothing is stored here"),
        ({"input": []}, "at least one item"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "not an item that this server reads"),
        (
            {"input": [{"type": "item_reference", "id": "x"}], "previous_response_id": "resp_1"},
            "nothing is stored here",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "image_url is missing",
        ),
        ({"tool_choice": "required"}, "there are no tools"),
        (
            {"tool_choice": {"type": "web_search"}},
            "tool_choice.type must be one of allowed_tools, function",
        ),
    ],
)
def test_a_response_that_cannot_be_given_is_refused(api, wrong, said):
    with pytest.raises(openai.BadRequestError, match=said):
        api.responses.create(**{"model": "demo", "input": "Hello", **wrong})


# -- Anthropic -------------------------------------------------------------------------------------


def test_every_field_of_a_message_is_taken(claude):
    whole = claude.messages.create(
        model="demo",
        max_tokens=6,
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hi!"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "A text."},
                    },
                ],
            },
        ],
        metadata={"user_id": "u"},
        service_tier="auto",
        stop_sequences=["zzz"],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        thinking={"type": "disabled"},
        tool_choice={"type": "none"},
        tools=[{"name": "weather", "input_schema": PLACE}],
        extra_body={
            "seed": 1,
            "temperature": 0.5,  # of earlier versions of the API
            "top_k": 40,
            "top_p": 0.9,
            "localspec": {"drafter": "off"},
        },
    )
    assert whole.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == 6
    assert whole.content[0].type == "text"
    assert whole.localspec["seed"] == 1


def test_a_message_is_streamed_in_blocks(claude):
    asked = {"model": "demo", "max_tokens": 60, "messages": HELLO, "extra_body": COLD}
    whole = claude.messages.create(**asked)
    assert whole.stop_reason == "end_turn"
    events = list(claude.messages.create(**asked, stream=True))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, end = events[0].message.usage, events[-2].usage
    assert start.input_tokens + start.cache_read_input_tokens == (
        end.input_tokens + end.cache_read_input_tokens
    )
    with claude.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_stop_sequence_is_named(claude):
    asked = {"model": "demo", "max_tokens": 60, "messages": HELLO, "extra_body": COLD}
    whole = claude.messages.create(**asked, stop_sequences=["localspec", "zzz"])
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", "localspec")
    assert whole.content[0].text.endswith("demo model of ")


def test_a_message_uses_tools_and_reads_their_results(claude):
    tools = [{"name": "weather", "description": "The weather.", "input_schema": PLACE}]
    choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    asked = {"model": "demo", "max_tokens": 120, "messages": HELLO, "tools": tools}
    with claude.messages.stream(**asked, tool_choice=choice, extra_body={"seed": 3}) as stream:
        whole = stream.get_final_message()
    assert whole.stop_reason == "tool_use"
    (use,) = whole.content
    assert set(use.input) == {"city", "unit"}
    plain = claude.messages.create(**asked, tool_choice=choice, extra_body={"seed": 3})
    assert plain.content[0].input == use.input
    again = claude.messages.create(
        model="demo",
        max_tokens=8,
        tools=tools,
        messages=[
            *HELLO,
            {"role": "assistant", "content": [use.model_dump(exclude_none=True)]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": use.id,
                        "is_error": True,
                        "content": [{"type": "text", "text": "no signal"}],
                    },
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    )
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens > (
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    )


def test_tokens_are_counted_as_they_are_read(claude):
    asked = {
        "model": "demo",
        "messages": HELLO,
        "system": "Be brief.",
        "tools": [{"name": "weather", "input_schema": PLACE}],
    }
    counted = claude.messages.count_tokens(**asked).input_tokens
    usage = claude.messages.create(**asked, max_tokens=1).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_the_prompt_of_a_conversation_with_tools_is_shown(server):
    body = {"messages": HELLO, "tools": [{"type": "function", "function": TOOL}]}
    prompt = httpx2.post(f"{server.url}/apply-template", json=body).json()["prompt"]
    assert '"name": "weather"' in prompt
    assert "<tool_call>" in prompt
    count = httpx2.post(f"{server.url}/tokenize", json=body).json()["count"]
    asked = body | {"model": "demo", "max_tokens": 1}
    used = httpx2.post(f"{server.url}/v1/chat/completions", json=asked).json()["usage"]
    assert used["prompt_tokens"] == count


def test_a_header_that_changes_leaves_the_prompt_as_it_was(claude):
    """Claude Code puts one in front of its system prompt, another with every request."""

    def ask(number: int):
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc=1; cch={number};"},
            {"type": "text", "text": f"You are a careful assistant. {'Read it all. ' * 10}"},
        ]
        return claude.messages.create(model="demo", max_tokens=1, system=system, messages=HELLO)

    first = ask(1).usage
    second = ask(2).usage
    assert second.input_tokens == 1  # the last token of a prompt is always read
    assert second.cache_read_input_tokens > 30
    as_text = claude.messages.create(
        model="demo",
        max_tokens=1,
        messages=HELLO,
        system=f"x-anthropic-billing-header: cch=3;\nYou are a careful assistant. "
        f"{'Read it all. ' * 10}",
    ).usage
    assert as_text.cache_read_input_tokens == second.cache_read_input_tokens
    assert first.input_tokens + first.cache_read_input_tokens == (
        second.input_tokens + second.cache_read_input_tokens
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "king", "content": "Hi"}]}, "role must be one of"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "source.type is missing",
        ),
        ({"tool_choice": {"type": "any"}}, "there are no tools"),
        ({"tools": [{"name": "weather", "input_schema": {"type": "string"}}]}, "not a JSON schema"),
    ],
)
def test_errors_of_messages_have_anthropics_shape(claude, wrong, said):
    with pytest.raises(anthropic.BadRequestError, match=said) as caught:
        claude.messages.create(**{"model": "demo", "max_tokens": 5, "messages": HELLO, **wrong})
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.create(model="claude-x", max_tokens=5, messages=HELLO)
    assert missing.value.type == "not_found_error"


def test_a_message_of_the_assistant_at_the_end_is_continued(claude, api):
    begun = [*HELLO, {"role": "assistant", "content": "Hello! I am the"}]
    whole = claude.messages.create(model="demo", max_tokens=3, messages=begun, extra_body=COLD)
    assert whole.content[0].text.startswith(" demo")
    chat = api.chat.completions.create(model="demo", max_tokens=3, messages=begun, temperature=0)
    assert chat.choices[0].message.content == whole.content[0].text
    tools = [{"type": "function", "function": TOOL}]
    with pytest.raises(openai.BadRequestError, match="cannot be continued under one"):
        api.chat.completions.create(model="demo", messages=begun, tools=tools)
