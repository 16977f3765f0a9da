"""The real child process with a fake runtime: replies, interrupts, errors, deaths."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import until, until_so

from localspec.core.errors import (
    ContextError,
    DefectError,
    EngineError,
    Interrupted,
    ModelNotFoundError,
    UsageError,
)
from localspec.core.events import Finished, Loading, Message, Notice, Reading, Round, Token
from localspec.core.reply_request import ReplyRequest
from localspec.engine import client as engine_client
from localspec.engine import protocol
from localspec.engine.client import EngineClient
from localspec.engine.messages import OpenedEvent
from localspec.engine.spawn import spawn

ROOT = Path(__file__).parents[2]


async def ask(client, text):
    return [event async for event in client.reply(ReplyRequest((Message("user", text),)))]


async def read_into(events, reply):
    async for event in reply:
        events.append(event)


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, Token))


def gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0]
    except OSError:
        return True
    return state == "Z"  # dead, though nobody has collected it


async def test_a_reply_arrives_whole_and_in_order(make_client):
    client = make_client()
    loading = []
    info = await client.open(loading.append)
    assert info.name == "fake"
    assert loading[0] == Loading("fake", 0.5)
    events = await ask(client, "one two three")
    assert isinstance(events[0], Reading)
    assert isinstance(events[1], Notice)
    assert [type(e) for e in events[2:]] == [Token, Round] * 3 + [Finished]
    assert text_of(events) == "one two three "
    assert events[-1].reply.text == "one two three "


async def test_an_interrupt_ends_a_reply_and_keeps_what_came(client):
    events, reply = [], client.reply(ReplyRequest((Message("user", "forever"),)))
    async for event in reply:
        events.append(event)
        if isinstance(event, Token) and event.token == 20:
            reply.interrupt()
    assert events[-1].reply.finish_reason == "interrupt"
    assert events[-1].reply.text == text_of(events)
    assert text_of(await ask(client, "still here")) == "still here "


async def test_several_replies_come_at_a_time_and_each_is_stopped_on_its_own(client):
    replies = [client.reply(ReplyRequest((Message("user", "forever"),))) for _ in range(3)]
    seen = [[await anext(reply) for _ in range(30)] for reply in replies]
    assert all(any(isinstance(event, Token) for event in events) for events in seen)
    replies[1].interrupt()
    rest = [event async for event in replies[1]]
    assert rest[-1].reply.finish_reason == "interrupt"
    assert rest[-1].reply.text == text_of([*seen[1], *rest])
    for reply in (replies[0], replies[2]):  # they go on
        assert isinstance(await anext(reply), Token | Round)
        reply.close()
    assert text_of(await ask(client, "next")) == "next "


async def test_a_reply_that_nobody_reads_holds_up_no_other(client):
    unread = client.reply(ReplyRequest((Message("user", "forever"),)))
    for i in range(30):
        assert text_of(await ask(client, f"one {i}")) == f"one {i} "
    unread.interrupt()
    events = [event async for event in unread]
    assert events[-1].reply.text == text_of(events)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_what_arrived_of_all_replies_is_kept_when_the_engine_is_killed(client):
    replies = [client.reply(ReplyRequest((Message("user", "forever"),))) for _ in range(8)]
    kept = [[await anext(reply) for _ in range(20)] for reply in replies]
    os.kill(client.pid, signal.SIGKILL)
    for reply, events in zip(replies, kept, strict=True):
        with pytest.raises(EngineError, match="signal 9"):
            await read_into(events, reply)
        tokens = [event.token for event in events if isinstance(event, Token)]
        assert tokens == [*range(len(tokens))]
        assert len(tokens) > 5


async def test_replies_wait_in_line_and_an_interrupt_reaches_the_waiting_ones(client):
    replies = [client.reply(ReplyRequest((Message("user", "forever"),))) for _ in range(2)]
    for reply in replies:
        reply.interrupt()
    for reply in replies:
        assert [event async for event in reply][-1].reply.finish_reason == "interrupt"


async def test_leaving_a_reply_early_interrupts_it(client):
    reply = client.reply(ReplyRequest((Message("user", "forever"),)))
    async for event in reply:
        if isinstance(event, Token):
            break
    reply.close()
    assert text_of(await asyncio.wait_for(ask(client, "next"), 60)) == "next "


async def test_a_reader_that_stops_reading_does_not_block_the_end(make_client):
    client = make_client()
    await client.open()
    events = client.reply(ReplyRequest((Message("user", "forever"),)))
    await anext(events)
    await asyncio.wait_for(client.close(), 60)
    with pytest.raises(EngineError):
        async for _ in events:
            pass


async def test_an_error_of_the_core_arrives_as_itself_and_the_next_reply_works(client):
    with pytest.raises(ContextError, match="9 tokens"):
        await ask(client, "too long")
    assert text_of(await ask(client, "fine")) == "fine "


async def test_nothing_of_a_refused_request_is_in_the_log(make_client, tmp_path):
    client = make_client()
    await client.open()
    with pytest.raises(ContextError, match="9 tokens"):
        await ask(client, "too long")
    client._process.stdin.write(b'{"type":"reply","id":7,"request":{"grammar":"a secret"}}\n')
    assert text_of(await ask(client, "fine")) == "fine "
    await client.close()
    log = (tmp_path / "log/engine.log").read_text()
    assert "closed" in log
    assert "refused a command: UsageError" in log
    assert not any(words in log for words in ("9 tokens", "secret", "grammar"))


def test_a_log_that_is_full_begins_anew_and_native_code_prints_into_the_new_one(tmp_path):
    program = """
        import logging, os, sys
        from pathlib import Path
        from localspec.core.files import log_file
        from localspec.engine.main import EngineLog
        log_file.LARGEST = 1000
        logging.basicConfig(handlers=[EngineLog(Path(sys.argv[1]))])
        for number in range(99):
            logging.warning("record %s", number)
            os.write(2, b"printed\\n")
        os.write(1, b"the last words")
    """
    log = tmp_path / "engine.log"
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), log], check=True, cwd=ROOT)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert files.keys() == {"engine.log", "engine.log.1"}
    assert all(len(text) < 1100 for text in files.values())
    assert "record 98" in files["engine.log"]
    assert files["engine.log"].endswith("the last words")
    assert "printed" in files["engine.log.1"]


def test_the_last_words_of_an_engine_are_in_the_log_that_another_one_began_anew(tmp_path):
    program = """
        import logging, os, sys
        from pathlib import Path
        from localspec.core.files import log_file
        from localspec.engine.main import EngineLog
        log_file.LARGEST = 1000
        logging.basicConfig(handlers=[EngineLog(Path(sys.argv[1]))])
        logging.warning("begun")
        sys.stdin.readline()
        for number in range(int(sys.argv[2])):
            logging.warning("record %s", number)
        os.write(2, b"the last words of %d" % os.getpid())
    """
    log = tmp_path / "engine.log"
    command = [sys.executable, "-c", textwrap.dedent(program), log]
    engines = [
        subprocess.Popen([*command, n], stdin=subprocess.PIPE, cwd=ROOT) for n in ("0", "90")
    ]
    until(lambda: log.exists() and log.read_text().count("begun") == 2)
    for engine in reversed(engines):
        engine.communicate()
    assert (tmp_path / "engine.log.1").exists()
    for engine in engines:
        assert f"the last words of {engine.pid}" in log.read_text()
    assert len(log.read_text()) < 1100


async def test_a_bug_is_one_line_here_and_a_traceback_in_the_log(client, tmp_path):
    with pytest.raises(DefectError) as caught:
        await ask(client, "bug")
    assert "KeyError" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" in (tmp_path / "log/engine.log").read_text()
    assert text_of(await ask(client, "fine")) == "fine "


async def test_what_native_code_prints_goes_to_the_log(client, tmp_path):
    await ask(client, "hello")
    await client.close()
    log = (tmp_path / "log/engine.log").read_text()
    assert log.index("INFO localspec.engine: begun") < log.index("not to the protocol")
    assert "native code prints" in log
    assert "closed by order" in log


async def test_a_missing_model_raises_its_own_error(make_client):
    client = make_client("missing")
    with pytest.raises(ModelNotFoundError, match="localspec models"):
        await client.open()
    assert not client.alive


async def test_death_while_loading(make_client):
    deaths = []
    client = make_client("dies", on_death=deaths.append)
    with pytest.raises(EngineError, match="exit status 3"):
        await client.open()
    assert not deaths  # open() has said it


async def test_a_runtime_that_does_not_exist(tmp_path):
    from dataclasses import make_dataclass

    options = make_dataclass("Nothing", [])()
    client = EngineClient(options, log_dir=tmp_path, runtime="no_such_module:create")
    with pytest.raises(EngineError, match=r"engine\.log"):
        await client.open()
    assert "no_such_module" in (tmp_path / "engine.log").read_text()
    await client.close()


async def test_a_log_that_cannot_be_written(tmp_path):
    from dataclasses import make_dataclass

    (tmp_path / "file").write_text("in the way")
    client = EngineClient(make_dataclass("Nothing", [])(), log_dir=tmp_path / "file" / "log")
    with pytest.raises(EngineError, match="LOCALSPEC_HOME"):
        await client.open()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_killed_between_replies_it_says_so_and_starts_again(make_client):
    deaths = []
    client = make_client(on_death=deaths.append)
    await client.open()
    os.kill(client.pid, signal.SIGKILL)
    await until_so(lambda: deaths)
    assert "signal 9, SIGKILL" in str(deaths[0])
    assert not client.alive
    with pytest.raises(EngineError, match="not running"):
        await ask(client, "hello")
    await client.open()
    assert text_of(await ask(client, "again")) == "again "


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("order", ["abort", "kill"])
async def test_dying_in_the_middle_of_a_reply_raises_there(client, order):
    seen = []

    async def listen():
        prompt = "abort" if order == "abort" else "forever"
        async for event in client.reply(ReplyRequest((Message("user", prompt),))):
            seen.append(event)
            if isinstance(event, Token) and event.token == 5:
                os.kill(client.pid, signal.SIGKILL)

    with pytest.raises(EngineError, match="signal"):
        await listen()
    assert order == "abort" or text_of(seen).startswith("forever " * 5)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the fake looks into /proc")
async def test_an_engine_that_talks_nonsense_is_ended(client):
    with pytest.raises(EngineError, match="not a line of the protocol"):
        await ask(client, "garble")
    await until_so(lambda: not client.alive)


def start_child(tmp_path, model="fake"):
    """The child by hand, without the client."""
    arguments = ["--log", str(tmp_path / "log"), "--runtime", "fake_runtime:create"]
    child = subprocess.Popen(
        [sys.executable, "-m", "localspec.engine", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    child.stdin.write(b'{"type":"open","options":{"model":"%s"}}\n' % model.encode())
    child.stdin.flush()
    assert json.loads(child.stdout.readline())["type"] == "hello"
    return child


def next_of(child, kind):
    while line := child.stdout.readline():
        message = json.loads(line)
        if message["type"] == kind:
            return message
    raise AssertionError(f"the engine ended without {kind!r}")


def finished(child):
    """The reply that the next stream of events ends with."""
    while True:
        event = next_of(child, "events")["events"][-1]
        if isinstance(event, dict) and event["type"] == "finished":
            return event["reply"]


def test_a_garbage_line_is_answered_and_survived(tmp_path):
    with start_child(tmp_path) as child:
        next_of(child, "opened")
        for line, error, number in (
            (b"nonsense", "DefectError", None),
            (b"", "DefectError", None),
            (b'{"type":"reply","id":3}', "UsageError", 3),
            (b'{"type":"reply","id":99999999999999999999}', "UsageError", None),
            (b"x" * 17_000_000, "DefectError", None),
        ):
            child.stdin.write(line + b"\n")
            child.stdin.flush()
            answer = next_of(child, "failed")
            assert (answer["error"], answer["id"]) == (error, number)
        child.stdin.write(
            b'{"type":"reply","id":4,"request":{"messages":[{"role":"user","content":"ok"}]}}\n'
        )
        child.stdin.flush()
        assert finished(child)["text"] == "ok "
        child.stdin.write(b'{"type":"close"}\n')
        child.stdin.flush()
        assert child.wait(60) == 0


def test_a_reply_before_a_model_fails_politely(tmp_path):
    with start_child(tmp_path, "missing") as child:
        assert next_of(child, "failed")["error"] == "ModelNotFoundError"
        child.stdin.write(b'{"type":"reply","id":4,"request":{"messages":[]}}\n')
        child.stdin.flush()
        assert next_of(child, "failed")["message"] == "no model is open"
        child.stdin.close()
        assert child.wait(60) == 0


def test_the_end_of_the_pipe_ends_it_in_the_middle_of_a_load(tmp_path):
    with start_child(tmp_path, "slow") as child:
        next_of(child, "loading")
        child.stdin.close()
        assert child.wait(60) == 0  # the load would take ten minutes


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_of_the_terminal_does_not_reach_it(tmp_path):
    with start_child(tmp_path) as child:
        next_of(child, "opened")
        child.send_signal(signal.SIGINT)
        child.stdin.write(
            b'{"type":"reply","id":4,"request":{"messages":[{"role":"user","content":"ok"}]}}\n'
        )
        child.stdin.flush()
        assert finished(child)["text"] == "ok "
        child.stdin.close()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
async def test_it_dies_with_its_parent(tmp_path):
    script = textwrap.dedent("""
        import asyncio, sys
        from dataclasses import make_dataclass
        from pathlib import Path
        from localspec.engine.client import EngineClient
        async def main():
            options = make_dataclass("Options", [("model", str)])("fake")
            client = EngineClient(options, log_dir=Path(sys.argv[1]), runtime="fake_runtime:create")
            await client.open()
            print(client.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """)
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{ROOT}"},
    )
    pid = int(await parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    await parent.wait()
    await until_so(lambda: gone(pid))


async def test_loading_can_be_cancelled_and_begun_again(make_client):
    client = make_client("slow")
    begun = asyncio.Event()
    opening = asyncio.create_task(client.open(lambda loading: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    pid = client.pid
    await asyncio.wait_for(client.close(), 60)
    with pytest.raises(Interrupted, match="loading was stopped"):
        await opening
    await until_so(lambda: gone(pid))
    client._options["model"] = "fake"
    await client.open()
    assert text_of(await ask(client, "after all")) == "after all "


async def test_loading_is_stopped_also_before_its_process_is_there(make_client):
    client = make_client("slow")
    opening = asyncio.create_task(client.open())
    await asyncio.sleep(0)  # it waits for the process now
    assert client.pid is None
    await client.close()
    with pytest.raises(Interrupted, match="loading was stopped"):
        await asyncio.wait_for(opening, 60)
    assert not client.alive


async def test_a_process_is_ended_whose_start_nobody_waits_for_any_more(make_client, monkeypatch):
    started = []

    async def slow(*arguments):
        started.append(await spawn(*arguments))
        await asyncio.sleep(0.05)
        return started[0]

    monkeypatch.setattr(engine_client, "spawn", slow)
    engine = make_client()
    opening = asyncio.create_task(engine.open())
    await until_so(lambda: started)
    opening.cancel()
    await engine.close()
    assert started[0].returncode is not None
    assert not engine.alive


@pytest.fixture
def processes(monkeypatch):
    """The processes that clients start."""
    found = []

    async def noted(*arguments):
        found.append(await spawn(*arguments))
        return found[-1]

    monkeypatch.setattr(engine_client, "spawn", noted)
    return found


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("before", ["closed", "killed", "running"])
async def test_closing_just_after_it_was_opened_again_leaves_no_process(
    make_client, processes, before, turns
):
    engine = make_client()
    await engine.open()
    if before == "closed":
        await engine.close()
    if before == "killed":
        processes[0].kill()
        await until_so(lambda: not engine.alive)
    opening = asyncio.create_task(engine.open())
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns == 0:  # it has not begun, and begins after that
        await engine.close()
        await opening
    await engine.close()
    if turns:
        with pytest.raises(Interrupted):
            await opening
    assert all(one.returncode is not None for one in processes)


@pytest.mark.parametrize("running", [False, True])
async def test_of_two_that_open_at_once_one_process_runs(make_client, processes, running):
    engine = make_client()
    await engine.open()
    if not running:
        await engine.close()
    told = await asyncio.gather(engine.open(), engine.open(), return_exceptions=True)
    assert [type(one) for one in told].count(Interrupted) == 1
    assert [one.returncode for one in processes].count(None) == 1
    await engine.close()
    assert all(one.returncode is not None for one in processes)


async def test_loading_is_stopped_also_as_it_ends(make_client):
    client = make_client("fake")
    deliver, closing = client._deliver, []

    def stop(event):
        if isinstance(event, OpenedEvent):
            closing.append(asyncio.ensure_future(client.close()))
        asyncio.get_running_loop().call_soon(deliver, event)  # after `close` has begun

    client._deliver = stop
    with pytest.raises(Interrupted, match="loading was stopped"):
        await asyncio.wait_for(client.open(), 60)
    await asyncio.gather(*closing)
    assert not client.alive


async def test_a_request_after_the_engine_was_closed_fails(client):
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)  # it waits for the process now
    with pytest.raises(EngineError, match="closed"):
        await asyncio.wait_for(ask(client, "hello"), 60)
    await closing


async def test_what_waits_is_done_when_nothing_is_asked_for_a_moment(client, tmp_path):
    await ask(client, "hello")
    await until_so(lambda: "rested" in (tmp_path / "log/engine.log").read_text())
    assert text_of(await ask(client, "still here")) == "still here "


async def test_a_message_beyond_the_limit_of_a_line_is_a_sentence_and_the_next_one_works(client):
    with pytest.raises(UsageError, match="too long to be sent"):
        await ask(client, "x" * (17 << 20))
    with pytest.raises(UsageError, match="too long to be sent"):
        await ask(client, "ж" * 3_000_000)  # six bytes each on the line
    assert text_of(await ask(client, "still here")) == "still here "


async def test_a_text_that_nobody_waits_for_is_split_no_more(client, tmp_path):
    log = tmp_path / "log/engine.log"
    asked = asyncio.create_task(client.tokenize(ReplyRequest(prompt="Hi")))
    await until_so(lambda: "splits Hi" in log.read_text())
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert "split no more" in log.read_text()  # it has ended there
    assert text_of(await ask(client, "still here")) == "still here "


async def test_of_a_message_that_is_far_too_long_no_line_is_written(client, monkeypatch):
    monkeypatch.setattr(protocol, "_ENCODER", None)
    turn = Message("tool", "", name="n" * (17 << 20))
    with pytest.raises(UsageError, match="too long to be sent to the engine: 17 MB"):
        client.reply(ReplyRequest((turn,)))
    monkeypatch.undo()


async def test_a_command_that_is_not_understood_ends_the_replies_that_wait(client):
    waiting = asyncio.create_task(ask(client, "forever"))
    await until_so(lambda: client._replies)
    client._process.stdin.write(b'{"type":"reply","id":"?"}\n')
    with pytest.raises(EngineError, match=r"reply\.id"):
        await waiting
