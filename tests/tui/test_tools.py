"""Calls of tools in the chat: asked for, run, shown, stopped, saved."""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_engine import FakeEngine, Script, calling
from mcp_servers import LIGHT
from waiting import turn as turn_of_the_loop
from waiting import until_so

from localspec.chats import calls as saved_calls
from localspec.chats import transfer
from localspec.chats.calls import SavedCall
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat
from localspec.core.errors import UsageError
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.core.reply_request import Tokenized
from localspec.tools import permission, toolbox
from localspec.tools.permission import Permissions
from localspec.tools.server import ServerProcess
from localspec.tools.values import OfferedTool, ServerState, ToolResult
from tui.session import open_chat, reply_task
from tui.session.conversation import Conversation
from tui.session.open_chat import OpenChat
from tui.session.recorder import ChatRecorder
from tui.session.tool_runs import ToolRun
from tui.session.tool_shelf import ToolShelf, how_to_leave_out
from tui.terminal import desktop
from tui.widgets import calls as calls_module
from tui.widgets.calls import CallsView


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    program = tmp_path / "server.py"
    program.write_text(LIGHT)
    folder = paths.make(paths.config_dir())
    entry = {"command": sys.executable, "args": [str(program)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"maths": entry}}))
    return folder / "mcp.json"


def calls(chat):
    return [call for turn in chat.replies for call in turn.calls]


async def asked(chat):
    await chat.until(lambda: chat.session.chat.question is not None)
    await chat.sees("May maths/add run?")
    await chat.pilot.pause(open_chat.READING)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that questions count, as far as a test lets them pass."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(open_chat, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


async def test_a_key_that_is_held_down_answers_no_question_that_comes_up_meanwhile(clock):
    ran = []

    class Box:
        def find(self, name):
            return OfferedTool("s", name, "", {})

        async def run(self, tool, arguments, most):
            ran.append(tool.place)
            return ToolResult("ok")

    conversation = Conversation()
    conversation.say("Tidy up.")
    turn = conversation.answer()
    turn.calls = [
        saved_calls.SavedCall(name, name, "{}", f"s/{name}", "waiting") for name in ("read", "wipe")
    ]
    opened, shelf = OpenChat(conversation, ChatRecorder()), ToolShelf()
    nothing = [lambda *_: None] * 3
    run = ToolRun(opened, turn, Box(), Permissions(), *nothing)
    made = asyncio.create_task(run.make(2048))
    await until_so(lambda: opened.question, pause=turn_of_the_loop)
    assert shelf.answer(opened, "once")  # nobody has seen it
    opened.question.drawn()
    clock.seconds += open_chat.READING
    assert shelf.answer(opened, "once") == ""
    await until_so(
        lambda: opened.question and opened.question.tool.tool == "wipe", pause=turn_of_the_loop
    )
    opened.question.drawn()
    for pause in (1.0, *[0.03] * 100, *[0.5] * 5):  # the key repeats, quickly or slowly
        clock.seconds += pause
        assert shelf.answer(opened, "once") == "answer again in a moment"
    clock.seconds += 1.0
    assert shelf.answer(opened, "no") == ""
    await made
    assert ran == ["s/read"]


async def test_a_question_that_is_answered_too_soon_can_be_answered_a_moment_later(clock):
    opened, shelf = OpenChat(Conversation(), ChatRecorder()), ToolShelf()
    answer = asyncio.get_running_loop().create_future()
    turn = opened.conversation.answer()
    opened.question = open_chat.Question(turn, OfferedTool("s", "read", "", {}), "{}", answer)
    opened.question.drawn()
    for part in (0.5, 0.4):
        clock.seconds += part * open_chat.READING
        assert shelf.answer(opened, "once") == "answer again in a moment"
    clock.seconds += open_chat.APART + 0.01
    assert shelf.answer(opened, "once") == ""
    assert answer.result() == "once"


