"""Requests as agents send them: Claude Code, Codex and opencode, with texts of our own."""

import json

import pytest

DRAFT = "https://json-schema.org/draft/2020-12/schema"
READ = {
    "$schema": DRAFT,
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where the file is"},
        "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
    },
    "required": ["path"],
    "additionalProperties": False,
}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
STEADY = {"type": "ephemeral"}


def claude_code(turn, *messages):
    """The request of a turn: its first line of the system prompt is another each time."""
    return {
        "model": "fake",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "text",
                        "text": "<system-reminder>\nIt is Monday.\n</system-reminder>",
                    },
                    {"type": "text", "text": "Look at it", "cache_control": STEADY},
                ],
            },
            {"role": "system", "content": "There are these agents: Explore."},
            *messages,
        ],
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={turn};"},
            {"type": "text", "text": "You are an agent.", "cache_control": STEADY},
            {"type": "text", "text": "\nYou help.", "cache_control": STEADY},
        ],
        "tools": [{"name": "Read", "description": "Reads a file.", "input_schema": READ}],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


CALLED = (
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/a.png"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "a.png"},
                    {"type": "image", "source": PICTURE},
                ],
            },
            {"type": "text", "text": "Well?", "cache_control": STEADY},
        ],
    },
)


async def test_claude_code_is_answered_and_its_turns_begin_alike(world):
    for turn, more in enumerate(((), CALLED)):
        answer = await world.client.post(
            "/v1/messages?beta=true",
            json=claude_code(turn, *more),
            headers={"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219"},
        )
        assert answer.status_code == 200
        assert "event: message_stop" in answer.text
    first, second = world.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert first.messages[0].content == "You are an agent.\n\n\nYou help."
    assert json.loads(first.template_arguments) == {
        "enable_thinking": True,
        "reasoning_effort": "high",
    }
    assert first.grammar.kind == "tools"
    assert not world.notices


async def test_a_picture_in_a_result_reaches_the_engine(world):
    await world.client.post("/v1/messages", json=claude_code(1, *CALLED))
    result = world.requests[0].messages[-2]
    assert (result.role, result.content) == ("tool", "a.png\n")
    (picture,) = result.pictures
    assert (picture.data, picture.at) == (bytes(3), len("a.png\n"))


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        {"type": "base64", "media_type": "image/png", "data": "?"},
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "file", "file_id": "f"},
        "nothing",
    ],
)
async def test_what_is_no_picture_in_a_result_is_told_of_and_ends_no_conversation(world, source):
    content = [{"type": "text", "text": "a"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "c", "content": content}
    asked = claude_code(1, {"role": "user", "content": [result]})
    answer = await world.client.post("/v1/messages", json=asked)
    assert answer.status_code == 200
    said = [m for m in world.requests[0].messages if m.role == "tool"]
    assert said[0].content == "a\n[something other than text, which this model cannot read]"
    assert not said[0].pictures


async def test_a_picture_of_the_users_reaches_the_engine_which_knows_whether_its_model_sees(world):
    asked = claude_code(1)
    asked["messages"][0]["content"].append({"type": "image", "source": PICTURE})
    answer = await world.client.post("/v1/messages", json=asked)
    assert answer.status_code == 200
    assert [len(message.pictures) for message in world.requests[0].messages].count(1) == 1


async def test_the_probe_before_the_first_request_does_no_harm(world):
    assert (await world.client.head("/")).status_code == 200


def codex(*items):
    """The request of a turn."""
    return {
        "model": "fake",
        "stream": True,
        "input": [
            {"type": "message", "id": "m1", "role": "developer", "content": parts("You code.")},
            {
                "type": "message",
                "id": "m2",
                "role": "developer",
                "content": parts("A", "B"),
            },
            {"type": "message", "id": "m3", "role": "user", "content": parts("<cwd>/a</cwd>")},
            {"type": "message", "id": "m4", "role": "user", "content": parts("Look at it")},
            *items,
        ],
        "tools": [
            {"type": "function", "name": "look", "strict": False, "parameters": READ},
            {
                "type": "namespace",
                "name": "agents",
                "tools": [{"type": "function", "name": "spawn"}],
            },
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"turn_id": "t"},
    }


def parts(*texts):
    return [{"type": "input_text", "text": text} for text in texts]


async def test_codex_is_answered_and_its_turns_begin_alike(world):
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    more = (
        call | {"arguments": '{"path": "/a"}', "status": "completed"},
        {
            "type": "function_call_output",
            "id": "fco_1",
            "call_id": "c1",
            "output": [*parts("It is"), picture],
        },
    )
    for items in ((), more):
        answer = await world.client.post("/v1/responses", json=codex(*items))
        assert answer.status_code == 200
        assert "event: response.completed" in answer.text
    first, second = world.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1].content == "It is\n"
    assert len(second.messages[-1].pictures) == 1
    assert [tool["function"]["name"] for tool in json.loads(first.tools)] == ["look"]
    (notice,) = world.notices
    assert sorted(notice.split("'")[1::2]) == ["tools: namespace", "tools: web_search"]


@pytest.mark.parametrize("content", [[], [{"type": "image_url", "image_url": {"url": "data:x"}}]])
async def test_a_result_without_text_is_a_result_in_a_chat_too(world, content):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    asked = {
        "model": "fake",
        "messages": said,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": READ}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 512,
    }
    answer = await world.client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200
    assert world.requests[0].messages[-1].role == "tool"
