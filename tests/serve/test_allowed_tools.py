"""OpenAI's allowed_tools: the model is told of all tools, and may call some of them."""

import json

import pytest

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
NAMES = ("weather", "mail", "clock")


def body(path, **choice):
    tools = [{"type": "function", "function": {"name": name}} for name in NAMES]
    if path == CHAT:
        hello = [{"role": "user", "content": "Hi"}]
        return {"messages": hello, "max_tokens": 6, "tools": tools, **choice}
    return {"input": "Hi", "tools": [{"type": "function", "name": n} for n in NAMES], **choice}


def allowing(path, mode, *names):
    if path == CHAT:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        inside = {"mode": mode, "tools": tools}
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": inside}}
    tools = [{"type": "function", "name": name} for name in names]
    return {"tool_choice": {"type": "allowed_tools", "mode": mode, "tools": tools}}


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_all_tools_are_told_and_those_allowed_may_be_called(world, path, mode):
    for more in ({}, allowing(path, mode, "clock", "weather")):
        answer = await world.client.post(path, json=body(path, **more))
        assert answer.status_code == 200, answer.text
    plain, some = world.requests
    assert some.tools == plain.tools  # the prompts are the same, and the cache has them
    grammar = json.loads(some.grammar.text)
    assert [tool["name"] for tool in grammar["tools"]] == ["weather", "clock"]
    assert grammar["choice"] == mode
    assert [tool["name"] for tool in json.loads(plain.grammar.text)["tools"]] == [*NAMES]


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (lambda path: allowing(path, "auto", "other"), "allows the tool 'other', which is not"),
        (lambda path: allowing(path, "none", "clock"), "mode must be"),
        (lambda path: allowing(path, "auto"), "tools"),
        (lambda _: {"tool_choice": {"type": "allowed_tools"}}, "is missing"),
        (lambda _: {"tool_choice": {"type": "function"}}, "is missing"),
    ],
)
async def test_what_is_no_choice_of_tools_is_refused(world, path, choice, said):
    answer = await world.client.post(path, json=body(path, **choice(path)))
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert not world.requests