PLAIN_START = """
import asyncio, sys
import psutil
from fake_engine import FakeEngine
from localspec.core.sampling_params import Sampling
from tui.app import ChatApp
from tui.session.session_engine import Phase
from tui.session.settings import Settings

async def main():
    app = ChatApp(FakeEngine([]), Settings(Sampling()), name="demo")
    async with app.run_test() as pilot:
        session = app.session
        while session.engine.phase is not Phase.READY or session.tools.starting:
            await pilot.pause()
        await app.workers.wait_for_complete(w for w in app.workers if w.name == "tools")
        named = ("mcp", "pydantic", "pypdf", "localspec.tools.toolbox", "localspec.tools.host")
        print([name for name in named if name in sys.modules], psutil.Process().children())

asyncio.run(main())
"""


def test_a_chat_without_servers_imports_nothing_of_tools_and_starts_no_process(tmp_path):
    folder = Path(__file__).parent
    search = os.pathsep.join(str(one) for one in (folder, folder.parent / "helpers"))
    environment = os.environ | {"PYTHONPATH": search, "LOCALSPEC_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PLAIN_START]
    done = subprocess.run(
        command, env=environment, cwd=folder.parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] []\n"


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


async def test_a_chat_that_is_closed_while_a_tool_asks_has_its_reply_once(chat, server, tmp_path):
    saver = Saver(tmp_path / "chats.db", interval=0.02)
    script = Script(calling("maths__add", "I add.", a=1, b=2))
    async with chat(script, recorder=ChatRecorder(saver)) as c:
        await c.type("What is 1 + 2?")
        await c.until(lambda: c.session.chat.question is not None)
        closed = c.session.chat
        identity, archive = closed.recorder.info.id, closed.recorder.archive
        await archive.chats()  # what waits is saved before
        c.session.close()
        for _ in range(2):  # in the same turn of the loop the saver has no more to do with it
            saver.call(lambda _: None).result(60)
        await c.until(lambda: not closed.growing)
        await archive.chats()
        _, reply = (await archive.load(identity)).messages
        assert [call.state for call in saved_calls.saved(reply.details)[0]] == ["stopped"]
        await c.until(lambda: identity not in saver._chats)


async def test_how_to_answer_a_tool_is_on_a_small_screen_beside_any_arguments(chat, server):
    for text in ("word " * 100, "x" * 500):
        async with chat(Script(calling("maths__add", a=text, b=2)), size=(40, 12)) as c:
            await c.type("Add.")
            await c.sees("May maths/add run?")
            await c.pilot.pause()
            for key in ("Alt+Y", "Alt+C", "Alt+A", "Alt+N", "more: F7, Alt+O", "╰──"):
                assert key in c.screen_text
            await c.pilot.resize_terminal(100, 40)
            await c.until(lambda: "more: F7" not in c.screen_text)
            assert "Alt+N" in c.screen_text


async def test_imported_calls_cost_no_more_than_is_shown_of_them(monkeypatch):
    read = []
    monkeypatch.setattr(calls_module, "json", SimpleNamespace(loads=read.append, dumps=json.dumps))
    large = json.dumps({"text": "x y " * 1_000_000})
    many = [saved_calls.SavedCall(str(n), "log", large, "git/log", "waiting") for n in range(1000)]
    view = CallsView()
    lines = []
    monkeypatch.setattr(view, "update", lambda content: lines.extend(content.plain.split("\n")))
    view.show(many)
    assert not read
    assert lines[-1] == f"… {1000 - 64} more calls; /export has them"
    assert len(lines) == 65
    assert '{"text": "x y x y' in lines[0]
    assert len(lines[0]) < 200


@pytest.mark.slow
async def test_a_tool_that_asks_goes_on_asking_where_other_things_are_looked_at(chat, server):
    call = calling("maths__add", "I add.", a=1, b=2)
    scripts = [Script(call), Script(call, hold_at=1), Script("It is 3.")]
    async with chat(*scripts, size=(120, 40)) as c:
        await c.type("What is 1 + 2?")
        await asked(c)
        await c.type("/copy")
        await c.until(lambda: c.app.clipboard == "I add.")
        await c.type("/race")
        await c.until(lambda: "a tool runs or asks in this chat; Esc stops it" in c.stats)
        await c.pilot.press("f3")
        await c.until(lambda: c.engine.holding)
        await c.leave()
        await c.until(lambda: c.session.replies.comparing is None)
        assert c.session.chat.question is not None
        await c.pilot.press("ctrl+n")
        await c.sees("a tool asks in another chat")
        assert "a tool asks" in c.app.screen.actions.chats._rows()[0][1]
        await c.pilot.press("ctrl+pageup")
        await c.sees("May maths/add run?")
        assert [call.state for call in calls(c)] == ["waiting"]


@pytest.mark.parametrize(
    "unfinished",
    ['<tool_call>\n{"name": "maths__add", "arguments": {"a": 1', calling("maths__add", a=10**400)],
)
async def test_a_call_that_was_not_finished_does_not_run_beside_one_that_was(
    chat, server, unfinished
):
    whole = calling("maths__add", a=20, b=22) + "\n"
    async with chat(Script(whole + unfinished), Script("It is 42.")) as c:
        await c.type("Add them.")
        await asked(c)
        await c.pilot.press("alt+c")
        await c.until(lambda: len(c.replies) == 2 and c.replies[-1].end)
        assert [(call.state, call.said) for call in calls(c)] == [
            ("done", "the sum is 42"),
            ("failed", "Error: this call was not finished"),
        ]


def test_the_tools_of_a_request_are_described_once():
    shelf = ToolShelf()
    tools = [OfferedTool("s", f"t{n}", "", {}) for n in range(3)]
    shelf.toolbox = SimpleNamespace(offered=tuple(tools))
    first = shelf.request()
    assert shelf.request() is first
    shelf.only = ("s/t1",)
    assert [tool.tool for tool in shelf.request().tools] == ["t1"]


async def test_what_is_refused_does_not_run_and_the_model_is_told(chat, server):
    async with chat(Script(calling("maths__add", a=1, b=2)), Script("As you wish.")) as c:
        await c.type("Add.")
        await asked(c)
        await c.pilot.press("alt+n")
        await c.sees("As you wish.")
        assert [call.state for call in calls(c)] == ["refused"]
        assert c.engine.asked[1][-1].content == "The user did not allow this call."


@pytest.mark.slow
async def test_keys_that_are_typed_ahead_allow_nothing(chat, server):
    async with chat(Script(calling("maths__add", a=1, b=2))) as c:
        await c.type("Add.")
        await asked(c)
        await c.pilot.press(*"yaco", "enter", "tab", "space", "y")
        assert c.session.chat.question is not None
        assert calls(c)[0].state == "waiting"


@pytest.mark.parametrize(("line", "state"), [("/allow", "done"), ("/deny", "refused")])
async def test_a_typed_answer_is_for_the_tool_that_asks_now_whatever_command_is_carried_out(
    chat, server, monkeypatch, line, state
):
    goes_on = asyncio.Event()

    async def slow(*_, **__):
        await goes_on.wait()
        raise UsageError("there is no such server")

    two = calling("maths__add", a=1, b=2) + "\n" + calling("maths__add", a=666, b=666)
    async with chat(Script(two)) as c:
        await c.type("Go.")
        await asked(c)
        first = c.session.chat.question
        monkeypatch.setattr(c.session.tools, "server", slow)
        await c.type("/mcp on maths")
        await c.type(line)
        await c.until(lambda: c.session.chat.question not in (None, first))
        second = c.session.chat.question
        await asked(c)
        goes_on.set()
        await c.sees("there is no such server")
        await c.pilot.pause()
        assert c.session.chat.question is second
        await c.type("/deny")
        await c.until(lambda: [call.state for call in calls(c)] == [state, "refused"])


async def test_variants_ask_one_after_the_other_and_each_says_on_which_branch_it_is(chat, server):
    scripts = [Script("One."), *(Script(calling("maths__add", a=n, b=2)) for n in (1, 2))]
    async with chat(*scripts, Script("X."), Script("Y.")) as c:
        opened = c.session.chat
        await c.ask("Which?")
        await c.type("/variants 2")
        await c.until(lambda: len(c.session.tools.runs) == 2)
        first = opened.question
        assert first.turn in opened.conversation.turns
        await asked(c)
        await c.pilot.press("alt+y")
        await c.until(lambda: opened.question not in (None, first))
        second = opened.question
        assert second.turn is not first.turn
        await c.sees("Branch 3: May maths/add run?")
        await c.pilot.press("alt+down")
        await c.until(lambda: second.turn in opened.conversation.turns)
        await c.until(lambda: "Branch 3" not in c.screen_text)
        await c.pilot.pause(open_chat.READING)
        await c.pilot.press("alt+n")
        await c.ready()
        made = [turn.calls[0] for turn in opened.conversation.all_turns if turn.calls]
        assert [call.state for call in made] == ["done", "refused"]
        assert {turn.text for turn in opened.conversation.all_turns} >= {"X.", "Y."}


async def test_esc_stops_variants_that_ask_and_that_wait_to_ask(chat, server):
    scripts = [Script("One."), *(Script(calling("maths__add", a=n, b=2)) for n in (1, 2))]
    async with chat(*scripts, Script("X.")) as c:
        await c.ask("Which?")
        await c.type("/variants 2")
        await c.until(lambda: len(c.session.tools.runs) == 2)
        await asked(c)
        await c.pilot.press("escape")
        await c.ready()
        turns = c.session.chat.conversation.all_turns
        assert [call.state for turn in turns for call in turn.calls] == ["stopped"] * 2
        assert c.session.chat.question is None
        assert not c.session.chat.asking.locked()


@pytest.mark.slow
async def test_allowed_in_this_chat_means_not_asked_again_here_and_asked_in_another(chat, server):
    call = calling("maths__add", a=1, b=2)
    async with chat(Script(call), Script("One."), Script(call), Script("Two."), Script(call)) as c:
        await c.type("Add.")
        await asked(c)
        await c.pilot.press("alt+c")
        await c.sees("One.")
        await c.type("Again.")
        await c.sees("Two.")
        await c.pilot.press("ctrl+n")
        await c.type("Add.")
        await asked(c)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "told"),
    [
        (None, ["add", "sleep"]),
        (("maths/add",), ["add"]),
        (("maths/*",), ["add", "sleep"]),
        ((), []),
    ],
)
async def test_a_preset_says_which_tools_the_model_is_told_of(chat, server, only, told):
    tools = ToolShelf()
    tools.only = only
    async with chat(Script("Yes."), tools=tools) as c:
        await c.ask("Hello")
        given = json.loads(c.engine.requests[-1].tools or "[]")
        assert [one["function"]["name"] for one in given] == [f"maths__{name}" for name in told]
        await c.type("/mcp")
        await c.sees("not offered" if len(told) < 2 else "Add two numbers.")


