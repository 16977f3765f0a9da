"""Calls of tools in the chat: asked for, run, shown, stopped, saved."""

import json
import sys

import pytest
from fake_engine import Script, calling

from localspec.config import paths

SERVER = """
import os, time
from mcp.server.mcpserver import MCPServer
server = MCPServer("tester", version="1")

@server.tool()
def add(a: int, b: int) -> str:
    "Add two numbers."
    return f"the sum is {a + b}"

@server.tool()
def sleep() -> str:
    "Never ends."
    time.sleep(3600)
    return "slept"

server.run()
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    folder = paths.make(paths.config_dir())
    entry = {"command": sys.executable, "args": [str(program)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"maths": entry}}))
    return folder / "mcp.json"


def calls(chat):
    return [call for turn in chat.replies for call in turn.calls]


async def asked(chat):
    await chat.until(lambda: chat.session.chat.question is not None)
    await chat.sees("May maths/add run?")


async def test_a_tool_runs_once_it_is_allowed_and_the_model_reads_its_result(chat, server):
    scripts = [Script(calling("maths__add", "I add.", a=1, b=2)), Script("It is 3.")]
    async with chat(*scripts) as c:
        await c.type("What is 1 + 2?")
        await asked(c)
        assert calls(c)[0].state == "waiting"
        assert c.engine.asked[0][-1].content == "What is 1 + 2?"
        await c.pilot.press("alt+y")
        await c.sees("It is 3.")
        (call,) = calls(c)
        assert (call.state, call.result, call.allowed) == ("done", "the sum is 3", "once")
        assistant, result = c.engine.asked[1][-2:]
        assert assistant.content == "I add."
        assert json.loads(assistant.calls[0].arguments) == {"a": 1, "b": 2}
        assert (result.role, result.content, result.call_id) == ("tool", "the sum is 3", call.id)
        assert "<tool_call>" not in c.screen_text
        await c.sees("✓ maths/add a=1 b=2")
