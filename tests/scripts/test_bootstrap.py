"""From clone to running command: what scripts/localspec decides, without installing or building."""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import bootstrap
import psutil
import pytest
from bootstrap_steps import Failure, StatusLine, clean_environment, explain, run_step

ROOT = Path(__file__).resolve().parents[2]

# What of .venv can be kept

GOOD_STATE = {"root": str(bootstrap.ROOT)}


@pytest.mark.parametrize(
    ("state", "wanted", "running", "reason"),
    [
        (GOOD_STATE, None, "3.12", ""),
        (GOOD_STATE, "3.12", "3.12", ""),
        (GOOD_STATE, "3.13", "3.12", "LOCALSPEC_PYTHON"),
        (GOOD_STATE, None, None, "no longer runs"),
        ({}, None, "3.12", "another place"),
        ({"root": "/elsewhere"}, None, "3.12", "another place"),
        ({**GOOD_STATE, "unfinished": "engine"}, None, "3.12", "interrupted"),
    ],
)
def test_an_environment_is_kept_only_when_it_is_whole_and_ours(state, wanted, running, reason):
    answer = bootstrap.why_remake(state, wanted, running)
    assert (reason in answer) if reason else not answer


@pytest.mark.parametrize("content", [None, "", "{", "[]", "\0"])
def test_damaged_notes_count_as_none(tmp_path, content):
    path = tmp_path / "bootstrap.json"
    if content is not None:
        path.write_text(content)
    assert bootstrap.load_state(path) == {}


def test_a_part_that_ends_badly_stays_unfinished(tmp_path, monkeypatch):
    path = tmp_path / "bootstrap.json"
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (path,))
    state = {"engine": "old"}
    with pytest.raises(KeyboardInterrupt), bootstrap.part(state, "engine", "new"):
        raise KeyboardInterrupt
    assert bootstrap.load_state(path) == {"unfinished": "engine"}
    with bootstrap.part(state, "engine", "new"):
        pass
    assert bootstrap.load_state(path) == {"engine": "new"}


@pytest.fixture
def installs(tmp_path, monkeypatch):
    """The requirements that pip was asked for, in a checkout whose locks say only their name."""
    asked = []
    (tmp_path / "requirements").mkdir()
    for name in bootstrap.PROFILES:
        (tmp_path / "requirements" / f"{name}.lock").write_text(name)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (tmp_path / "bootstrap.json",))
    monkeypatch.setattr(bootstrap, "pip_install", lambda _, *rest: asked.append(rest[-1].name))
    return asked


def test_the_dev_packages_serve_the_runtime_too(installs):
    state = {}
    for profile in ("dev", "runtime", "dev"):
        bootstrap.install_packages(state, profile)
    assert installs == ["dev.lock"]


def test_installing_one_set_of_packages_forgets_the_other(installs, tmp_path):
    state = {}
    bootstrap.install_packages(state, "dev")
    for name in bootstrap.PROFILES:
        (tmp_path / "requirements" / f"{name}.lock").write_text("newer")
    bootstrap.install_packages(state, "runtime")
    (tmp_path / "requirements" / "dev.lock").write_text("dev")
    bootstrap.install_packages(state, "dev")
    assert installs == ["dev.lock", "runtime.lock", "dev.lock"]


def test_a_python_without_venv_says_which_package_is_missing(monkeypatch):
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Failure, match="apt install python3-venv"):
        bootstrap.require_venv_module()


# The shell's part: a checkout with a stand-in for everything slow