async def test_tools_that_a_server_tells_later_are_offered_in_the_chat_too(server, monkeypatch):
    one, two = (OfferedTool("maths", name, "", {}) for name in ("one", "two"))

    async def open_(self):
        self._become(ServerState("ready", tools=(one,)))

    monkeypatch.setattr(ServerProcess, "open", open_)
    monkeypatch.setattr(toolbox, "_why_unfit", lambda _: "")
    tools = ToolShelf()
    await tools.start(lambda: None, print)
    assert tools.request().tools == (one,)
    tools.toolbox.servers[0]._become(ServerState("ready", tools=(one, two)))
    await until_so(lambda: tools.request().tools == (one, two))
    await tools.close()


async def test_no_command_waits_for_all_schemas_of_a_server(server, monkeypatch, tmp_path):
    many = tuple(OfferedTool("maths", f"t{i}", "", {}) for i in range(100))
    tried = []

    async def open_(self):
        self._become(ServerState("ready", tools=many[:1]))

    def tried_out(tool):
        tried.append(tool.tool)
        time.sleep(0.005)
        return ""

    monkeypatch.setattr(ServerProcess, "open", open_)
    monkeypatch.setattr(toolbox, "_why_unfit", tried_out)
    tools = ToolShelf()
    await tools.start(lambda: None, print)
    box = tools.toolbox
    box.servers[0]._become(ServerState("ready", tools=many))
    await tools.open_folder(tmp_path)
    assert {tool.server for tool in box.offered} == {"", "maths"}
    await tools.server("maths", on=False)
    await box._later
    assert len(tried) < 20  # and those of a server that is off not at all
    assert [tool.server for tool in box.offered] == [""] * 3
    await tools.close()


