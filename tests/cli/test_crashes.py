"""llama.cpp dies of a signal: one line, exit code 1, and what was printed and measured is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf_tools
import psutil
import pytest
from conftest import Files
from crashing import crashing, reached
from waiting import until

ROOT = Path(__file__).parent.parent.parent
DECODE = "llama_cpp.llama_cpp:llama_decode"
LOAD = "llama_cpp.llama_cpp:llama_model_load_from_file"
ASSERTION = "/llama.cpp/src/a.cpp:12: GGML_ASSERT(n \x1b]0;title\x07 > 0) failed\n"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="commands are contained on Linux only"
)


def run(args: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | (env or {}),
        timeout=100,
        check=False,
    )


def sentence(err: str) -> str:
    """The only line on stderr besides what the command was doing."""
    stages = ("localspec: measuring", "localspec: comparing", "localspec: json")
    (line,) = [x for x in err.splitlines() if not x.startswith(stages)]
    assert line.startswith("localspec: ")
    assert line.isprintable()
    return line


def log() -> Path:
    return Path(os.environ["LOCALSPEC_HOME"]) / "state" / "native.log"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGILL, signal.SIGBUS])
def test_a_fault_while_loading_names_the_file_and_the_signal(
    files: Files, tmp_path: Path, number: signal.Signals
) -> None:
    env = crashing(tmp_path, LOAD, number=number)
    done = run(["run", "x", "-m", str(files.target), "-d", "none"], env)
    assert done.returncode == 1
    assert done.stdout == ""
    line = sentence(done.stderr)
    assert f"crashed with signal {int(number)} ({number.name})" in line
    assert f"while loading {files.target}" in line
    assert f"the log is {log()}" in line
    advice = "changed or cut short" if number == signal.SIGBUS else "localspec doctor"
    assert advice in line
    assert "Fatal Python error" in log().read_text()


def test_an_abort_is_told_in_llama_cpps_own_words_made_harmless(
    files: Files, tmp_path: Path
) -> None:
    env = crashing(tmp_path, LOAD, number=signal.SIGABRT, words=ASSERTION)
    done = run(["run", "x", "-m", str(files.target), "-d", "none"], env)
    assert done.returncode == 1
    line = sentence(done.stderr)
    assert r"a.cpp:12: GGML_ASSERT(n \x1b]0;title\x07 > 0) failed" in line
    assert "\x1b" not in log().read_text()


def test_an_abort_of_an_embedding_model_is_told_as_well(files: Files, tmp_path: Path) -> None:
    model = gguf_tools.write_embedder(tmp_path / "bert.gguf")
    done = run(["embed", str(model)], crashing(tmp_path, LOAD, number=signal.SIGABRT))
    assert done.returncode == 1
    assert f"while loading {model}" in sentence(done.stderr)


@pytest.mark.slow
def test_what_was_streamed_before_a_crash_is_kept(files: Files, tmp_path: Path) -> None:
    model = ["-m", str(files.target), "-d", "none", "--threads", "1", "--drafter", "off"]
    asked = ["run", "hello", *model, "-t", "0", "-n", "200"]
    whole = run(asked).stdout
    # Not at a pass: those of this model are over before much of the reply was printed.
    done = run(asked, crashing(tmp_path, "localspec.cli.output:write", call=40))
    assert done.returncode == 1
    assert 0 < len(done.stdout) < len(whole)
    assert whole.startswith(done.stdout)
    assert f"while answering with {files.target}" in sentence(done.stderr)


def test_lines_that_run_when_it_crashes_are_printed_as_far_as_they_are(
    files: Files, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text("hello\none two three\n")
    model = ["-m", str(files.target), "-d", "none", "--threads", "1", "--drafter", "off"]
    asked = ["run", "--parallel", str(prompts), "--jobs", "2", *model, "-t", "0", "-n", "200"]
    done = run(asked, crashing(tmp_path, "localspec.cli.run_report:Partial.take", call=60))
    assert done.returncode == 1
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found
    for one in found:
        assert one["index"] in {0, 1}
        assert one["complete"] is False
        assert one["tokens"]
    sentence(done.stderr)


@pytest.mark.slow
def test_a_plain_chat_ends_with_the_sentence(files: Files, tmp_path: Path) -> None:
    model = [str(files.target), "-d", "none", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "chat", *model],
        input="hello\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | crashing(tmp_path, DECODE, call=60),
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert "SIGSEGV" in sentence(done.stderr)


def test_verify_prints_what_was_compared_before_a_crash(files: Files, tmp_path: Path) -> None:
    model = [str(files.target), "-d", str(files.draft), "--threads", "1", "-n", "6"]
    asked = ["verify", *model, "--limit", "2"]
    moment = crashing(tmp_path, "localspec.bench.exactness:complete", call=7)
    done = run(asked, moment)
    assert done.returncode == 1
    first, second, last = done.stdout.splitlines()
    assert first.startswith("temperature 0: 2 of 2 replies")
    assert second.startswith("temperature 0.7: 1 of 1 replies")
    assert last.startswith("incomplete: 3 replies compared, 3 identical")
    sentence(done.stderr)
    done = run([*asked, "--json"], moment)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["complete"] is False
    assert found["exact"] is None, "nothing is exact before it was compared"
    assert [s["replies"] for s in found["settings"]] == [2, 1]


@pytest.mark.slow
def test_bench_prints_the_rows_before_a_crash(files: Files, tmp_path: Path) -> None:
    asked = ["bench", str(files.target), "-d", str(files.draft), "--threads", "1", "-n", "6"]
    asked += ["--workload", "json"]
    # Five replies to warm up, six for the row of temperature 0, then the next row.
    moment = crashing(tmp_path, "localspec.bench.speedup:answer", call=13)
    done = run(asked, moment)
    assert done.returncode == 1
    head, row, *rest = done.stdout.splitlines()
    assert head.startswith("WORKLOAD")
    assert row.startswith("json ")
    assert rest[0] == "incomplete: 1 of 2 rows"
    sentence(done.stderr)
    done = run([*asked, "--json"], moment)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["complete"] is False
    assert [r["temperature"] for r in found["results"]] == [0.0]


@pytest.mark.slow
def test_tune_prints_the_passes_before_a_crash(files: Files, tmp_path: Path) -> None:
    asked = ["tune", str(files.target), "-d", str(files.draft), "--threads", "1"]
    moment = crashing(tmp_path, "localspec.cli.working:Working.tell", call=3)
    done = run([*asked, "--json"], moment)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["complete"] is False
    assert "1" in found["verify"]
    assert "incomplete" in run(asked, moment).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "topic"),
    [("llama_cpp.llama_cpp:llama_backend_init", "llama.cpp"), (DECODE, "speed")],
)
def test_doctor_survives_and_has_one_fix(tmp_path: Path, function: str, topic: str) -> None:
    done = run(["doctor", "--offline", "--json"], crashing(tmp_path, function))
    assert done.returncode == 1
    assert done.stderr == ""
    found = {f["topic"]: f for f in json.loads(done.stdout)["findings"]}
    assert found[topic]["status"] == "broken"
    assert "signal 11 (SIGSEGV)" in found[topic]["text"]
    assert found[topic]["fix"]
    assert found["demo"]["status"] == "ok", "what does not need llama.cpp is looked at all the same"


def slow(files: Files) -> list[str]:
    """A model that answers for a long time."""
    path = files.folder / "endless.gguf"
    if not path.exists():
        gguf_tools.write_llama(path, width=768, layers=8, context=2048, eos=0, seed=8)
    model = ["-m", str(path), "-d", "none", "--drafter", "off", "--threads", "1"]
    return [*model, "-t", "1", "--seed", "1"]


def started(args: list[str]) -> tuple[subprocess.Popen[bytes], bytes]:
    """The process, once its first byte of output is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    return process, process.stdout.read(1)