def test_a_kernel_that_cannot_be_compiled_is_left_out_and_said_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (tmp_path / "bootstrap.json",))
    monkeypatch.setattr(bootstrap, "LOG", tmp_path / "log")
    monkeypatch.setattr(bootstrap, "PYTHON", "false")
    state = {}
    bootstrap.compile_kernel(state)
    assert "going on without it" in capsys.readouterr().err
    bootstrap.compile_kernel(state)
    assert capsys.readouterr().err == ""


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a folder with a space, whose bootstrap and Python only say what they got."""
    root = tmp_path / "my checkout"
    scripts = root / "scripts"
    shutil.copytree(ROOT / "requirements", root / "requirements")
    shutil.copy(ROOT / "pyproject.toml", root)
    scripts.mkdir()
    for name in ("localspec", "environment.sh"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    for name in ("options.cmake", "backend.py", "check.py", "ladder.py", "wheel.py"):
        (scripts / f"llama_{name}").touch()
    kernel = Path("localspec", "core", "kernel")
    (root / kernel).mkdir(parents=True)
    shutil.copy(ROOT / kernel / "rows.c", root / kernel)
    (scripts / "bootstrap.py").write_text(
        "import os, pathlib, sys\n"
        "venv = pathlib.Path(__file__).parent.parent / '.venv'\n"
        "print('bootstrap', sys.argv[1], flush=True)\n"
        "(venv / f'{sys.argv[1]}.stamp').write_text(os.environ['LOCALSPEC_STAMP'] + '\\n')\n"
        "os.execvp(sys.argv[2], sys.argv[2:])\n"
    )
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$PWD"\nprintf "<%s>" "$@"\n')
    python.chmod(0o755)
    return root


def start(program, *arguments, cwd="/", **environ):
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("LOCALSPEC_", "CMAKE_"))}
    # The interpreter of the tests stands for the one on a user's PATH.
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**kept, "PATH": path, **environ},
    )


def test_the_first_start_prepares_and_the_second_does_not(checkout, tmp_path):
    program = checkout / "scripts" / "localspec"
    first = start(program, "run", "two words", "", "$HOME", cwd=tmp_path)
    said = f"{tmp_path}\n<-P><-m><localspec><run><two words><><$HOME>"
    assert (first.returncode, first.stdout) == (0, f"bootstrap runtime\n{said}"), first.stderr
    second = start(program, "run", "two words", "", "$HOME", cwd=tmp_path)
    assert (second.returncode, second.stdout) == (0, said)


def test_a_link_to_the_script_works(checkout, tmp_path):
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "localspec"
    link.symlink_to("../my checkout/scripts/localspec")
    assert start(link).stdout.endswith("<localspec>")


@pytest.mark.parametrize(
    "environ",
    [{"LOCALSPEC_BACKEND": "cpu"}, {"CMAKE_ARGS": "-DX=1"}, {"LOCALSPEC_PYTHON": sys.executable}],
)
def test_another_wish_makes_the_environment_stale(checkout, environ):
    program = checkout / "scripts" / "localspec"
    start(program)
    assert start(program, **environ).stdout.startswith("bootstrap")
    assert not start(program, **environ).stdout.startswith("bootstrap")


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "requirements/runtime.lock", "scripts/llama_options.cmake"],
)
def test_a_changed_file_makes_the_environment_stale(checkout, name):
    program = checkout / "scripts" / "localspec"
    start(program)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert start(program).stdout.startswith("bootstrap")


def test_a_moved_checkout_is_stale(checkout):
    start(checkout / "scripts" / "localspec")
    moved = checkout.rename(checkout.with_name("moved"))
    assert start(moved / "scripts" / "localspec").stdout.startswith("bootstrap")


def test_another_processor_makes_the_environment_stale(checkout, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    shell = checkout / "scripts" / "environment.sh"
    shell.write_text(shell.read_text().replace("/proc/cpuinfo", str(cpuinfo)))
    program = checkout / "scripts" / "localspec"
    core = "processor : {}\nmodel name : {}\ncpu MHz : {}\nflags : fpu avx2\n\n"
    cpuinfo.write_text(core.format(0, "Some CPU", 800) + core.format(1, "Some CPU", 800))
    assert start(program).stdout.startswith("bootstrap")
    cpuinfo.write_text(core.format(0, "Some CPU", 3000) + core.format(1, "Some CPU", 800))
    assert not start(program).stdout.startswith("bootstrap")
    cpuinfo.write_text(core.format(0, "Another CPU", 3000))
    assert start(program).stdout.startswith("bootstrap")


def test_who_ends_the_script_ends_its_bootstrap(checkout):
    (checkout / "scripts" / "bootstrap.py").write_text(
        "import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n"
    )
    program = checkout / "scripts" / "localspec"
    with subprocess.Popen([program], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            process.terminate()
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_bootstrap_becomes_the_script_again_in_its_own_process(tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$$ $1 $LOCALSPEC_READY ${LOCALSPEC_STAMP:-none}"\n')
    program = "import bootstrap, os, sys; print(os.getpid(), end=' ', flush=True); "
    program += "bootstrap.become(['sh', sys.argv[1], 'two words'], 'runtime')"
    said = subprocess.run(
        [sys.executable, "-c", program, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "LOCALSPEC_STAMP": "x"},
    ).stdout
    before, after, rest = said.split(" ", 2)
    assert before == after
    assert rest == "two words runtime none\n"


def test_a_failed_bootstrap_starts_nothing_and_passes_its_status_on(checkout):
    (checkout / "scripts" / "bootstrap.py").write_text("raise SystemExit(2)\n")
    result = start(checkout / "scripts" / "localspec")
    assert (result.returncode, result.stdout) == (2, "")


def test_no_python_or_a_wrong_one_is_said_in_one_line(checkout, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "dirname", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    program = checkout / "scripts" / "localspec"
    none = start(program, PATH=str(tools))
    wrong = start(program, LOCALSPEC_PYTHON="/bin/false")
    assert none.returncode == wrong.returncode == 1
    assert "found none on PATH" in none.stderr
    assert "LOCALSPEC_PYTHON=/bin/false is not" in wrong.stderr
    assert none.stderr.count("\n") == wrong.stderr.count("\n") == 1


# Steps: progress, causes, interruption


def test_the_line_shows_a_bar_and_what_remains_where_that_is_known():
    now = [0.0]
    status = StatusLine("building", io.StringIO(), clock=lambda: now[0])
    assert status.text() == "building  0:00"
    now[0] = 65
    assert status.text() == "building  1:05"
    status.pace = SimpleNamespace(left=lambda: 65.0)
    assert status.text() == "building  ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌  1:05  about 1:05 left"
    status.pace = SimpleNamespace(left=lambda: 0.0)
    assert status.text() == "building  ━━━━━━━━━━━━━━━━━━━━  1:05"


def test_without_a_terminal_a_line_comes_now_and_then():
    now = [0.0]
    stream = io.StringIO()
    status = StatusLine("building", stream, clock=lambda: now[0])
    for now[0] in range(100):
        status.draw()
    assert stream.getvalue() == "building  0:30\nbuilding  1:00\nbuilding  1:30\n"


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("NameResolutionError(...): Failed to resolve", "index could not be reached"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM", "lock file"),
        ("ERROR: No matching distribution found for x", "LOCALSPEC_PYTHON"),
        ("c++: fatal error: Killed signal terminated program", "CMAKE_BUILD_PARALLEL_LEVEL=1"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not", "CUDAHOSTCXX"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_89'", "CUDACXX"),
        ("No CMAKE_CUDA_COMPILER could be found.", "CUDACXX"),
        ("CMake Error at CMakeLists.txt:270:\n  CUDA Toolkit not found", "docs/devices.md"),
        ("fatal : Unsupported .version\n  9.5; current version is '9.0'", "different releases"),
        ("  SPIRV-HeadersConfig.cmake\n  spirv-headers-config.cmake", "spirv-headers"),
        ("CMake Error: Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "libvulkan-dev"),
        ("error: ‘LayerSettingEXT’ is not a member of ‘vk’", "Vulkan headers are too old"),
        ("error: no type named 'LayerSettingEXT' in namespace 'vk'", "headers are too old"),
    ],
)
def test_known_causes_become_advice(output, advice):
    assert advice in explain(f"before\n{output}\nafter")


def test_an_unknown_cause_is_not_guessed():
    assert explain("x.cpp:3: error: no member named 'y'") is None


def test_a_failed_step_names_its_cause_and_its_log(tmp_path):
    log = tmp_path / "log"
    script = "print('No space left on device'); raise SystemExit(3)"
    with pytest.raises(Failure, match=r"testing failed: the disk is full.*\[log: ") as caught:
        run_step("testing", [sys.executable, "-c", script], log)
    assert str(log) in str(caught.value)
    assert "No space left" in log.read_text()


def gone(pid):
    """Whether a process has ended; nobody may have collected it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_interrupted_step_leaves_nothing_running(tmp_path):
    log = tmp_path / "log"
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )

    def press_ctrl_c():
        end = time.monotonic() + 100
        while not log.exists() or not re.search(r"^\d+\n", log.read_text(), re.MULTILINE):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # Jobs that a shell started in the background ignore Ctrl-C; this test must not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press_ctrl_c).start()
        with pytest.raises(KeyboardInterrupt):
            run_step("testing", [sys.executable, "-c", script], log)
    finally:
        signal.signal(signal.SIGINT, before)
    child = next(int(line) for line in log.read_text().splitlines() if line.isdigit())
    end = time.monotonic() + 100
    while not gone(child):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.01)


def test_settings_that_send_pip_elsewhere_are_overruled():
    kept = clean_environment({"PIP_USER": "1", "PIP_TARGET": "/x", "PIP_INDEX_URL": "u"})
    assert kept["PIP_USER"] == "0"
    assert "PIP_TARGET" not in kept
    assert kept["PIP_INDEX_URL"] == "u"