@pytest.mark.slow
async def test_always_is_written_to_the_settings(chat, server):
    saved = []
    tools = ToolShelf((), saved.append)
    async with chat(Script(calling("maths__add", a=1, b=2)), Script("Yes."), tools=tools) as c:
        await c.type("Add.")
        await asked(c)
        await c.pilot.press("alt+a")
        await c.sees("Yes.")
    assert saved == ["maths/add"]


@pytest.mark.slow
async def test_a_tool_of_the_settings_runs_unasked(chat, server):
    tools = ToolShelf(("maths/*",))
    two = calling("maths__add", a=1, b=2) + "\n" + calling("maths__add", a=3, b=4)
    async with chat(Script(two), Script("Both."), tools=tools) as c:
        await c.type("Add.")
        await c.sees("Both.")
        assert [call.result for call in calls(c)] == ["the sum is 3", "the sum is 7"]
        assert [message.role for message in c.engine.asked[1]] == [
            *("user", "assistant", "tool", "tool")
        ]


@pytest.mark.slow
async def test_esc_stops_a_tool_that_runs_and_f9_goes_on(chat, server):
    tools = ToolShelf(("maths/*",))
    async with chat(Script(calling("maths__sleep")), Script("Awake."), tools=tools) as c:
        await c.type("Sleep.")
        await c.until(lambda: [call.state for call in calls(c)] == ["running"])
        await c.pilot.press("escape")
        await c.until(lambda: [call.state for call in calls(c)] == ["stopped"])
        await c.ready()
        assert len(c.engine.asked) == 1
        await c.pilot.press("f9")
        await c.sees("Awake.")
        assert c.engine.asked[1][-1].content == "The user stopped this call."


