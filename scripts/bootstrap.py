"""Makes .venv ready: profile runtime for scripts/localspec, profile dev for scripts/test; then
replaces itself by the command that follows the profile.

Each finished part is noted in .venv/bootstrap.json, so that a start after an interruption or an
update does only what is missing. Standard library only: this runs before anything is installed.
"""

import hashlib
import importlib.util
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_backend
import llama_choice
import llama_time
import llama_wheel
from bootstrap_steps import (
    Failure,
    interrupt,
    locked,
    outcome,
    read_notes,
    run_step,
    say,
    write_notes,
)
from llama_check import load_failure, prove
from llama_engine import Place, make_sound
from llama_ladder import Ladder
from llama_pace import Pace
from llama_wheel import sha256_of

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STATE = VENV / "bootstrap.json"
LOG = VENV / "bootstrap.log"
PROFILES = ("runtime", "dev")
FROM_FILE = ("--no-deps", "--no-index", "--force-reinstall")


def load_state(path: Path = STATE) -> dict[str, str]:
    """The finished parts."""
    return read_notes(path)


def save_state(state: dict[str, str], path: Path = STATE) -> None:
    write_notes(path, state)


def read_stamp(profile: str) -> str | None:
    try:
        return (VENV / f"{profile}.stamp").read_text(encoding="utf-8").rstrip("\n")
    except OSError:
        return None


def why_remake(state: dict[str, str], wanted_python: str | None, running_python: str | None) -> str:
    """Why the environment cannot be kept, or nothing.

    `wanted_python` is the version asked for with LOCALSPEC_PYTHON, `running_python` what the
    environment's interpreter answers; both are None when there is none.
    """
    if running_python is None:
        return "its Python no longer runs"
    if state.get("root") != str(ROOT):
        return "it is incomplete or was made for another place"
    if "unfinished" in state:
        return f"{state['unfinished']} was interrupted"
    if wanted_python not in (None, running_python):
        return f"it has Python {running_python} and LOCALSPEC_PYTHON is {wanted_python}"
    return ""


def python_of_environment() -> str | None:
    probe = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    return llama_backend.output_of(str(PYTHON), "-I", "-c", probe) or None


def require_venv_module() -> None:
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return
    version = "{}.{}".format(*sys.version_info)
    raise Failure(
        f"Python {version} at {sys.executable} comes without venv: "
        f"`apt install python3-venv` (or python{version}-venv), then start again"
    )


def make_environment() -> dict[str, str]:
    """The state of a .venv that can be kept, or of a new and empty one."""
    state = load_state()
    if VENV.exists():
        wanted = None
        if os.environ.get("LOCALSPEC_PYTHON"):
            wanted = "{}.{}".format(*sys.version_info)
        reason = why_remake(state, wanted, python_of_environment())
        if not reason:
            return state
        say(f"making .venv again: {reason}")
        shutil.rmtree(VENV)
    require_venv_module()
    VENV.mkdir()
    run_step("making .venv", [sys.executable, "-m", "venv", VENV], LOG)
    state = {"root": str(ROOT)}
    save_state(state)
    return state


@contextmanager
def part(state: dict[str, str], name: str, value: str) -> Iterator[None]:
    """Record a part of the environment as done if the block succeeds, as unfinished before."""
    state.pop(name, None)
    state["unfinished"] = name
    save_state(state)
    yield
    del state["unfinished"]
    state[name] = value
    save_state(state)


def pip_install(title: str, *arguments: str | Path) -> None:
    command = [PYTHON, "-I", "-m", "pip", "install", *arguments]
    run_step(title, command, LOG, cwd=ROOT)


def install_packages(state: dict[str, str], profile: str) -> None:
    # The dev lock holds the runtime lock's pins and more.
    for name in PROFILES[PROFILES.index(profile) :]:
        if state.get(f"packages {name}") == sha256_of(ROOT / "requirements" / f"{name}.lock"):
            return
    lock = ROOT / "requirements" / f"{profile}.lock"
    for name in PROFILES:
        state.pop(f"packages {name}", None)  # this install may move the pins of another
    with part(state, f"packages {profile}", sha256_of(lock)):
        pip_install("installing packages", "--require-hashes", "--only-binary", ":all:", "-r", lock)


class Checkout(Place):
    """The environment of this checkout."""

    def __init__(self, state: dict[str, str], key: str) -> None:
        self._state, self._key = state, key
        self.log = LOG

    @property
    def filled(self) -> bool:
        return self._state.get("engine") == self._key

    def fill(self, wheel: Path) -> None:
        with part(self._state, "engine", self._key):
            pip_install("installing llama.cpp", *FROM_FILE, wheel)

    def clear(self) -> None:
        self._state.pop("engine")
        save_state(self._state)

    def load_failure(self) -> str:
        return load_failure(PYTHON)

    def prove(self) -> dict[str, object]:
        return prove(PYTHON, ROOT, LOG)


def install_engine(state: dict[str, str], backend: str, key: str, folder: Path) -> None:
    """Install a build that is proved on this processor; build it if necessary."""
    if state.get("engine") == key == state.get("proved"):
        return
    source = llama_wheel.read_source(ROOT / "requirements" / "llama.lock")
    with locked(folder.with_name(f"{key}.lock"), "another start builds llama.cpp; waiting for it"):
        rung = make_sound(Checkout(state, key), source, backend, folder)
        Ladder(folder, ()).note(VENV / "llama-build.json", rung)
        state["proved"] = key
        save_state(state)
        shutil.rmtree(llama_wheel.work_folder(folder), ignore_errors=True)


