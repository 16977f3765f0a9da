"""Servers of tools: real ones by both transports, and what hostile ones can and cannot do."""

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx2
import psutil
import pytest
import pytest_asyncio
from mcp_servers import ENDLESS_LINE, GOOD, HOSTILE, LATER, LIGHT, NOISE, ROUGH, SILENT
from waiting import turn, until_so

from localspec.core.errors import QueueFullError
from localspec.core.safe_text import is_safe
from localspec.tools import host, toolbox
from localspec.tools import server as server_module
from localspec.tools.server import ServerProcess
from localspec.tools.servers_file import ServerSpec
from localspec.tools.toolbox import RequestTools, Toolbox
from localspec.tools.values import OfferedTool, ServerState


@pytest.fixture
def spec(tmp_path):
    def make(program, name="tester", **more):
        file = tmp_path / f"{name}.py"
        file.write_text(program)
        return ServerSpec(name, sys.executable, (str(file),), **more)

    return make


@pytest.fixture
async def open_box():
    boxes = []

    async def make(*specs):
        box = Toolbox(specs)
        boxes.append(box)
        await box.open()
        return box

    yield make
    for box in boxes:
        await box.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_box(tmp_path_factory):
    """A hostile server and a good one, for tests that change nothing about either."""
    folder, specs = tmp_path_factory.mktemp("servers"), []
    for name, program in (("bad", HOSTILE), ("other", GOOD)):
        file = folder / f"{name}.py"
        file.write_text(program)
        specs.append(ServerSpec(name, sys.executable, (str(file),)))
    box = Toolbox(specs)
    await box.open()
    yield box
    await box.close()


shared = pytest.mark.asyncio(loop_scope="module")
"""Marks a test of the shared servers."""


async def called(box, name, **arguments):
    tool = box.find(name)
    assert tool is not None, f"{name} is not offered"
    return await box.call(tool, arguments, 5000)


async def test_a_server_over_stdio_tells_its_tools_and_answers_calls(spec, open_box):
    box = await open_box(spec(GOOD))
    (server,) = box.servers
    assert server.state.phase == "ready", server.state.error
    assert server.state.about == "tester 1.2"
    assert [tool.name for tool in box.offered] == ["tester__add", "tester__fails", "tester__sleep"]
    assert (await called(box, "tester__add", a=1, b=2)).text == "the sum is 3"
    failed = await called(box, "tester__fails")
    assert failed.failed
    assert await server.prompt("greet", {"name": "Bo"}) == "Say hello to Bo."
    assert await server.resource("note://one") == "the note"
    await box.close()


async def test_tools_that_a_server_tells_later_are_offered(spec, open_box):
    box = await open_box(spec(LATER))
    assert [tool.name for tool in box.offered] == ["tester__login"]
    assert (await called(box, "tester__login")).text == "welcome"
    await until_so(lambda: box.find("tester__query") is not None)
    assert (await called(box, "tester__query", word="owl")).text == "owl was found"


async def test_tools_that_a_server_told_before_anybody_heard_it_are_asked_for():
    class Client:
        server_capabilities = SimpleNamespace(tools={})

        @contextlib.asynccontextmanager
        async def listen(self, **_):
            yield self.never()

        async def never(self):
            await asyncio.Event().wait()
            yield

    connection = host.Host({})
    hears = asyncio.create_task(connection._hear(Client()))
    await until_so(connection._changed.is_set)
    hears.cancel()