@pytest.mark.slow
async def test_esc_answers_a_question_with_no_call_at_all(chat, server):
    async with chat(Script(calling("maths__add", a=1, b=2))) as c:
        await c.type("Add.")
        await asked(c)
        await c.pilot.press("escape")
        await c.until(lambda: [call.state for call in calls(c)] == ["stopped"])
        assert c.session.chat.question is None


async def test_another_model_stops_a_tool_only_where_it_is_asked_for_twice(chat, server, known):
    second = FakeEngine([])
    async with chat(Script(calling("maths__add", a=1, b=2))) as c:
        c.session.engine.options = Options()
        c.session.engine.reopen = lambda options: second
        await c.type("Add.")
        await asked(c)
        await c.pilot.press("ctrl+n")
        await c.type("/model other")
        await c.until(lambda: "a tool runs or asks; the same again stops it" in c.stats)
        assert c.session.chats.all[0].question is not None
        await c.type("/model other")
        await c.until(lambda: second.opened == 1)
        assert c.session.chats.all[0].question is None
        await c.pilot.press("ctrl+pageup")
        await c.sees("stopped: another model is loaded; F9 goes on")


@pytest.mark.slow
async def test_a_model_that_calls_the_same_for_ever_is_stopped(chat, server):
    tools = ToolShelf(("maths/*",))
    call = calling("maths__add", a=1, b=2)
    async with chat(*[Script(call) for _ in range(permission.MOST_ROUNDS + 5)], tools=tools) as c:
        await c.type("Add.")
        await c.sees("F9 lets the model go on")
        assert len(c.engine.asked) == permission.MOST_ROUNDS
        results = [call.result for call in calls(c)]
        assert results[:3] == ["the sum is 3"] * 3
        assert all("was made 3 times" in result for result in results[3:])


@pytest.mark.slow
async def test_a_call_of_no_tool_is_an_error_that_the_model_reads(chat, server):
    async with chat(Script(calling("maths__erase")), Script("Sorry.")) as c:
        await c.type("Erase.")
        await c.sees("Sorry.")
        assert "there is no tool maths__erase" in c.engine.asked[1][-1].content


async def test_tools_that_cannot_be_asked_for_fail_the_reply_and_keep_its_question(
    chat, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))

    def request():
        raise UsageError("these tools are too many")

    recorder = ChatRecorder(Saver(tmp_path / "chats.db"))
    async with chat(Script("Hello."), recorder=recorder) as c:
        with monkeypatch.context() as patch:
            patch.setattr(c.session.tools, "request", request)
            await c.ask("Hi.")
            await c.sees("these tools are too many")
        assert [turn.end for turn in c.replies] == ["failed"]
        await c.pilot.press("f9")
        await c.sees("Hello.")
    with ChatStore(tmp_path / "chats.db") as store:
        assert store.load(store.last().id).messages[0].text == "Hi."


