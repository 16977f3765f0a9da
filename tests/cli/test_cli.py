"""The command line: what goes where, exit codes, and one line for whatever goes wrong."""

from __future__ import annotations

import importlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import gguf_tools
import known_speed
import psutil
import pytest
from command_runs import one_line, pair
from conftest import Files

from localspec import cli
from localspec.config import settings as config
from localspec.core.errors import LocalspecError
from localspec.core.files import paths
from localspec.demo.race import Machine

ROOT = Path(__file__).parent.parent.parent


def run_process(
    *args: str, stdin: bytes | None = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", *args],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env=os.environ | (env or {}),
        timeout=100,
        check=False,
    )


def test_run_streams_text_to_stdout_and_nothing_else(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["run", "hello", *pair(files), "-t", "0", "-n", "8", "--seed", "1"]) == 0
    out, err = capfd.readouterr()
    assert out.endswith("\n")
    assert err == ""


def test_run_json_is_the_contract(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    args = ["run", "hello", *pair(files), "-n", "12", "--seed", "5", "--json"]
    assert cli.call(args) == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {
        "text", "tokens", "origins", "finish_reason", "stats", "model", "seed",
    }  # fmt: skip
    assert set(found["stats"]) == {
        "prompt_tokens", "cached_tokens", "saved_seconds", "emitted", "rounds", "drafted",
        "verified", "accepted", "acceptance", "tokens_per_round", "per_position", "by_drafter",
        "prompt_seconds", "decode_seconds", "tokens_per_second", "plain_tokens_per_second",
        "speculation", "clock",
    }  # fmt: skip
    assert found["model"] == {
        "target": str(files.target),
        "draft": str(files.draft),
        "backend": "cpu",
    }
    assert found["seed"] == 5
    assert found["finish_reason"] in {"stop", "length"}
    assert len(found["tokens"]) == len(found["origins"]) == found["stats"]["emitted"]
    assert set(found["origins"]) <= {"accepted", "corrected", "bonus", "plain"}
    assert found["stats"]["speculation"]["state"] == "on"
    for entry in found["stats"]["by_drafter"].values():
        assert set(entry) == {"drafted", "verified", "accepted", "seconds"}


@pytest.mark.slow
def test_stdin_is_the_prompt_for_a_dash_and_for_a_pipe(files: Files) -> None:
    settings = [*pair(files), "-t", "0", "-n", "6"]
    argument = run_process("run", "hello", *settings)
    dash = run_process("run", "-", *settings, stdin=b"hello")
    pipe = run_process("run", *settings, stdin=b"hello")
    assert argument.returncode == dash.returncode == pipe.returncode == 0
    assert argument.stdout == dash.stdout == pipe.stdout


def test_raw_and_system_and_stop(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    settings = [*pair(files), "-t", "0", "-n", "6", "--json"]
    assert cli.call(["run", "abc", "--raw", *settings]) == 0
    assert json.loads(capfd.readouterr().out)["stats"]["prompt_tokens"] == 3
    assert cli.call(["run", "abc", "-s", "Be brief.", "--stop", "q", *settings]) == 0
    assert json.loads(capfd.readouterr().out)["stats"]["prompt_tokens"] > 20
    assert cli.call(["run", "abc", "--raw", "-s", "x", *settings]) == 2


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["run", ""], 2, "empty"),
        (["run", "  \n"], 2, "empty"),
        (["run", "x", "-t", "-1"], 2, "temperature"),
        (["run", "x", "-t", "nan"], 2, "temperature"),
        (["run", "x", "--top-p", "7"], 2, "top_p"),
        (["run", "x", "--top-k", "-3"], 2, "top_k"),
        (["run", "x", "-n", "0"], 2, "max_tokens"),
        (["run", "x", "-n", "-5"], 2, "max_tokens"),
        (["run", "x", "--ctx", "-1"], 2, "ctx"),
        (["run", "x", "--ctx", "99999999999"], 2, "ctx"),
        (["run", "x", "--threads", "0"], 2, "threads"),
        (["run", "x", "--verifier", "hope"], 2, "verifier"),
        (["run", "x", "--drafter", "oracle"], 2, "oracle"),
        (["run", "x", "--draft-max", "1000"], 2, "draft_max"),
        (["run", "x", "--draft-max", "-1"], 2, "draft_max"),
        (["run", "x", "--no-such-flag"], 2, "--no-such-flag"),
        (["run", "x", "--seed", "many"], 2, "seed"),
        (["run", "x", "--kv-type", "f7"], 2, "kv_type"),
        (["run", "x", "-m", "no-such-model"], 3, "no model called"),
        (["run", "x", "-m", "demi"], 3, "demo"),
        (["run", "x", "-m", "/no/such/file.gguf"], 3, "/no/such/file.gguf"),
        (["run", "x", "-m", "someone/some-model-GGUF:Q4_K_M"], 3, "not on this machine"),
        (["run", "x", "-m", ""], 2, "empty"),
        (["show", "nothing-at-all"], 3, "no model called"),
        (["verify", "--verifier", "rejection"], 2, "match"),
        (["verify", "--prompts", "/no/such/list"], 2, "/no/such/list"),
        (["chat", "-m", "no-such-model"], 3, "no model called"),
        (["bench", "demo", "-m", "other"], 2, "given twice"),
    ],
)
def test_bad_input_is_one_line_and_a_documented_code(
    files: Files, capfd: pytest.CaptureFixture[str], args: list[str], code: int, words: str
) -> None:
    if args[0] != "show" and "-m" not in args:
        args = [*args, *(["-m"] if args[0] == "run" else []), str(files.target)]
    assert cli.call(args) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert words in one_line(err)