async def test_a_server_that_tells_other_tools_all_the_time_holds_nothing_up(monkeypatch):
    box, loop = Toolbox([ServerSpec("tester", "never-started")]), asyncio.get_running_loop()
    (server,), numbers = box.servers, itertools.count()
    fixed = OfferedTool("tester", "fixed", "", {})

    def others():
        other = OfferedTool("tester", f"t{next(numbers)}", "", {})
        server._become(ServerState("ready", tools=(fixed, other)))

    def tried(_):
        loop.call_soon_threadsafe(others)
        return ""

    monkeypatch.setattr(toolbox, "_why_unfit", tried)
    monkeypatch.setattr(toolbox, "_MOST_TRIED", 30)
    others()
    async with asyncio.timeout(30):
        await box.judge()
        assert box.find("tester__fixed")
        await box._later
    assert len(box._fit) == 30
    assert [tool.tool for tool in box.offered] == ["fixed"]
    assert box.left_out(server) == [f"t{next(numbers) - 1}: its server has told too many others"]
    await box.close()


HOST = """
import json, sys
sys.stdin.readline()  # the server
about = {"name": "tester", "version": "", "tools": [], "prompts": {}, "resources": {}}
print(json.dumps({"ready": about}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "text": asked["call"], "failed": False, "seconds": 0}),
          flush=True)
"""
"""In place of the process that speaks with a server: answers each call with the tool's name."""


async def test_calls_that_wait_for_their_turn_have_their_whole_time(monkeypatch):
    """The time of a call begins when it is sent, here and in the other process, which is when the
    one before has its answer.
    """
    monkeypatch.setattr(server_module, "_AT_ONCE", 1)
    host = [sys.executable, "-c", HOST]
    monkeypatch.setattr(server_module.children, "command", lambda *_: (host, None))
    happened = []

    def timeout(seconds, limit=asyncio.timeout):
        happened.append(seconds)
        return limit(seconds)

    async def call(name):
        happened.append((await server.call(name, {}, 100)).text)

    server = ServerProcess(ServerSpec("tester", command="sleep", seconds=50.0))
    await server.open()
    monkeypatch.setattr(server_module.asyncio, "timeout", timeout)
    await asyncio.gather(*(call(name) for name in "abc"))
    whole = 50.0 + server_module._PATIENCE
    assert happened == [whole, "a", whole, "b", whole, "c"]
    await server.close()


async def test_calls_that_wait_for_their_turn_start_no_server_that_was_ended(
    spec, open_box, monkeypatch
):
    monkeypatch.setattr(server_module, "_AT_ONCE", 1)
    box = await open_box(spec(LIGHT))
    tool = box.find("tester__sleep")
    calls = [asyncio.ensure_future(box.call(tool, {"seconds": 60}, 100)) for _ in range(3)]
    for _ in range(5):
        await turn(0)
    await box.close()
    assert all(result.failed for result in await asyncio.gather(*calls))
    assert box.servers[0].state.phase == "waiting"