@pytest.mark.slow
async def test_calls_and_results_are_saved_with_their_branch_and_exported(chat, server, tmp_path):
    tools = ToolShelf(("maths/*",))
    saver = Saver(tmp_path / "chats.db")
    scripts = [Script(calling("maths__add", "I add.", a=1, b=2)), Script("3."), Script("Other.")]
    recorder = ChatRecorder(saver, "demo", None)
    async with chat(*scripts, tools=tools, recorder=recorder) as c:
        await c.type("Add.")
        await c.sees("3.")
        await c.ready()
        await c.pilot.press("f5")  # another answer, on a branch of its own
        await c.sees("Other.")
        await c.ready()
        identity = c.session.chat.recorder.info.id
    with ChatStore(tmp_path / "chats.db") as store:
        saved = store.load(identity)
    first = next(m for m in saved.messages if m.details and "calls" in m.details)
    (call,) = saved_calls.saved(first.details)[0]
    assert (call.place, call.result, call.allowed) == ("maths/add", "the sum is 3", "always")
    (again,) = transfer.from_json(transfer.to_json([saved]))
    assert [m.details for m in again.messages] == [m.details for m in saved.messages]
    older = max(m.id for m in saved.messages if m.text == "3.")
    text = transfer.to_markdown(Chat(dataclasses.replace(saved.info, leaf=older), saved.messages))
    assert "**Call of `maths/add`**" in text
    assert "the sum is 3" in text
    assert "<tool_call>" not in text


async def test_calls_are_saved_as_they_run(chat, server, tmp_path):
    both = calling("maths__add", a=1, b=2) + "\n" + calling("maths__sleep")
    recorder = ChatRecorder(Saver(tmp_path / "chats.db"))

    def saved():
        with ChatStore(tmp_path / "chats.db") as store:
            reply = store.load(store.last().id).messages[-1]
        return saved_calls.saved(reply.details)[0]

    async with chat(Script(both), tools=ToolShelf(("maths/*",)), recorder=recorder) as c:
        await c.type("Add.")
        await c.until(lambda: [call.state for call in calls(c)] == ["done", "running"])
        await c.until(lambda: [call.state for call in saved()] == ["done", "running"])
        assert [call.said for call in saved()] == ["the sum is 3", "This call did not end."]
        await c.pilot.press("escape")
        await c.ready()


