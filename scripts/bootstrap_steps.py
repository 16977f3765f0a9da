"""Runs the long steps of the bootstrap: a status line, a log, one clear sentence on failure."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from llama_pace import Pace

PLAIN_INTERVAL = 30.0
"""Seconds between lines where there is no terminal to redraw one on."""

# Output of pip, venv and compilers, and what the user can do about it. First match wins.
KNOWN_CAUSES = {
    r"No space left on device": "the disk is full; free some space and start again",
    r"Read-only file system|Permission denied": "a folder is not writable; the log names it",
    r"DO NOT MATCH THE HASHES": (
        "a download differs from what the lock file expects; start again, "
        "and if it stays so do not trust that package index"
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|Temporary failure in name"
        r"|Network is unreachable|ReadTimeoutError|ProxyError|Failed to establish|SSLError"
        r"|ConnectionResetError|IncompleteRead"
    ): (
        "the package index could not be reached; connect to the network and start again "
        "(only the first start needs it)"
    ),
    r"contains the PATH separator": "move the checkout: its path must not contain a colon",
    r"No matching distribution found|from versions: none": (
        "no ready-made package for this Python and machine; "
        "try another Python with LOCALSPEC_PYTHON=python3.12"
    ),
    r"CUDA::cublas": (
        "the CUDA toolkit comes without cuBLAS; install it (libcublas-dev, libcublas-devel) "
        "or start with LOCALSPEC_BACKEND=cpu"
    ),
    r"CUDA Toolkit not found": (
        "nvcc comes without a whole CUDA toolkit around it; install one, set CUDACXX to its nvcc "
        "and start again (NVIDIA's packages on PyPI need links, see docs/devices.md)"
    ),
    r"fatal : Unsupported\s+\.version": (
        "nvcc, cicc and ptxas are of different releases: the parts of the CUDA toolkit have to be "
        "of one; install it anew, or set CUDACXX to another, and start again"
    ),
    r"unsupported GNU version|unsupported clang version|unsupported Microsoft Visual": (
        "this CUDA toolkit does not take this C++ compiler; set CUDAHOSTCXX to an older one "
        "(CUDAHOSTCXX=g++-13) and start again"
    ),
    r"Unsupported gpu architecture|is not a supported (gpu|CUDA) architecture": (
        "this nvcc does not know the GPU; set CUDACXX to the nvcc of another CUDA toolkit "
        "and start again"
    ),
    r"Failed to detect a default CUDA architecture|No CMAKE_CUDA_COMPILER could be found"
    r"|CMAKE_CUDA_COMPILER.*not (a full path|able to compile)": (
        "nvcc does not work here; see whether `nvcc --version` answers, or set CUDACXX to another"
    ),
    r"SPIRV-Headers(Config\.cmake|-config\.cmake|_DIR)|spirv\.hpp: No such file": (
        "the SPIR-V headers are missing; install them (Debian, Ubuntu: `apt install "
        "spirv-headers`) and start again"
    ),
    r"Could NOT find Vulkan": (
        "the Vulkan headers or the loader are missing; install them (Debian, Ubuntu: `apt install "
        "libvulkan-dev glslc`) and start again"
    ),
    r"is not a member of .?vk\b|named '\w+' in namespace 'vk'": (
        "the Vulkan headers are too old; install a newer Vulkan SDK (vulkan.lunarg.com), set "
        "VULKAN_SDK to it and start again"
    ),
    r"fatal error: Killed signal|virtual memory exhausted|out of memory": (
        "the compiler ran out of memory; start again with CMAKE_BUILD_PARALLEL_LEVEL=1"
    ),
}


class Failure(Exception):  # noqa: N818 - it is an outcome shown to the user, not a programming error
    """Ends the bootstrap. Its message is the only line shown, so it says what to do."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    print(f"localspec: {message}", file=sys.stderr, flush=True)


def explain(output: str) -> str | None:
    """The likely cause in a failed step's output, as advice."""
    for pattern, advice in KNOWN_CAUSES.items():
        if re.search(pattern, output):
            return advice
    return None


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the settings that would make pip install somewhere else."""
    elsewhere = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME"}
    kept = {name: value for name, value in environ.items() if name not in elsewhere}
    # Set rather than dropped: a configuration file may say the same.
    return {**kept, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


@contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Hold a file lock; the system releases it when this process ends in any way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def describe(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space and start again"
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}; fix that and start again"


def read_notes(path: Path) -> dict[str, str]:
    """What `write_notes` wrote; empty where the file is missing or damaged."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in notes.items()} if isinstance(notes, dict) else {}