@pytest.mark.slow
async def test_a_server_by_streamable_http_answers_calls(spec, open_box, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = tmp_path / "web_server.py"
    program.write_text(GOOD)
    process = subprocess.Popen(  # noqa: ASYNC220 - it runs beside the test
        [sys.executable, str(program), str(port)], stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        end = time.monotonic() + 60
        while True:
            try:
                httpx2.get(url)
                break
            except httpx2.HTTPError:
                assert time.monotonic() < end
                await asyncio.sleep(0.1)
        box = await open_box(ServerSpec("web", url=url))
        assert box.servers[0].state.phase == "ready", box.servers[0].state.error
        assert (await called(box, "web__add", a=20, b=22)).text == "the sum is 42"
        await box.close()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@shared
async def test_several_calls_run_side_by_side(shared_box):
    box = shared_box
    tool = box.find("other__add")
    results = await asyncio.gather(*(box.call(tool, {"a": n, "b": 0}) for n in range(6)))
    assert [result.text for result in results] == [f"the sum is {n}" for n in range(6)]


@pytest.mark.slow
async def test_a_server_that_is_closed_leaves_no_process(spec, open_box):
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    box = await open_box(spec(LIGHT))
    begun = {p.pid for p in psutil.Process().children(recursive=True)} - before
    assert len(begun) >= 2
    await box.close()
    alive = {p.pid for p in psutil.Process().children(recursive=True) if p.status() != "zombie"}
    assert not begun & alive


async def test_a_program_that_is_not_there_is_named(open_box):
    box = await open_box(ServerSpec("gone", "/no/such/program"))
    assert box.servers[0].state.phase == "failed"
    assert box.servers[0].state.error == "/no/such/program: No such file or directory"


async def test_the_last_words_of_a_server_that_ends_are_told(spec, open_box):
    box = await open_box(spec("import sys; sys.exit('the key is missing')"))
    assert box.servers[0].state.error == "it ended (exit status 1): the key is missing"


async def test_a_server_that_writes_much_to_stderr_is_not_stopped_by_a_full_pipe(spec, open_box):
    wordy = "import sys\nsys.stderr.write('words ' * 100_000)\nsys.stderr.flush()\n"
    box = await open_box(spec(wordy + LIGHT))
    assert (await called(box, "tester__add", a=1, b=2)).text == "the sum is 3"


@pytest.mark.slow
async def test_a_server_that_says_nothing_is_given_up(spec, open_box):
    box = await open_box(spec(SILENT, starting=0.5))
    assert "did not tell its tools within 0.5 seconds" in box.servers[0].state.error


@pytest.mark.slow
async def test_noise_in_place_of_messages_does_not_become_a_server(spec, open_box):
    box = await open_box(spec(NOISE, starting=1.0))
    assert box.servers[0].state.phase == "failed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"a": 1e999, "b": 2}', "beyond floating point"),
        ('{"a": "\\ud800", "b": 2}', "half a character"),
        ('{"a": ', "not JSON"),
    ],
)
async def test_what_a_server_would_not_get_as_it_was_shown_is_an_error_that_the_model_reads(
    arguments, said
):
    box = Toolbox((ServerSpec("tester", "never-started"),))
    result = await box.run(OfferedTool("tester", "add", "", {}), arguments, 500)
    assert result.failed
    assert said in result.text
    assert box.servers[0].state.phase == "waiting"


async def test_a_schema_whose_trial_was_ended_from_outside_is_tried_again(monkeypatch):
    left = [QueueFullError("ended from outside"), QueueFullError("again")]

    def checked(*_):
        if left:
            raise left.pop()

    monkeypatch.setattr("localspec.grammar.checking.Checker.checked", checked)
    assert toolbox._why_unfit(OfferedTool("tester", "add", "", {})) == ""
    left += [QueueFullError("ended from outside")] * 9
    assert "ended from outside" in toolbox._why_unfit(OfferedTool("tester", "add", "", {}))


async def test_a_message_that_cannot_be_written_ends_its_server_at_once(spec, open_box):
    box = await open_box(spec(LIGHT, seconds=60.0))
    assert "cannot be written" in (await called(box, "tester__add", a="\ud800", b=2)).text
    assert (await called(box, "tester__add", a=1, b=2)).text == "the sum is 3"


async def test_a_message_without_end_is_cut_off(spec, open_box):
    box = await open_box(spec(ENDLESS_LINE))
    assert "more than 8 MB" in box.servers[0].state.error


@pytest.mark.slow
async def test_a_flood_ends_the_server_and_nothing_else(spec, open_box):
    box = await open_box(spec(ROUGH, "bad"), spec(LIGHT, "good"))
    flooded = await called(box, "bad__floods")
    assert flooded.failed
    assert "more than 8 MB" in flooded.text
    assert (await called(box, "good__add", a=1, b=1)).text == "the sum is 2"
    again = await called(box, "bad__long")  # it is started again
    assert not again.failed
    assert len(again.text) < 5200
    assert "cut here" in again.text


@pytest.mark.slow
async def test_a_server_that_dies_is_told_and_started_again(spec, open_box):
    box = await open_box(spec(ROUGH, "bad"))
    died = await called(box, "bad__dies")
    assert died.failed
    assert "exit status 7" in died.text
    assert not (await called(box, "bad__speaks")).failed