def install_checkout(state: dict[str, str]) -> None:
    digest = sha256_of(ROOT / "pyproject.toml")
    if state.get("checkout") != digest:
        with part(state, "checkout", digest):
            pip_install(
                "installing this checkout",
                *("--no-deps", "--no-index", "--no-build-isolation", "--editable", "."),
            )


def usable_cache(folder: Path) -> Path:
    """The user's cache, or a place in .venv where that cannot be written.

    Raises:
        Failure: others may write to it.
    """
    try:
        llama_wheel.make_folder(folder)
    except OSError:
        return VENV / "cache"
    return folder if os.access(folder, os.W_OK) else VENV / "cache"


def prepare(profile: str, stamp: str) -> None:
    machine = llama_backend.this_machine()
    cache = usable_cache(llama_wheel.cache_directory(os.environ, machine.system))
    backend = llama_choice.backend_for(machine, os.environ, cache)
    source = llama_wheel.read_source(ROOT / "requirements" / "llama.lock")
    options = llama_backend.OPTIONS_FILE.read_text(encoding="utf-8")
    key = llama_wheel.wheel_key(source, backend, machine, os.environ, options)

    if not os.access(ROOT, os.W_OK):
        raise Failure(f"{ROOT} is not writable and has no ready .venv; use a checkout of your own")
    with locked(ROOT / ".venv.lock", "another start makes .venv ready; waiting for it"):
        if read_stamp(profile) == stamp:
            return
        first = not VENV.exists()
        for name in PROFILES:
            (VENV / f"{name}.stamp").unlink(missing_ok=True)
        state = make_environment()
        folder = cache / key
        usual = llama_wheel.usual_cache(os.environ, machine.system) / key
        kept = llama_wheel.cached_wheel(folder) or llama_wheel.cached_wheel(usual)
        if state.get("engine") != key and not kept:
            llama_backend.require_build_tools(backend, machine)
            idle = llama_backend.unused_gpu(backend, machine)
            if idle and not os.environ.get("LOCALSPEC_BACKEND"):
                say(idle)
        if first:
            say(
                "first start: installing into .venv; later starts are immediate and need no network"
            )
        install_packages(state, profile)
        install_engine(state, backend, key, folder)
        install_checkout(state)
        compile_kernel(state)
        compile_own_kernels(state)
        for name in PROFILES[: PROFILES.index(profile) + 1]:
            (VENV / f"{name}.stamp").write_text(f"{stamp}\n", encoding="utf-8")


def compile_kernel(state: dict[str, str]) -> None:
    """Compile the kernel for rows of logits; without it rounds take longer, and nothing else."""
    # 2: stored with its digest, without which it is not loaded
    digest = "2 " + sha256_of(ROOT / "localspec" / "core" / "kernel" / "rows.c")
    if state.get("kernel") == digest:
        return
    command: list[str | Path] = [PYTHON, "-P", "-m", "localspec.core.kernel.build"]
    try:
        run_step("compiling the kernel for logits", command, LOG, cwd=ROOT)
    except Failure as failure:
        say(f"{failure}; going on without it: rounds take a little longer")
    state["kernel"] = digest
    save_state(state)


def compile_own_kernels(state: dict[str, str]) -> None:
    """Compile and prove our own kernels; without them llama.cpp's compute, and nothing else."""
    found = hashlib.sha256(state.get("engine", "").encode())
    for path in sorted((ROOT / "localspec" / "kernels").rglob("*")):
        if path.suffix in {".cpp", ".h", ".py"}:
            found.update(path.read_bytes())
    if state.get("own kernels") == found.hexdigest():
        return
    expected = llama_time.expected("kernels", llama_backend.this_machine(), VENV)
    say(f"compiling and checking kernels, once: {llama_time.in_words(expected)} (log: {LOG})")
    command: list[str | Path] = [PYTHON, "-P", "-m", "localspec.loading.own_kernels"]
    try:
        run_step("compiling and checking kernels", command, LOG, cwd=ROOT, pace=Pace(expected))
    except Failure as failure:
        say(f"{failure}; going on with llama.cpp's kernels")
    state["own kernels"] = found.hexdigest()
    save_state(state)


def become(command: list[str], profile: str) -> None:
    """Replace this process by a command, so that ending the script also ends a build."""
    environ = {**os.environ, "LOCALSPEC_READY": profile}
    for name in ("LOCALSPEC_STAMP", "PYTHONSAFEPATH"):  # set for this file alone
        environ.pop(name, None)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ignored by Python, and inherited
    os.execvpe(command[0], command, environ)  # noqa: S606


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores hangups on purpose
            signal.signal(number, interrupt)
    profile, *command = sys.argv[1:]
    try:
        status = outcome(
            lambda: prepare(profile, os.environ["LOCALSPEC_STAMP"]),
            "interrupted; the next start carries on from here",
        )
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        try:
            with LOG.open("a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        except OSError:
            traceback.print_exc()
        say(
            f"unexpected {type(error).__name__}: {error}; delete .venv and start again [log: {LOG}]"
        )
        return 1
    if status == 0:
        become(command, profile)
    return status


if __name__ == "__main__":
    sys.exit(main())