def child_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (child,) = psutil.Process(process.pid).children()
    return child


@pytest.mark.slow
def test_a_child_that_is_killed_is_reported(files: Files) -> None:
    process, first = started(["run", "x", *slow(files)])
    with process:
        child_of(process).kill()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert first + out
    assert "killed with signal 9 (SIGKILL)" in sentence(err.decode())


@pytest.mark.slow
def test_a_parent_that_is_killed_takes_its_child_along(files: Files) -> None:
    process, _ = started(["run", "x", *slow(files)])
    with process:
        child = child_of(process)
        process.kill()
        child.wait(100)


@pytest.mark.slow
def test_sigterm_keeps_what_was_said_and_exits_143(files: Files) -> None:
    process, first = started(["run", "x", *slow(files)])
    with process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert (first + out).endswith(b"\n")
    assert b"Traceback" not in err


@pytest.mark.slow
def test_a_signal_to_the_group_and_passed_on_is_one_interrupt(files: Files, tmp_path: Path) -> None:
    told = crashing(tmp_path, "localspec.decode.round:decode_round", number=0)
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", "run", "x", *slow(files), "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | told,
        process_group=0,
    )
    with process:
        until(
            reached(tmp_path).exists, 100, process=process
        )  # before, Ctrl-C has only a load to end
        process.send_signal(signal.SIGSTOP)  # as on a busy machine: it passes the signal on late
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert json.loads(out)["finish_reason"] == "interrupt"


FORKING = """
import os, sys, time

def fork(real=os.fork):
    os.kill(os.getpid(), {number})
    child = real()
    if not child:
        time.sleep(0.3)  # the parent passes the signal on meanwhile
    return child

os.fork = fork
sys.argv = ["localspec", "show", "/nowhere.gguf"]
from localspec.__main__ import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_signal_between_the_fork_and_its_handlers_is_no_crash(number: int, code: int) -> None:
    asked = [sys.executable, "-c", FORKING.format(number=int(number))]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "crash" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "bench"])
def test_ctrl_c_prints_what_was_measured_as_json(
    files: Files, tmp_path: Path, command: str
) -> None:
    """The signal comes at a call in the middle of the work."""
    step = {"verify": "exactness:complete", "bench": "speedup:answer"}[command]
    moment = crashing(tmp_path, f"localspec.bench.{step}", number=signal.SIGINT, call=12)
    asked = [command, str(files.target), "-d", str(files.draft), "--threads", "1", "-n", "6"]
    done = run([*asked, "--json"], moment)
    assert done.returncode == 130
    found = json.loads(done.stdout)
    assert found["complete"] is False
    assert "interrupted" in sentence_of_interrupt(done.stderr)


def sentence_of_interrupt(err: str) -> str:
    return err.splitlines()[-1]


@pytest.mark.slow
def test_the_native_log_does_not_grow_without_bound(files: Files, tmp_path: Path) -> None:
    log().parent.mkdir(parents=True)
    log().write_bytes(b"x" * (2 << 20))
    env = crashing(tmp_path, LOAD, words="y" * 200 + "\n")
    assert run(["run", "x", "-m", str(files.target), "-d", "none"], env).returncode == 1
    assert log().stat().st_size < 100_000