@pytest.mark.slow
async def test_a_call_that_hangs_ends_after_its_time(spec, open_box):
    box = await open_box(spec(ROUGH, "bad", seconds=0.3))
    hung = await called(box, "bad__hangs")
    assert hung.failed
    assert "no answer within 0.3 seconds" in hung.text


@pytest.mark.slow
async def test_a_call_can_be_cancelled(spec, open_box):
    box = await open_box(spec(LIGHT))
    call = asyncio.create_task(called(box, "tester__sleep", seconds=3600))
    await asyncio.sleep(0.5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.slow
@shared
async def test_nothing_that_a_server_says_reaches_a_terminal_as_it_is(shared_box):
    box = shared_box
    state = box.servers[0].state
    texts = [state.about, *(tool.description for tool in state.tools)]
    texts.append((await called(box, "bad__escapes")).text)
    for text in texts:
        assert is_safe(text), ascii(text)
        assert "\x1b" not in text
    assert all(len(tool.description) < 1100 for tool in state.tools)


@pytest.mark.slow
@shared
async def test_names_that_cannot_be_shown_are_left_out(shared_box):
    box = shared_box
    state = box.servers[0].state
    assert (state.prompts, state.resources) == (("greet",), ())
    assert list(state.known) == ["greet"]


@shared
async def test_a_result_cannot_end_itself_nor_begin_a_call(shared_box):
    box = shared_box
    text = (await called(box, "bad__forges")).text
    assert "</tool_response>" not in text
    assert "<tool_call>" not in text


@pytest.mark.slow
@shared
async def test_a_name_of_another_server_stays_the_name_of_its_own(shared_box):
    box = shared_box
    imitated = next(tool for tool in box.offered if tool.tool == "other__erase")
    assert imitated.name == "bad__other__erase"
    assert imitated.place == "bad/other__erase"
    assert box.find("other__erase") is None


@pytest.mark.slow
async def test_two_servers_cannot_share_the_name_of_a_tool(spec, open_box):
    box = await open_box(spec(LIGHT, "a b"), spec(LIGHT, "a_b"))
    assert [tool.server for tool in box.offered] == ["a b"] * 2
    assert "another tool has its name" in box.left_out(box.servers[1])[0]


async def test_tools_that_are_more_than_a_request_may_have_are_left_out_and_said_to_be(monkeypatch):
    word = {"type": "string", "description": "x" * 32_000}
    many = [
        OfferedTool("tester", f"t{i}", "", {"type": "object", "properties": {"p": word}})
        for i in range(40)
    ]
    monkeypatch.setattr(toolbox, "_why_unfit", lambda _: "")
    box = Toolbox([ServerSpec("tester", "program")])
    box.servers[0].state = ServerState("ready", tools=tuple(many))
    await box.judge()
    assert 30 < len(box.offered) < len(many)
    assert RequestTools.of(box.offered).tools == tuple(many[: len(box.offered)])
    lines = box.left_out(box.servers[0])
    assert len(lines) == len(many) - len(box.offered)
    assert all("as many as a request may have; /mcp off" in line for line in lines)


@pytest.mark.slow
async def test_a_tool_whose_schema_cannot_be_followed_is_left_out_and_others_stay(spec, open_box):
    costly = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "raw", "version": "0"}},
        "tools/list": {"tools": [
            {"name": "costly", "inputSchema": {"type": "object", "properties": {
                "n": {"type": "integer", "multipleOf": 9999991}}, "required": ["n"]}},
            {"name": "bad name!", "inputSchema": {"type": "object"}},
            {"name": "huge", "inputSchema": {"type": "object", "title": "x" * 99999}},
            {"name": "sound", "inputSchema": {"type": "object"}}]},
    }
    if asked.get("method") in answers:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                          "result": answers[asked["method"]]}), flush=True)
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                          "error": {"code": -32601, "message": "no such method"}}), flush=True)
"""
    box = await open_box(spec(costly))
    server = box.servers[0]
    assert server.state.phase == "ready", server.state.error
    assert [tool.tool for tool in box.offered] == ["sound"]
    lines = " ".join(box.left_out(server))
    assert "costly" in lines
    assert "'bad name!' is no name for a tool" in lines
    assert "huge" in lines


def test_the_interface_process_never_imports_mcp():
    code = (
        "import sys, tui.app, localspec.tools.toolbox, localspec.cli.chat;"
        "sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules or 'pypdf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_process_of_a_server_has_a_limit_of_memory():
    assert host._MEMORY <= 1 << 30


@pytest.mark.slow
async def test_a_server_that_is_switched_off_is_not_called(spec, open_box):
    box = await open_box(spec(LIGHT))
    tool = box.find("tester__add")
    await box.servers[0].switch(on=False)
    assert box.offered == ()
    assert (await box.call(tool, {"a": 1, "b": 1})).failed
    await box.servers[0].switch(on=True)
    assert (await called(box, "tester__add", a=1, b=1)).text == "the sum is 2"


@pytest.mark.parametrize("moment", ["its process starts", "it tells its tools"])
async def test_a_server_can_be_switched_off_while_it_starts_and_on_again(monkeypatch, moment):
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(server_module.children, "command", lambda *_: (silent, None))
    monkeypatch.setattr(server_module, "_GRACE", 0.1)
    server = ServerProcess(ServerSpec("slow", command="sleep"))
    opened = asyncio.create_task(server.open())
    telling = moment == "it tells its tools"
    await until_so(
        lambda: server.state.phase == "starting" and (server._reading or not telling), pause=turn
    )
    await server.switch(on=False)
    await asyncio.wait_for(opened, 10)
    assert server.state.phase == "off"
    assert server._process is None
    again = asyncio.create_task(server.switch(on=True))
    await until_so(lambda: server._reading)
    assert server.state.phase == "starting"
    await server.close()
    await asyncio.wait_for(again, 10)
    assert server.state.phase == "waiting"


async def test_a_process_that_ends_in_the_middle_of_a_line_is_not_said_to_have_sent_too_much(
    monkeypatch,
):
    ends = [sys.executable, "-c", "print('{', end='')"]
    monkeypatch.setattr(server_module.children, "command", lambda *_: (ends, None))
    server = ServerProcess(ServerSpec("slow", command="sleep"))
    await server.open()
    assert server.state.error == "its process ended"
    await server.close()


async def test_a_disabled_server_is_not_started(spec, open_box):
    box = await open_box(spec(LIGHT, disabled=True))
    assert box.servers[0].state.phase == "off"
    assert isinstance(box.servers[0], ServerProcess)
    assert box.servers[0]._process is None


def only_proxy(monkeypatch, proxy):
    """The environment names this proxy for all addresses."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("http://mcp.invalid/mcp", False),
        ("http://127.0.0.1:{port}/mcp", True),
        ("http://localhost:{port}/mcp", True),
    ],
)
async def test_a_server_at_an_address_is_asked_through_the_proxy_unless_it_is_here(
    monkeypatch, open_box, url, direct
):
    asked = []

    async def answer(reader, writer):
        line = await reader.readline()
        asked.append(line.split()[1].decode())
        writer.write(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        only_proxy(monkeypatch, f"http://127.0.0.1:{port}")
        box = await open_box(ServerSpec("web", url=url.format(port=port)))
        assert box.servers[0].state.phase == "failed"
        await box.close()
    assert {one.startswith("http://") for one in asked} == {not direct}
    assert all(one.endswith("/mcp") for one in asked)


async def test_a_proxy_that_is_none_is_named(monkeypatch, open_box):
    only_proxy(monkeypatch, "ftp://x:1")
    box = await open_box(ServerSpec("web", url="http://mcp.invalid/mcp"))
    assert "is not a usable proxy" in box.servers[0].state.error