@pytest.mark.slow
async def test_a_resumed_chat_tells_the_model_of_its_calls(chat, server, tmp_path):
    tools = ToolShelf(("maths/*",))
    saver = Saver(tmp_path / "chats.db")
    recorder = ChatRecorder(saver, "demo", None)
    scripts = [Script(calling("maths__add", a=1, b=2)), Script("3.")]
    async with chat(*scripts, tools=tools, recorder=recorder) as c:
        await c.type("Add.")
        await c.sees("3.")
        await c.ready()
        identity = c.session.chat.recorder.info.id
    with ChatStore(tmp_path / "chats.db") as store:
        saved = store.load(identity)
    async with chat(Script("Yes."), resume=saved) as c:
        await c.sees("✓ maths/add a=1 b=2")
        await c.ask("Sure?")
        roles = [message.role for message in c.engine.asked[0]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert c.engine.asked[0][2].content == "the sum is 3"


async def test_without_servers_no_tools_are_asked_for_and_nothing_is_imported(
    chat, monkeypatch, tmp_path
):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    async with chat(Script("Hello.")) as c:
        await c.ask("Hi.")
        assert c.engine.requests[0].tools is None
        assert not c.engine.requests[0].markers
        assert c.session.tools.toolbox is None


async def test_a_folder_is_read_once_it_is_opened_and_never_above_it(chat, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    (tmp_path / "secret.txt").write_text("secret")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("On Friday.")
    two = calling("read_file", path="a.md") + "\n" + calling("read_file", path="../secret.txt")
    async with chat(Script(two), Script("On Friday.")) as c:
        await c.type(f"/folder {notes}")
        await c.sees("the model may list, read and search")
        await c.type("When?")
        await c.until(lambda: len(c.replies) == 2)
        friday, secret = calls(c)
        assert friday.result == "On Friday."
        assert "outside of the folder" in secret.result


async def test_a_broken_server_is_named_and_the_chat_goes_on(chat, server):
    server.write_text(json.dumps({"mcpServers": {"gone": {"command": "/no/such/program"}}}))
    async with chat(Script("Hello.")) as c:
        await c.sees("the server gone does not run: /no/such/program")
        await c.ask("Hi.")
        await c.type("/mcp")
        await c.sees("does not run")


async def test_a_long_reply_rings_where_nobody_looks(chat, monkeypatch):
    monkeypatch.setattr(reply_task, "LONG", -1.0)
    async with chat(Script("Hello."), Script("Hello again.")) as c:
        written = []
        monkeypatch.setattr(c.app._driver, "write", written.append, raising=False)
        await c.ask("Hi.")
        assert not any("\x07" in text for text in written)
        c.app.app_focus = False
        c.session.send("And now?")
        await c.until(lambda: any("\x07" in text for text in written))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b]99;i=1:d=0;a b\x1b\\\x1b]99;i=1:p=body;c\x1b\\\x07"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "\x1b]9;a b: c\x1b\\\x07"),
        ({"TERM": "foot"}, "\x1b]777;notify;a b;c\x1b\\\x07"),
        ({"TERM": "xterm-kitty", "TMUX": "x"}, "\x07"),
        ({"TERM": "xterm"}, "\x07"),
    ],
)
def test_notifications_are_written_as_the_terminal_takes_them(environment, expected):
    assert desktop.notification("a\nb", "c", environment) == expected


def test_a_title_cannot_end_its_notification():
    text = desktop.notification("t", "\x1b\\\x1b]52;c;x\x07;y", {"TERM": "foot"})
    assert text.count("\x1b") == 2
    assert text.count(";") == 3


async def test_compact_goes_on_from_a_summary_and_keeps_the_old_branch(chat):
    scripts = [Script("Owls hunt."), Script("We spoke of owls."), Script("Understood.")]
    async with chat(*scripts) as c:
        await c.ask("What do owls do?")
        await c.type("/compact")
        await c.sees("Understood.")
        await c.ready()
        assert [m.role for m in c.engine.asked[2]] == ["user"]
        assert "We spoke of owls." in c.engine.asked[2][0].content
        assert c.session.chat.conversation.place == (2, 2)


async def test_a_call_in_place_of_the_summary_of_compact_does_not_run_and_is_told_of(chat, server):
    """The prompt of a summary begins as the chat that was read, with the tools."""
    scripts = [
        Script("Owls hunt."),
        Script(calling("maths__add", a=1, b=2)),
        Script("We spoke of owls."),
        Script("Understood."),
    ]
    async with chat(*scripts, tools=ToolShelf(("maths/*",))) as c:
        await c.ask("What do owls do?")
        await c.type("/compact")
        await c.sees("no summary: the model called a tool instead")
        assert [call.state for call in c.session.chat.conversation.last.calls] == ["waiting"]
        await c.type("/compact")
        await c.sees("Understood.")
        first, *rest = [request.tools for request in c.engine.requests]
        assert first is not None
        assert rest == [first] * 3


class CountingEngine(FakeEngine):
    """Counts words in place of tokens; tools are ``tools`` of them."""

    tools = 0

    async def tokenize(self, request):
        if request.prompt is None:
            tokens = range(1 + (self.tools if request.tools else 0))
            return Tokenized("", tuple(tokens), ())
        return Tokenized(request.prompt, tuple(range(len(request.prompt.split()))), ())


async def test_what_files_cost_is_shown_before_they_are_sent(chat, tmp_path):
    (tmp_path / "a.txt").write_text("one two three")
    (tmp_path / "b.txt").write_text("word " * 5000)
    async with chat(engine=CountingEngine([Script("Read.")])) as c:
        c.composer.insert(f"See @{tmp_path}/a.txt")
        await c.sees("1 file: 6 tokens of 2,048 free")
        c.composer.text = ""
        await c.until(lambda: "tokens of" not in c.screen_text)
        c.composer.insert(f"See @{tmp_path}/")
        await c.sees("does not fit:")
        await c.pilot.press("enter")
        await c.until(lambda: c.composer.text)
        assert not c.engine.asked