def test_bad_files_have_their_codes(
    tmp_path: Path, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.gguf"
    empty.touch()
    text = tmp_path / "text.gguf"
    text.write_text("this is no model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files.target.read_bytes()[:200_000])
    alien = gguf_tools.write_unknown_architecture(tmp_path / "alien.gguf")
    bert = gguf_tools.write_bert(tmp_path / "bert.gguf")
    for path, words in (
        (empty, "is empty"),
        (text, "not a GGUF"),
        (cut, "cut short or damaged"),
        (alien, "'abacus'"),
        (bert, "embedding model"),
        (tmp_path, "directory"),
    ):
        assert cli.call(["run", "x", "-m", str(path)]) == 7
        assert words in one_line(capfd.readouterr().err)


def test_a_required_draft_of_another_vocabulary_is_code_6(
    tmp_path: Path, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    words = gguf_tools.foreign_vocabulary(50)
    foreign = gguf_tools.write_llama(tmp_path / "foreign.gguf", vocabulary=words)
    model = ["-m", str(files.target), "-d", str(foreign), "-n", "3"]
    assert cli.call(["run", "x", *model, "--require-draft"]) == 6
    assert "differ from id 50" in one_line(capfd.readouterr().err)
    assert cli.call(["run", "x", *model]) == 0
    assert "differ from id 50" in one_line(capfd.readouterr().err)


def test_a_prompt_longer_than_the_context_is_refused_with_numbers(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["run", "x" * 3000, *pair(files)]) == 2
    line = one_line(capfd.readouterr().err)
    assert "context size of 512" in line
    assert "tokens" in line


def test_stdin_that_is_not_utf8_is_refused_with_the_byte(files: Files) -> None:
    done = run_process("run", "-", *pair(files), stdin=b"ab\xff")
    assert done.returncode == 2
    assert "byte 2 is 0xff" in one_line(done.stderr.decode())


def test_an_argument_that_is_not_utf8_is_refused(files: Files) -> None:
    command = [os.fsencode(sys.executable), b"-m", b"localspec", b"run", b"ab\xff"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=100, check=False)
    assert done.returncode == 2
    assert "not valid UTF-8" in one_line(done.stderr.decode())


@pytest.mark.parametrize(
    "flag",
    [
        "--system a\udcff",
        "--stop \udcff",
        "--choice a,\udcff",
        "--regex \udcff",
        "--schema {\udcff}",
    ],
)
def test_a_text_for_the_model_that_is_not_utf8_is_refused_by_its_flag(
    flag: str, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["run", "x", *pair(files), "-n", "1", *flag.split(" ")]) == 2
    name = flag.partition(" ")[0]
    assert f"{name} is not valid UTF-8; convert it" in one_line(capfd.readouterr().err)


def test_a_query_and_the_system_message_of_a_chat_that_are_not_utf8_are_refused(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["embed", str(files.target), "--query", "a\udcff"]) == 2
    assert "--query is not valid UTF-8" in one_line(capfd.readouterr().err)
    assert cli.call(["chat", str(files.target), "--system", "a\udcff"]) == 2
    assert "--system is not valid UTF-8" in one_line(capfd.readouterr().err)


@pytest.mark.parametrize(("words", "code"), [("--help", 0), ("run --help", 0), ("--version", 0)])
def test_help_into_a_closed_pipe_ends_quietly(words: str, code: int) -> None:
    assert into_a_closed_pipe(words, stderr=subprocess.PIPE) == (code, b"")


def test_a_closed_pipe_for_the_errors_changes_no_exit_code() -> None:
    assert into_a_closed_pipe("", stderr=subprocess.STDOUT) == (2, b"")
    assert into_a_closed_pipe("run --bogus", stderr=subprocess.STDOUT) == (2, b"")


def into_a_closed_pipe(words: str, stderr: int) -> tuple[int, bytes]:
    """The exit code of a command whose stdout is a pipe without a reader, and its stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "localspec", *words.split()],
        stdout=writer,
        stderr=stderr,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr or b""


def test_a_closed_pipe_ends_quietly(files: Files) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", "run", "x", *pair(files), "-n", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("args", ["--help", "completion bash", "models", "show {target} --json"])
def test_stdout_that_cannot_be_written_is_one_line(files: Files, args: str) -> None:
    known_speed.save()
    asked = [sys.executable, "-m", "localspec", *args.format(target=files.target).split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            asked, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, timeout=100, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"localspec: stdout cannot be written: No space left on device\n"


def test_ctrl_c_keeps_what_was_said_and_exits_130(files: Files) -> None:
    slow = gguf_tools.write_llama(
        files.folder / "slow.gguf", width=768, layers=8, context=2048, eos=0, seed=8
    )
    asked = ["run", "x", "-m", str(slow), "-t", "1", "--seed", "1", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert first + out
    assert b"Traceback" not in err


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "verify", "chat"])
@pytest.mark.parametrize(
    "moment",
    [
        "localspec.loading.loader.resolve",
        "localspec.llama.model.check_file",
        "localspec.llama.context.Context.__init__",
        "localspec.llama.timing.least_seconds",
        "localspec.generation.prompt.fit",
        "localspec.llama.context.Context.read",
        "localspec.drafters.model.chain.ChainDrafter.propose",
        "localspec.generation.generation.Generation._event",
    ],
)
def test_ctrl_c_at_any_moment_exits_130(
    files: Files,
    command: str,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The signal arrives just before the named step, the first time that it is taken."""
    holder, name = moment.rsplit(".", 1)
    try:
        owner = importlib.import_module(holder)
    except ModuleNotFoundError:
        module, kind = holder.rsplit(".", 1)
        owner = getattr(importlib.import_module(module), kind)
    original, pressed = getattr(owner, name), []

    def interrupted(*args: object, **kwargs: object) -> object:
        if not pressed:
            pressed.append(True)
            press_ctrl_c()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)
    model = [str(files.target), "-d", str(files.draft), "--drafter", "model", "-n", "40"]
    if command == "run":
        model = ["hello", "-m", *model]
    if command == "verify":
        model += ["--limit", "2"]
    else:
        # The controller may draft nothing on a busy machine, and this step would never come.
        model += ["--draft-max", "2" if name == "propose" else "auto"]
    lines = io.TextIOWrapper(io.BytesIO(b"hello\nhello\n"))
    monkeypatch.setattr(sys, "stdin", lines)
    assert cli.call([command, *model]) == 130
    assert pressed
    err = capfd.readouterr().err
    stages = ("localspec: measuring", "localspec: comparing")
    assert sum(not line.startswith(stages) for line in err.splitlines()) <= 1
    assert "Traceback" not in err


def test_ctrl_c_during_an_import_is_not_lost() -> None:
    """KeyboardInterrupt raised and swallowed before the command looks."""
    probe = (
        "import os, signal, sys; from localspec.cli import interrupt; interrupt.watch()\n"
        "try: os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt: pass\n"
        "sys.exit(0 if interrupt.CtrlC().pressed else 1)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_before_the_imports_are_done_is_no_traceback(tmp_path: Path) -> None:
    interrupting = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "click.py").write_text(interrupting)
    # Whoever runs the tests in the background of a shell has interrupts ignored, and so have these.
    heeding = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        "os.execv(sys.executable, [sys.executable, '-m', 'localspec', 'models'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", heeding],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


def test_plain_chat_reads_lines_and_answers_each(files: Files) -> None:
    model = [str(files.target), "-d", str(files.draft), "--threads", "1"]
    done = run_process("chat", *model, "-n", "8", "-t", "0", stdin=b"hello\n\nand now?\n")
    assert done.returncode == 0
    assert done.stdout.count(b"\n") >= 2
    assert done.stderr == b""


def test_ctrl_c_ends_a_plain_chat_that_waits_for_a_line(files: Files) -> None:
    # It waited for 100 s once, perhaps since the signal came just before the wait, between Python's
    # last look for signals and the system call; the supervising process ends such a wait now.
    asked = ["chat", str(files.target), "-n", "3", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", *asked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=100) == 130
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children():
                child.send_signal(signal.SIGABRT)  # its stack is in the native log then
            raise AssertionError(process.communicate(), _native_log()) from None
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def _native_log() -> str:
    return (paths.state_dir() / "native.log").read_text(encoding="utf-8", errors="replace")


def test_plain_chat_survives_a_message_that_is_too_long(files: Files) -> None:
    lines = b"x" * 4000 + b"\nhello\n"
    model = [str(files.target), "--threads", "1"]
    done = run_process("chat", *model, "-n", "8", "-t", "0", stdin=lines)
    assert done.returncode == 1  # a script learns that one of its messages has no reply
    assert done.stdout.strip()
    assert "too long" in one_line(done.stderr.decode())


def test_verify_reports_identical_replies(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    model = [str(files.target), "-d", str(files.draft)]
    assert cli.call(["verify", *model, "--limit", "3", "-n", "20", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["exact"] is True
    assert [s["temperature"] for s in found["settings"]] == [0.0, 0.7, 1.0]
    assert all(s["identical"] == s["replies"] == 3 for s in found["settings"])
    assert found["batch_noise"] >= 0
    assert cli.call(["verify", *model, "--limit", "2", "-n", "8", "-t", "0.5"]) == 0
    out = capfd.readouterr().out
    assert "temperature 0.5: 2 of 2 replies identical" in out


def test_verify_takes_prompts_from_a_file(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\ntwo\n")
    args = ["verify", str(files.target), "--prompts", str(prompts), "-n", "5", "-t", "0"]
    assert cli.call(args) == 0
    assert "2 of 2 replies" in capfd.readouterr().out


def test_show_tells_a_draft_of_another_vocabulary_from_a_foreign_one(
    tmp_path: Path, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    words = gguf_tools.foreign_vocabulary(50)
    foreign = gguf_tools.write_llama(tmp_path / "foreign.gguf", vocabulary=words)
    cousin = gguf_tools.write_llama(tmp_path / "cousin.gguf", rows=[*reversed(range(259))])
    assert cli.call(["show", str(files.target), "-d", str(foreign)]) == 0
    assert "match     no: the vocabularies differ from id 50" in capfd.readouterr().out
    assert cli.call(["show", str(files.target), "-d", str(cousin)]) == 0
    assert "match     partly" in capfd.readouterr().out


def test_models_and_show(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["models"]) == 0
    assert "demo" in capfd.readouterr().out
    assert cli.call(["models", "--json"]) == 0
    (demo,) = [m for m in json.loads(capfd.readouterr().out) if m["name"] == "demo"]
    assert demo["drafting"] == "draft-model"
    assert cli.call(["show", str(files.target), "-d", str(files.draft)]) == 0
    assert "match     yes" in capfd.readouterr().out
    assert cli.call(["show", str(files.target), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["target"]["layers"] == 2
    assert found["draft"] is None


def test_show_tells_by_its_exit_code_that_a_file_is_cut_short(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files.target.read_bytes()[:-1000])
    for args in ([str(cut)], [str(files.target), "-d", str(cut)]):
        assert cli.call(["show", *args, "--json"]) == 7
        told = capfd.readouterr()
        assert "cut.gguf is cut short" in json.loads(told.out)["damaged"]
        assert "cut.gguf is cut short" in one_line(told.err)
    assert cli.call(["show", str(files.target), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["damaged"] is None


def test_what_llama_cpp_says_is_logged_from_the_first_load_on(files: Files) -> None:
    assert run_process("run", "x", *pair(files), "-n", "2").returncode == 0
    log = Path(os.environ["LOCALSPEC_HOME"]) / "state" / "llama.log"
    assert " INFO " in log.read_text()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_defect(files: Files, closed: str) -> None:
    command = shlex.join([sys.executable, "-m", "localspec", "run", "x", *pair(files), "-n", "3"])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, cwd=ROOT, timeout=100, check=False
    )
    assert done.returncode == 0
    assert done.stderr == b""


def test_json_is_whole_in_a_narrow_encoding(files: Files) -> None:
    args = ["run", "x", *pair(files), "-n", "20", "--seed", "1", "--json"]
    narrow = json.loads(run_process(*args, env={"PYTHONIOENCODING": "ascii"}).stdout)
    assert narrow["text"] == json.loads(run_process(*args).stdout)["text"]
    assert not narrow["text"].isascii()


def test_a_home_that_cannot_be_written_is_explained(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("LOCALSPEC_HOME", str(blocked))
    assert cli.call(["run", "x", *pair(files)]) == 1
    assert "LOCALSPEC_HOME" in one_line(capfd.readouterr().err)


def test_doctor_names_every_topic_and_finds_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["doctor", "--json", "--offline"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["ok"] is True
    topics = {f["topic"] for f in found["findings"]}
    assert topics >= {"python", "llama.cpp", "cpu", "device", "cache", "demo", "terminal"}


def test_help_tells_what_a_flag_is_where_it_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(
        'top_k = 9\nmin_p = true\nlora = ["a.gguf:0.5", "b.gguf"]\n'
    )
    config.settings.cache_clear()
    assert cli.call(["run", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the most probable token. [default: 0.8]" in told
    assert "0 = off. [default: 9]" in told
    assert "0 = off. [default: unusable in config.toml]" in told
    assert "several times. [default: a.gguf:0.5, b.gguf]" in told
    assert "several times. [default: none]" in told
    config.settings.cache_clear()


def test_help_and_version_import_only_what_they_print_with() -> None:
    probe = (
        "import sys; from localspec import cli; cli.call(['--help']); cli.call(['--version']); "
        "bad = {'numpy', 'llama_cpp', 'textual', 'huggingface_hub', 'pathlib', 'tempfile', "
        "'tomllib', 'platformdirs', 'hashlib', 'dataclasses'} & set(sys.modules); "
        "sys.exit(f'loaded {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_the_interface_starts_without_numpy() -> None:
    probe = (
        "import sys, localspec.cli.chat, tui.in_terminal; "
        "bad = {'numpy', 'llama_cpp', 'huggingface_hub', 'llguidance'} & set(sys.modules); "
        "sys.exit(f'loaded {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_options_name_every_verifier() -> None:
    from localspec.core import settings_schema
    from localspec.decode import verifiers

    assert tuple(verifiers.VERIFIERS) == settings_schema.VERIFIERS


def test_a_typo_in_a_command_gets_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["modles"]) == 2
    assert "Did you mean 'models'" in capfd.readouterr().err


def test_every_error_has_a_documented_code() -> None:
    def all_of(kind: type[LocalspecError]) -> list[type[LocalspecError]]:
        return [kind, *(leaf for sub in kind.__subclasses__() for leaf in all_of(sub))]

    for kind in all_of(LocalspecError):
        assert f" {kind.exit_code} " in f" {(cli.__doc__ or '').replace(',', ' ')} ".replace(
            ".", " "
        ).replace("\n", " ")


def test_a_defect_is_one_line_with_the_details_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("one too many" + " of endless" * 1000)

    monkeypatch.setattr("localspec.models.catalog.catalog.catalog", broken)
    monkeypatch.setattr("localspec.cli.models.catalog", broken)
    assert cli.call(["models"]) == 1
    line = one_line(capfd.readouterr().err)
    assert "ZeroDivisionError: one too many" in line
    log = Path(os.environ["LOCALSPEC_HOME"]) / "state" / "defect.log"
    assert line.endswith(f" {log}")
    assert len(line) < 1000
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (ZeroDivisionError("by zero"), "this is a bug in localspec: ZeroDivisionError: by zero"),
    ],
)
def test_a_race_that_fails_for_any_reason_fails_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    async def fail(_: Machine) -> bool:
        raise error

    monkeypatch.setattr(Machine, "calm", fail)
    assert cli.call(["demo", "--plain"]) == 1
    out, err = capfd.readouterr()
    assert out == "> What can you do?\n"
    assert err.startswith(f"localspec: {said}")


def test_localspec_alone_ends_with_where_to_begin(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call([]) == 2
    end = " ".join(capfd.readouterr().err.split()[-30:])
    assert "Where to begin: localspec demo" in end
    assert "localspec chat" in end


@pytest.mark.parametrize(
    "name", ["\udcff/x", "n" * 300, f"{'n' * 300}/x", "~nobody-of-this-name/x", "//", "n/" * 5000]
)
@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["run", "Why?", "--lora"],
        ["run", "Why?", "--schema"],
        ["run", "Why?", "--image"],
        ["run", "Why?", "--draft"],
        ["run", "--prompt-file"],
        ["verify", "--prompts"],
        ["make-draft"],
        ["chats", "import"],
        ["chats", "export", "--all", "--output"],
        ["serve", "--api-key-file"],
    ],
)
def test_a_text_that_names_no_file_is_an_error_and_no_defect(
    words: list[str],
    name: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert cli.call([*words, name]) != 0
    assert "bug in localspec" not in one_line(capfd.readouterr().err)
