"""Calls of tools on a command line: what ended stays, what is not run is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.chats.calls import SavedCall
from localspec.cli import chat_lines
from localspec.cli.acting import Acting
from localspec.cli.line_commands import Silent
from localspec.cli.run_report import calls_report
from localspec.core.events import Message
from localspec.core.reply_request import ReplyRequest
from localspec.tools.permission import MOST_ROUNDS
from localspec.tools.values import OfferedTool, ToolResult

FAST, SLOW = (OfferedTool("s", name, "", {}) for name in ("fast", "slow"))


class Box:
    """Runs one tool at once; the other one runs until it is stopped."""

    def __init__(self) -> None:
        self.waits = False

    async def run(self, tool: OfferedTool, arguments: str, most: int) -> ToolResult:
        del arguments, most
        if tool is SLOW:
            self.waits = True
            await asyncio.Event().wait()
        return ToolResult("file deleted", failed=False, seconds=0.01)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread."""
    found = asyncio.new_event_loop()
    thread = threading.Thread(target=found.run_forever)
    thread.start()
    yield found
    found.call_soon_threadsafe(found.stop)
    thread.join()
    found.close()


def reply_with(*tools: OfferedTool) -> Any:
    """A reply that calls these tools."""
    calls = [SavedCall(tool.tool, tool.name, "{}", tool.place, "waiting") for tool in tools]
    return SimpleNamespace(calls=calls, act=True)


def test_what_had_ended_before_an_interruption_is_kept_with_its_result(
    loop: asyncio.AbstractEventLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    box: Any = Box()
    tools: Any = SimpleNamespace(tools=(FAST, SLOW))
    act = Acting(context=4096, cancelled=lambda: box.waits, toolbox=box, tools=tools, _loop=loop)
    found = act.run(reply_with(FAST, SLOW))
    assert [(call.state, call.said) for call in found] == [
        ("done", "file deleted"),
        ("stopped", "The user stopped this call."),
    ]
    assert act.made == found
    assert "fast {}: file deleted" in capsys.readouterr().err


def test_a_call_that_was_not_finished_does_not_run_beside_one_that_was(
    loop: asyncio.AbstractEventLoop,
) -> None:
    written = reply_with(FAST, FAST)
    written.calls[1] = replace(written.calls[1], state="written")
    tools: Any = SimpleNamespace(tools=(FAST, SLOW))
    box: Any = Box()
    act = Acting(context=4096, toolbox=box, tools=tools, _loop=loop)
    assert [(call.state, call.said) for call in act.run(written)] == [
        ("done", "file deleted"),
        ("failed", "Error: this call was not finished"),
    ]


def test_calls_after_the_last_round_are_said_not_to_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    act = Acting()
    assert act.goes_on(reply_with(FAST))
    assert capsys.readouterr().err == ""
    act.rounds = MOST_ROUNDS
    assert not act.goes_on(reply_with(FAST))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("the last calls were not run")
    (call,) = calls_report(act.made)["calls"]
    assert (call["tool"], call["result"]) == (FAST.place, "This call was not run.")


def test_the_plain_chat_saves_calls_before_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    written = reply_with(FAST, SLOW)
    written.at = 0

    def run(_: object) -> list[SavedCall]:
        saved.append("run")
        return [replace(call, state="done") for call in written.calls]

    journal: Any = SimpleNamespace(
        messages=lambda _: (Message("user", "Tidy up."),),
        called=lambda calls, _: saved.append([call.state for call in calls]),
    )
    act: Any = SimpleNamespace(
        tools=(FAST, SLOW),
        request=lambda request: request,
        reader=lambda _: written,
        goes_on=lambda _: True,
        run=run,
    )
    runtime: Any = SimpleNamespace(submit=lambda _: iter(()))
    monkeypatch.setattr(chat_lines, "_stream", lambda *_: None)
    base = ReplyRequest((Message("user", "Hi."),))
    assert chat_lines._reply(base, "Tidy up.", journal, act, runtime, Silent())
    assert saved == [["running"] * 2, "run", ["done"] * 2]
