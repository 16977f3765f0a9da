"""Comparing with other programs: what we send, what we read, and what happens when they fail."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import Files

from localspec import Options, Runtime, cli
from localspec.bench.peers import (
    Compared,
    Question,
    Setting,
    comparisons,
    llama_server,
    speculative_simple,
)
from localspec.bench.workloads import Workload
from localspec.cli import bench_against
from localspec.core.errors import PeerError, UsageError
from localspec.core.logits import Sampling

SHORT = Workload("short", ("abc abc abc abc", "what is this?"))
QUESTION = Question(
    "text", [5, 6, 7], Sampling(temperature=0.5, logit_bias=((2, -math.inf), (9, 1.5))), 3, 20
)

SERVER = """
    import http.server, json, sys

    class Handler(http.server.BaseHTTPRequestHandler):
        def _say(self, body):
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self._say({"status": "ok"})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            drafted = "--spec-draft-n-max" in sys.argv
            if asked.get("stream"):
                timings = {"predicted_n": 12, "draft_n": 9, "draft_n_accepted": 8}
                events = {"content": ""}, {"content": "a"}, {"content": "b", "timings": timings}
                self.send_response(200)
                self.end_headers()
                for event in events:
                    self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
                return
            timings = {"predicted_n": 20, "predicted_per_second": 50.0}
            if drafted:
                timings |= {"draft_n": 18, "draft_n_accepted": 12}
            self._say({"content": json.dumps([asked, sys.argv[1:]]), "timings": timings})

        def log_message(self, *arguments):
            pass

    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

EXAMPLE = """
    import sys
    print(open(sys.argv[sys.argv.index("-f") + 1]).read(), "said")
    print("decoded   21 tokens in    2.000 seconds, speed:   10.500 t/s", file=sys.stderr)
    print("n_accept  = 14", file=sys.stderr)
"""


def program(folder: Path, name: str, source: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(source)}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def setting(files: Files) -> Setting:
    return Setting(files.target, files.draft, 1, 512, False, frozenset({2}))


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs with a first line")


def test_the_server_is_asked_for_the_very_same_thing(files: Files, tmp_path: Path) -> None:
    plain, drafting = llama_server.modes(program(tmp_path, "server", SERVER), [3], "model")
    with plain.start(setting(files)) as peer:
        spoken = peer.answer(QUESTION)
    asked, flags = json.loads(spoken.text)
    assert asked["prompt"] == [5, 6, 7]
    assert (asked["temperature"], asked["seed"], asked["n_predict"]) == (0.5, 3, 20)
    assert asked["cache_prompt"] is False
    assert asked["logit_bias"] == [[2, False], [9, 1.5]]
    assert "-md" not in flags
    assert (spoken.speed, spoken.tokens_per_round) == (50.0, None)
    with drafting.start(setting(files)) as peer:
        spoken = peer.answer(QUESTION)
    _, flags = json.loads(spoken.text)
    assert flags[flags.index("-md") + 1] == str(files.draft)
    assert flags[flags.index("--spec-draft-n-max") + 1] == "3"
    assert spoken.tokens_per_round == 20 / 8  # eight rounds: each adds one to what it accepts


def test_a_reply_of_the_server_is_timed_while_it_is_written(files: Files, tmp_path: Path) -> None:
    several = dataclasses.replace(setting(files), parallel=4)
    path = program(tmp_path, "server", SERVER)
    with llama_server.running(path, (), several) as server:
        flags = json.loads(server.answer(QUESTION).text)[1]
        streamed = server.stream(QUESTION)
    assert (flags[flags.index("-np") + 1], flags[flags.index("-c") + 1]) == ("4", "2048")
    assert streamed.emitted == 12
    assert streamed.tokens_per_round == 12 / 4
    assert streamed.first > 0


def test_a_server_that_does_not_start_is_quoted(files: Files, tmp_path: Path) -> None:
    broken = program(tmp_path, "server", 'print("no such device"); raise SystemExit(1)')
    mode = llama_server.modes(broken, [], "model")[0]
    with (
        pytest.raises(PeerError, match="did not start; its last output: no such device"),
        mode.start(setting(files)),
    ):
        pass


def test_a_server_that_dies_is_said(files: Files, tmp_path: Path) -> None:
    dying = SERVER.replace("asked =", "import os; os._exit(1); asked =")
    mode = llama_server.modes(program(tmp_path, "server", dying), [], "model")[0]
    with pytest.raises(PeerError, match="server failed"), mode.start(setting(files)) as peer:
        peer.answer(QUESTION)


def test_the_example_is_read_off_its_report(files: Files, tmp_path: Path) -> None:
    [mode] = speculative_simple.modes(program(tmp_path, "example", EXAMPLE), [7])
    with mode.start(setting(files)) as peer:
        spoken = peer.answer(QUESTION)
    assert spoken.speed == 10.5
    assert spoken.tokens_per_round == 21 / 7
    assert "text said" in spoken.text


def test_an_example_that_fails_is_said(files: Files, tmp_path: Path) -> None:
    [mode] = speculative_simple.modes(program(tmp_path, "example", "print('no memory')"), [7])
    with mode.start(setting(files)) as peer, pytest.raises(PeerError, match="no memory"):
        peer.answer(QUESTION)


def test_everything_is_relative_to_our_plain_decoding(files: Files, tmp_path: Path) -> None:
    modes = llama_server.modes(program(tmp_path, "server", SERVER), [3], "model")
    options = Options(model=str(files.target), draft=str(files.draft), draft_max=3)
    with Runtime.open(options) as runtime:
        plain, drafting = comparisons(runtime, setting(files), modes, [SHORT], (0.0,), max_tokens=8)
    assert plain.peer == "llama-server plain"
    assert plain.ratio > 0
    assert plain.ours > 0
    assert plain.tokens_per_round is None
    assert drafting.tokens_per_round == 2.5
    assert (plain.same, plain.prompts) == (0, 2)


def test_the_library_says_what_we_say(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    """llama-cpp-python's own class, on the same file: at temperature 0 the same text."""
    model = [str(files.target), "-d", "none", "-n", "12", "--workload", "chat", "-t", "0"]
    assert cli.call(["bench", *model, "--against", "llama-cpp-python", "--json"]) == 0
    found = [Compared(**c) for c in json.loads(capfd.readouterr().out)["peers"]]
    assert [c.peer for c in found] == ["llama-cpp-python plain", "llama-cpp-python lookup"]
    for c in found:
        assert c.same == c.prompts
    assert found[0].tokens_per_round is None
    assert found[1].tokens_per_round is not None


@pytest.mark.parametrize(
    "named", ["llama-server", "llama-server=", "ollama=/bin/true", "llama-cpp-python=/bin/true"]
)
def test_a_peer_that_is_not_known_is_refused(named: str) -> None:
    with pytest.raises(UsageError, match="--against takes"):
        bench_against.modes([named], [3], "model")


def test_a_peer_that_is_not_there_is_refused_before_anything_is_loaded(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.call(["bench", "nothing.gguf", "--against", "llama-server=/no/such"]) == 2
    assert "no program at /no/such" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif("LOCALSPEC_LLAMA_SERVER" not in os.environ, reason="no llama-server named")
def test_the_real_server_says_what_we_say(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    server = f"llama-server={os.environ['LOCALSPEC_LLAMA_SERVER']}"
    model = ["demo", "-n", "24", "--workload", "json", "-t", "0"]
    assert cli.call(["bench", *model, "--against", server, "--json"]) == 0
    for c in json.loads(capfd.readouterr().out)["peers"]:
        assert c["same"] == c["prompts"]