async def test_a_folder_goes_along_as_its_files(chat, tmp_path):
    (tmp_path / "a.txt").write_text("one two three")
    async with chat(engine=CountingEngine([Script("Read.")])) as c:
        await c.type(f"See @{tmp_path}/")
        await c.sees("Read.")
        assert "a.txt:\n```\none two three\n```" in c.engine.asked[0][0].content


async def test_context_lists_the_tokens_of_every_message(chat):
    async with chat(engine=CountingEngine([Script("Owls hunt at night.")])) as c:
        await c.ask("What do owls do?")
        await c.type("/context")
        await c.sees("in all of 2,048")
        await c.sees("you: What do owls do?")
        await c.sees("model: Owls hunt at night.")


@pytest.mark.slow
async def test_tools_are_counted_as_the_template_writes_them(chat, server):
    few, many = CountingEngine([Script("Three.")]), CountingEngine([Script("Three.")])
    few.tools, many.tools = 682, 683
    async with chat(engine=few, tools=ToolShelf(("maths/*",))) as c:
        await c.ask("Add.")
        await c.sees("Three.")
        await c.idle()
        assert "the tools take" not in c.screen_text
        await c.type("/context")
        await c.sees("tools: maths__add")
        assert "682" in c.screen_text
    async with chat(engine=many, tools=ToolShelf(("maths/*",))) as c:
        await c.ask("Add.")
        await c.sees("the tools take 683 of the 2,048 tokens of the context")


def test_a_result_of_one_line_is_shown_beside_its_call_and_longer_ones_by_their_lines():
    def line(result):
        return CallsView()._line(SavedCall("1", "add", "{}", state="done", result=result))

    assert line("3\n") == line("3") == "▸ ✓ add · → 3"
    assert line("3\n4\n") == line("3\n4") == "▸ ✓ add · 2 lines"


def test_what_leaves_tools_out_is_named_for_the_tools_that_are_offered():
    read, maths = OfferedTool("", "read_file", "", {}), OfferedTool("maths", "add", "", {})
    assert how_to_leave_out([read]) == "/folder off leaves them out"
    assert how_to_leave_out([maths]) == "/mcp off NAME leaves some out"
    both = "/folder off and /mcp off NAME leave some out"
    assert how_to_leave_out([maths, read]) == both


async def test_a_folder_whose_tools_fill_the_context_is_said_to_be_closed_by_folder_off(
    chat, tmp_path
):
    engine = CountingEngine([Script("Three.")])
    engine.tools = 700
    async with chat(engine=engine) as c:
        await c.type(f"/folder {tmp_path}")
        await c.sees("the model may list, read and search")
        await c.ask("Add.")
        await c.sees("the tools take 700 of the 2,048 tokens of the context; /folder off leaves")


@pytest.mark.slow
async def test_for_a_server_elsewhere_nothing_is_started_and_earlier_calls_are_told_as_text(
    chat, server, tmp_path
):
    tools = ToolShelf(("maths/*",))
    recorder = ChatRecorder(Saver(tmp_path / "chats.db"), "demo", None)
    scripts = [Script(calling("maths__add", a=1, b=2)), Script("3.")]
    async with chat(*scripts, tools=tools, recorder=recorder) as c:
        await c.type("Add.")
        await c.sees("3.")
        await c.ready()
        saved = c.session.chat.recorder.in_memory(c.session.chat.conversation)
    engine = FakeEngine([Script("Yes.")])
    engine.server = "http://127.0.0.1:1"
    async with chat(engine=engine, resume=saved) as c:
        await c.ask("Sure?")
        assert c.session.tools.toolbox is None
        assert [message.role for message in engine.asked[0]] == [
            *("user", "assistant", "user", "assistant", "user")
        ]
        assert "the sum is 3" in engine.asked[0][2].content
        assert not any(message.calls for message in engine.asked[0])
