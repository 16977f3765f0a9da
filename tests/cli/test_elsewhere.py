"""Commands with --url and --connect, keys, and what they leave behind."""

import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from picture_files import png
from waiting import PATIENCE, until

sys.path.append(str(Path(__file__).parents[1] / "remote"))

from played_server import DONE, HANG, STREAM, PlayedServer, ended, http, models, said

from localspec.chats.schema import default_path
from localspec.cli import call, chat, elsewhere
from localspec.config import running_servers
from localspec.config import settings as config
from localspec.config.running_servers import RunningServer
from localspec.core.errors import AccessError, UsageError
from localspec.core.files import paths
from localspec.core.processes import starts
from localspec.remote import keys
from localspec.remote.address import parse

CHAT = "/v1/chat/completions"
WHOLE = [STREAM, said("Hello"), said(" there"), ended(), DONE]
SECRET = "sk-secret-0123456789abcdef"


@pytest.fixture
def played():
    """Starts a server in a thread: ``played({path: answer})``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers = []

    def start(routes):
        server = PlayedServer({"/v1/models": models("m")} | routes)
        servers.append(asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10))
        return server

    yield start
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in (keys.OWN, keys.OPENAI):
        monkeypatch.delenv(name, raising=False)


def configure(text):
    paths.make(paths.config_dir())
    (paths.config_dir() / "config.toml").write_text(text)
    config.settings.cache_clear()


def typed(monkeypatch, text):
    stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr("sys.stdin", stdin)


def test_run_streams_the_reply_of_a_server(played, capsys):
    server = played({CHAT: WHOLE})
    assert call(["run", "--url", server.url, "Hi", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "Hello there\n"
    assert call(["run", "--url", server.url, "Hi", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["text"], found["stats"]["speculation"]["state"]) == ("Hello there", "unknown")
    assert found["tokens"] == found["origins"] == []
    unknown = {name: found["stats"][name] for name in ("drafted", "accepted", "acceptance")}
    assert set(unknown.values()) == {None}
    assert found["stats"]["clock"] == "request"


def test_run_and_the_chat_send_pictures_to_a_server(played, capsys, monkeypatch, tmp_path):
    server, image = played({CHAT: WHOLE}), tmp_path / "cat.png"
    image.write_bytes(png())
    assert call(["run", "--url", server.url, "--image", str(image), "What?"]) == 0
    typed(monkeypatch, f"/image {image}\nWhat?\nSure?\n")
    assert call(["chat", "--url", server.url, "--plain"]) == 0
    assert capsys.readouterr().out.count("Hello there") == 3
    asked = [asked.json["messages"][0]["content"] for asked in server.asked_for(CHAT)]
    url = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]
    assert asked == [parts] * 3  # with the whole conversation, too


def test_what_had_arrived_of_a_reply_that_breaks_off_is_printed_as_json_too(played, capsys):
    server = played({CHAT: [STREAM, said("Hel"), said("lo")]})
    assert call(["run", "--url", server.url, "Hi", "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["text"], found["complete"], found["finish_reason"]) == (
        "Hello",
        False,
        "interrupt",
    )
    assert "broke the reply off" in err


def test_lines_of_a_chat_go_on_after_a_reply_that_broke_off(played, capsys, monkeypatch):
    server = played({CHAT: ([STREAM, said("Hel")], WHOLE)})
    typed(monkeypatch, "One\nTwo\n")
    assert call(["chat", "--url", server.url]) == 1
    out, err = capsys.readouterr()
    assert out == "Hel\nHello there\n"
    assert "broke the reply off in the middle" in err
    asked = server.asked_for(CHAT)[1].json["messages"]
    assert [m["content"] for m in asked] == ["One", "Hel", "Two"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--ctx", "99"], "--ctx is for a model that is loaded here"),
        (["-m", "other"], "has no model 'other'; it has m"),
        (["--parallel", "-"], "--parallel answers with a model of this machine"),
    ],
)
def test_what_belongs_to_a_model_of_this_machine_is_refused(played, capsys, line, said):
    server = played({})
    prompt = [] if "--parallel" in line else ["Hi"]
    assert call(["run", "--url", server.url, *prompt, *line]) in {2, 3}
    assert said in capsys.readouterr().err


def test_no_server_is_one_line(capsys):
    assert call(["run", "--url", "http://127.0.0.1:9/v1", "Hi"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no server listens at http://127.0.0.1:9/v1" in err
    assert call(["chat", "--connect", "auto", "--plain"]) == 3
    assert "start one: localspec serve" in capsys.readouterr().err
    assert call(["chat", "--connect", "auto", "--url", "http://h"]) == 2


def test_a_key_reaches_the_server_and_no_file_and_no_output(played, capsys, monkeypatch):
    echo = http(401, {"error": {"message": f"wrong key {SECRET}"}})
    server = played({CHAT: (WHOLE, echo)})
    monkeypatch.setenv(keys.OWN, SECRET)
    typed(monkeypatch, "One\nTwo\n")
    assert call(["chat", "--url", server.url]) == 4
    assert server.asked_for(CHAT)[0].headers["authorization"] == f"Bearer {SECRET}"
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    home = paths.state_dir().parent
    files = [file for file in home.rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    assert not default_path().exists()  # a pipe saves no chat


def test_the_key_ring_is_asked_by_a_command(tmp_path):
    ring = tmp_path / "ring.py"
    ring.write_text(f"print({SECRET!r})")
    configure(f"api_key_command = '{sys.executable} {ring}'\n")
    assert keys.find(parse("http://10.0.0.1/v1")).headers == {"Authorization": f"Bearer {SECRET}"}
    configure("api_key_command = 'no-such-program-here'\n")
    with pytest.raises(AccessError, match="cannot run no-such-program-here"):
        keys.find(parse("http://10.0.0.1/v1"))
    ring.write_text("raise SystemExit(3)")
    configure(f"api_key_command = '{sys.executable} {ring}'\n")
    with pytest.raises(AccessError, match="status 3"):
        keys.find(parse("http://10.0.0.1/v1"))


def test_the_key_of_another_service_never_travels_unencrypted(monkeypatch):
    monkeypatch.setenv(keys.OPENAI, SECRET)
    assert not keys.find(parse("http://10.0.0.1:8000/v1"))
    assert keys.find(parse("https://api.example.com/v1"))
    assert keys.find(parse("http://127.0.0.1:8000/v1"))


@pytest.mark.parametrize("text", [f"{SECRET}\nX-Evil: 1", "sk-\x1b[2J", "x" * 5000])
def test_what_is_no_key_is_refused_without_being_shown(monkeypatch, text):
    monkeypatch.setenv(keys.OWN, text)
    with pytest.raises(UsageError) as refused:
        keys.find(parse("http://127.0.0.1/v1"))
    assert text not in str(refused.value)
    assert SECRET not in str(refused.value)


def announce(server, key):
    """A server that is announced as one of this user."""
    address = server.url.removesuffix("/v1")
    pid = os.getpid()
    began = starts.began(pid)
    running_servers.announce(RunningServer(address, "demo", None, "/t.gguf", key, pid, began))


def ring(tmp_path, status=0):
    """Sets api_key_command; the file that gets a line for each time it runs."""
    program, runs = tmp_path / "ring.py", tmp_path / "runs"
    program.write_text(
        f"print({SECRET!r}); open({str(runs)!r}, 'a').write('x'); raise SystemExit({status})"
    )
    configure(f"api_key_command = '{sys.executable} {program}'\n")
    return runs


def in_terminal(monkeypatch, wanted=True):
    """What is opened elsewhere by a chat in a terminal, whose user says yes."""
    opened = []
    monkeypatch.setattr(elsewhere, "confirm", lambda *_, **__: wanted)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setattr(chat, "_over", lambda server, *_: opened.append(server) or 0)
    monkeypatch.setattr("tui.in_terminal.run", lambda *_, **__: 0)
    return opened


@pytest.mark.parametrize("key", [False, True])
def test_an_announced_server_gets_a_key_only_where_it_requires_one(
    played, monkeypatch, tmp_path, key
):
    server, runs = played({"/localspec/info": http(200, {"version": 1})}), ring(tmp_path)
    announce(server, key=key)
    opened = in_terminal(monkeypatch)
    assert call(["chat", "demo"]) == 0
    sent = {asked.headers.get("authorization") for asked in server.asked}
    assert sent == {f"Bearer {SECRET}" if key else None}
    assert [bool(one.key) for one in opened] == [key]
    assert runs.exists() is key
    assert not key or runs.read_text() == "x"  # once: it may ask for a password


def test_a_key_ring_that_fails_is_no_reason_not_to_load_a_model_here(played, monkeypatch, tmp_path):
    server, runs = played({"/localspec/info": http(200, {"version": 1})}), ring(tmp_path, 3)
    announce(server, key=True)
    opened = in_terminal(monkeypatch)
    assert call(["chat", "demo"]) == 0
    assert runs.exists()
    assert (opened, server.asked) == ([], [])


@pytest.mark.parametrize("command", ["true", "printf 'a\\nb'", "'"])
def test_a_key_ring_that_gives_no_key_is_no_reason_not_to_load_a_model_here(
    played, monkeypatch, command
):
    server = played({"/localspec/info": http(200, {"version": 1})})
    configure(f"api_key_command = {json.dumps(command)}\n")
    announce(server, key=True)
    opened = in_terminal(monkeypatch)
    assert call(["chat", "demo"]) == 0
    assert (opened, server.asked) == ([], [])


def test_an_odd_key_of_the_environment_is_no_reason_not_to_load_a_model_here(played, monkeypatch):
    server = played({"/localspec/info": http(200, {"version": 1})})
    monkeypatch.setenv(keys.OWN, "two\nlines")
    announce(server, key=True)
    opened = in_terminal(monkeypatch)
    assert call(["chat", "demo"]) == 0
    assert (opened, server.asked) == ([], [])


def test_a_running_server_is_found_and_must_answer(played, capsys, monkeypatch):
    info = http(200, {"version": 1, "info": {}})
    announce(played({"/localspec/info": info}), key=False)
    typed(monkeypatch, "Hi\n")
    assert call(["chat", "--connect", "auto"]) == 1
    assert "speaks protocol version 1" in capsys.readouterr().err


def test_a_running_server_that_wants_a_key_is_named(played, capsys, monkeypatch):
    announce(played({"/localspec/info": http(401, {"error": "key"})}), key=True)
    typed(monkeypatch, "Hi\n")
    assert call(["chat", "--connect", "auto"]) == 4
    assert "requires its key; set LOCALSPEC_API_KEY" in capsys.readouterr().err


def test_the_chat_starts_without_an_http_client_where_no_server_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "localspec.remote.probe", None)  # its import fails
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setattr("tui.in_terminal.run", lambda *_, **__: 0)
    assert call(["chat", "demo"]) == 0


@pytest.mark.parametrize("wanted", [True, False])
def test_a_server_with_the_same_model_is_offered(played, monkeypatch, wanted):
    server = played({"/localspec/info": http(200, {"version": 1})})
    announce(server, key=False)
    asked, opened = [], []
    monkeypatch.setattr(elsewhere, "confirm", lambda text, **_: asked.append(text) or wanted)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setattr(chat, "_over", lambda server, *_: opened.append(server) or 0)
    monkeypatch.setattr("tui.in_terminal.run", lambda *_, **__: 0)
    assert call(["chat", "demo", "--temp", "0"]) == 0
    assert "has demo loaded; use it instead of loading it twice?" in asked[0]
    assert [one.address.root for one in opened] == [server.url.removesuffix("/v1")] * wanted
    assert call(["chat", "demo", "--ctx", "512"]) == 0
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("command", "hangs", "number", "code"),
    [
        ("verify", "--url", signal.SIGINT, 130),
        ("verify", "--plain-url", signal.SIGTERM, 143),
        ("bench", "--url", signal.SIGTERM, 143),
        ("bench", "--plain-url", signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_a_command_that_waits_for_either_server(played, command, hangs, number, code):
    whole = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    answers = http(200, {"choices": [whole]}) if command == "verify" else WHOLE
    one = played({CHAT: [b"", HANG] if hangs == "--url" else answers})
    plain = played({CHAT: [b"", HANG] if hangs == "--plain-url" else answers})
    line = [command, "--url", one.url, "--plain-url", plain.url]
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        waited = {"--url": one, "--plain-url": plain}[hangs]
        until(lambda: waited.asked_for(CHAT), process=process)
        process.send_signal(number)
        try:
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert b"Traceback" not in err
