"""`localspec serve` as a program: its flags, its signals, and what a dead engine does to it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import known_speed
import psutil
import pytest

from localspec.cli import call

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "API key"),
        (["--host", "192.0.2.1"], 2, "API key"),
        (["--host", "no.such.name.invalid"], 2, "no such address"),
        (["--api-key", "short"], 2, "8 characters"),
        (["--api-key-file", "/nonexistent"], 2, "cannot read"),
        (["--port", "99999"], 2, "--port"),
        (["--seed", "5"], 2, "--seed"),
        (["nothing-by-that-name", "--port", "0"], 3, "no model"),
    ],
)
def test_bad_flags_are_one_line_and_a_code(capsys, arguments, code, words):
    assert call(["serve", *arguments]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_key_file_has_a_key_on_each_line(tmp_path, capsys):
    from localspec.cli.serve import _keys_of

    file = tmp_path / "keys"
    file.write_text("# ours\n\nfirst-key-of-ours\n second-key-of-ours \n")
    assert _keys_of(file) == ["first-key-of-ours", "second-key-of-ours"]
    file.write_text("# none\n")
    assert call(["serve", "--api-key-file", str(file)]) == 2
    assert "no API key" in capsys.readouterr().err


@pytest.fixture
def served(monkeypatch):
    """The options of the servers that were started, which end at once."""
    from localspec.serve import serving

    found = []

    class Kept:
        def __init__(self, settings, options, front):
            found.append(options)

        async def run(self):
            return 0

    monkeypatch.setattr(serving, "Serving", Kept)
    return found


@pytest.mark.parametrize("flags", [[], ["--save-states"]])
def test_the_server_saves_states_only_if_told_to(served, flags):
    assert call(["serve", "demo", *flags]) == 0
    assert [options.save_states for options in served] == [bool(flags)]


def test_a_number_of_jobs_in_the_settings_is_that_of_the_server(served):
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("jobs = 1\n")
    assert call(["serve", "demo"]) == 0
    assert [options.parallel for options in served] == [1]


def test_what_has_no_effect_on_the_server_is_told(served, capsys, tmp_path):
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[presets.brief]\nsystem = "Be brief."\n')
    place = ["--unix", str(tmp_path / "s"), "--port", "8081"]
    assert call(["serve", "demo", "--preset", "brief", *place]) == 0
    system, port = capsys.readouterr().err.splitlines()
    assert "system message of preset brief is not used" in system
    assert "--port has no effect beside --unix" in port
    assert len(served) == 1


@pytest.fixture
def program(tmp_path):
    """A server of the demo pair at a Unix socket, with a client; it is killed at the end."""
    path = tmp_path / "s.sock"
    environment = os.environ | {"LOCALSPEC_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    known_speed.save()
    asked = ["serve", "demo", "--unix", str(path), "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "localspec", *asked],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, ready = [], threading.Event()

    def read():
        for line in process.stderr:
            said.append(line)
            if "Ctrl-C stops" in line:
                ready.set()
        ready.set()

    reading = threading.Thread(target=read)
    reading.start()
    ready.wait()
    transport = httpx2.HTTPTransport(uds=str(path))
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=90) as client:
        yield process, client, said
    process.kill()
    process.wait()
    reading.join()
    process.stderr.close()


HI = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals and Unix sockets")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_code_and_leaves_no_process(program, number, code):
    process, client, said = program
    answer = client.post("/v1/chat/completions", json=HI)
    assert answer.json()["usage"]["completion_tokens"] == 8
    engines = psutil.Process(process.pid).children()
    process.send_signal(number)
    assert process.wait(60) == code
    assert not any(engine.is_running() for engine in engines)
    assert not Path(str(client._transport._pool._uds)).exists()
    assert "Traceback" not in "".join(said)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals and Unix sockets")
def test_an_abort_of_the_engine_costs_its_replies_and_not_the_server(program):
    process, client, said = program
    (engine,) = psutil.Process(process.pid).children()
    # Nothing of the reply ends it, so that it runs when the engine is killed.
    endless = HI | {"max_tokens": 700, "stream": True, "logit_bias": {"1": -100, "2": -100}}
    with client.stream("POST", "/v1/chat/completions", json=endless) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.kill()
        rest = "".join(lines)
    assert "engine_stopped" in rest or "[DONE]" in rest
    answer = client.post("/v1/chat/completions", json=HI)
    assert answer.status_code in {200, 503}
    answer = client.post("/v1/chat/completions", json=HI)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert any("starting it again" in line for line in said)