def write_notes(path: Path, notes: object) -> None:
    """Write a JSON object, all or nothing."""
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(notes, indent=1), encoding="utf-8")
    scratch.replace(path)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handles a signal as Ctrl-C is."""
    raise KeyboardInterrupt


def outcome(work: Callable[[], object], interrupted: str) -> int:
    """The exit status of ``work``; what it failed of is said in one line."""
    try:
        work()
    except Failure as failure:
        say(str(failure))
        return failure.status
    except KeyboardInterrupt:
        say(interrupted)
        return 130
    except OSError as error:
        say(describe(error))
        return 1
    return 0


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def bar(share: float) -> str:
    """Twenty cells of which a share, 0 to 1, is filled."""
    filled = min(20, int(20 * share))
    return "━" * filled + "╌" * (20 - filled)


class StatusLine:
    """The running step, its progress and time: redrawn on a terminal, rarely printed elsewhere."""

    def __init__(
        self,
        title: str,
        stream: IO[str],
        clock: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
    ) -> None:
        """``pace`` knows what remains of the step, where somebody does."""
        self.title = title
        self.stream = stream
        self.terminal = stream.isatty()
        self.clock = clock
        self.pace = pace
        self.started = clock()
        self.last_plain = self.started

    def text(self) -> str:
        elapsed = self.clock() - self.started
        left = self.pace.left() if self.pace is not None else None
        parts = [self.title]
        if left is not None:
            parts.append(bar(elapsed / (elapsed + left) if left else 1.0))
        parts.append(minutes(elapsed))
        if left:
            parts.append(f"about {minutes(left)} left")
        return "  ".join(parts)

    def draw(self) -> None:
        if self.terminal:
            width = os.get_terminal_size(self.stream.fileno()).columns or 80
            self.stream.write(f"\r\x1b[K{self.text()[: width - 1]}")
        elif self.clock() - self.last_plain >= PLAIN_INTERVAL:
            self.last_plain = self.clock()
            self.stream.write(f"{self.text()}\n")
        self.stream.flush()

    def close(self) -> None:
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        finished = threading.Event()

        def tick() -> None:
            while not finished.wait(1.0):
                self.draw()

        ticker = threading.Thread(target=tick, daemon=True)
        self.draw()
        ticker.start()
        try:
            yield
        finally:
            finished.set()
            ticker.join()
            self.close()


def stop_group(process: subprocess.Popen[str]) -> None:
    """End a step and all it started; an interrupt first, so that ninja drops half-written files."""
    # An impatient second Ctrl-C must not cut this short.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for number, patience in ((signal.SIGINT, 5), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=patience)
            time.sleep(0.1)  # what the step started ends a moment after it
    except (ProcessLookupError, PermissionError):
        pass  # all are gone; macOS calls signalling the dead a matter of permission
    finally:
        signal.signal(signal.SIGINT, before)


def run_step(
    title: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    advice: str = "",
    pace: Pace | None = None,
) -> None:
    """Run one step with its output in the log; a Failure names the likely cause.

    ``pace`` is told of the process and its output, and asked what remains.
    """
    status = StatusLine(f"localspec: {title}", sys.stderr, pace=pace)
    tail: deque[str] = deque(maxlen=400)
    with log.open("a", buffering=1, encoding="utf-8") as sink:  # to be followed with tail -f
        sink.write(f"\n== {title}: {' '.join(map(str, command))}\n")
        with subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=clean_environment(os.environ if env is None else env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,  # so that stop_group reaches compilers too
        ) as process:
            assert process.stdout is not None
            if pace is not None:
                pace.begin(process.pid)
            try:
                with status.ticking():
                    for line in process.stdout:
                        sink.write(line)
                        if pace is not None:
                            pace.read(line)
                        tail.append(line)
                    code = process.wait()
            except BaseException:
                stop_group(process)
                raise
    if code:
        cause = explain("".join(tail)) or advice or "the log says why"
        raise Failure(f"{title} failed: {cause} [log: {log}]")
