"""Describes the crash of a process in native code: signal, step, and what to try."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from localspec.core.files import checked
from localspec.core.files.defects import MORE_THREADS, NO_THREADS

_MOST = 300
"""Characters of a native message that are repeated."""
DUMP = "Fatal Python error"
"""Begins what faulthandler writes after a native message."""
_RECENT_S = 60.0
"""Seconds for which the last lines of a log belong to a crash."""
_LOG_TAIL = 1 << 13
OUT_OF_MEMORY = "the GPU ran out of memory"
OUT_OF_HOST_MEMORY = "this machine ran out of memory"
LOST = "the GPU was lost, as after sleep or when its driver is reset"
WORKER_GONE = "a worker of --rpc has ended or cannot be reached any more"
WORKER_SILENT = "a worker of --rpc has not answered for too long"
SILENT = "localspec: no answer from the worker "
"""Begins the line that `localspec.llama.rpc.watch` writes before it ends a wait."""
GONE = "localspec: no connection to the worker "
"""Begins the line that it writes where llama.cpp gives up and a worker has gone."""
_WORKERS = re.compile(rf"^(?:{SILENT}|{GONE})(.+?)(?: for \d+ s)?$", re.MULTILINE)
_DEVICE_FAILURES = {
    OUT_OF_MEMORY: re.compile(
        r"CUDA error: out of memory|cudaMalloc failed: out of memory|OutOfDeviceMemory"
        r"|(?-i:Insufficient Memory)|CallbackErrorOutOfMemory"
        r"|(?:failed|unable) to allocate (?!\w+_Host\b)"
        r"(?:CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|MTL|Metal|OpenCL|WebGPU|RPC)\S* buffer",
        re.IGNORECASE,
    ),
    OUT_OF_HOST_MEMORY: re.compile(
        r"(?:failed|unable) to allocate (?:CPU\w*|AMX|\w+_Host|output) buffer"
        r"|cpu_buffer_type_alloc_buffer: failed to allocate|std::bad_alloc"
        r"|ggml_aligned_malloc: insufficient memory|OpenBLAS error: Memory allocation"
    ),
    LOST: re.compile(
        r"device ?lost|CUDA error: (?:unknown error|unspecified launch failure|the launch timed out"
        r"|all CUDA-capable devices are busy)"
        r"|CallbackError(?:DeviceRemoved|InnocentVictim|Timeout)",
        re.IGNORECASE,
    ),
    WORKER_GONE: re.compile(
        rf"{GONE}|Remote RPC server crashed|Failed to connect to \S+:\d|RPC handshake failed"
    ),
    WORKER_SILENT: re.compile(rf"{SILENT}"),
    NO_THREADS: re.compile(
        r"Thread creation failed|pthread_create failed|what\(\):\s+Resource temporarily unavailable"
        r"|RuntimeError: can't start new thread"
    ),
}
"""Explanations of messages of llama.cpp's back ends, of libraries that it uses, and of ours."""
_ADVICE = {
    OUT_OF_MEMORY: "close other programs that use the GPU, or try a smaller --ctx or --gpu-layers",
    OUT_OF_HOST_MEMORY: "close other programs, or try a smaller model or a smaller --ctx",
    LOST: "start again",
    WORKER_GONE: "start `localspec worker` there again, and then this",
    WORKER_SILENT: "check the worker and the network, then start again",
    NO_THREADS: MORE_THREADS,
}


def device_failure(*native: str) -> str:
    """The meaning of the last message of a failed device in any of the texts; "" without any."""
    last: dict[str, int] = {}
    text = "\n".join(native)
    for meaning, pattern in _DEVICE_FAILURES.items():
        for found in pattern.finditer(text):
            last[meaning] = found.start()
    if WORKER_SILENT in last:  # after which llama.cpp says that the worker has gone
        last.pop(WORKER_GONE, None)
    if not last and "failed to allocate compute" in text:  # said after either, mostly
        return OUT_OF_HOST_MEMORY
    return max(last, key=last.__getitem__, default="")


def which(failure: str, *native: str) -> str:
    """``failure`` with the workers that the texts name last, where they name any."""
    named = _WORKERS.findall("\n".join(native)) if failure in {WORKER_GONE, WORKER_SILENT} else []
    return f"{failure} ({harmless(named[-1])})" if named else failure


def recent_lines(log: Path) -> str:
    """The end of a log that was written to within the last minute; "" otherwise."""
    try:
        stat = log.stat()
        if abs(time.time() - stat.st_mtime) > _RECENT_S:
            return ""
        with checked.opened(log) as file:
            file.seek(max(0, stat.st_size - _LOG_TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def signal_name(number: int) -> str:
    """The signal as in ``signal 11 (SIGSEGV)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def visible(text: str) -> str:
    """The text with control characters as readable escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """The text on one line, with control characters visible, and not too long."""
    shown = visible(text)
    return shown if len(shown) <= _MOST else shown[: _MOST - 1] + "…"


def last_words(native: str) -> str:
    """The last line of native code before it aborted, such as a failed assertion; or ""."""
    lines = [line.strip() for line in native.partition(DUMP)[0].splitlines()]
    return harmless(next((line for line in reversed(lines) if line), ""))


def explain(number: int, doing: str, native: str = "", logged: str = "") -> str:
    """A line for users: ``llama.cpp crashed with signal 6 (SIGABRT) while loading a.gguf:
    GGML_ASSERT(...) failed``. ``native`` is what native code wrote to stderr, ``logged`` the end of
    llama.cpp's log. Signal 0 is the exit() of a native library.
    """
    name = signal_name(number)
    at = f" while {harmless(doing)}" if doing else ""
    if number == signal.SIGKILL:
        return f"the process was killed with {name}{at}"
    worded = number in {0, signal.SIGABRT}  # others come without a message: earlier output
    failure = device_failure(logged, native) if worded else ""  # has other reasons
    exited = f"a native library ended the program{at}"
    if failure:
        gave_up = f"llama.cpp gave up with {name}{at}" if number else exited
        return f"{which(failure, logged, native)}, and {gave_up}"
    message = last_words(native) if worded else ""
    crashed = f"llama.cpp crashed with {name}{at}" if number else exited
    return f"{crashed}{': ' if message else ''}{message}"


def advice(number: int, doing: str, failure: str = "") -> str:
    """Advice for the user; ``failure`` is that of `device_failure`."""
    if failure:
        return _ADVICE[failure]
    if number == signal.SIGKILL:
        return "if memory ran out, try a smaller model or a smaller --ctx"
    if number == signal.SIGILL:
        return "llama.cpp was built for another processor; `localspec doctor` says what to do"
    if number == getattr(signal, "SIGBUS", None):  # Windows has none
        return "a model file may have been changed or cut short while it was in use; start it again"
    if doing.startswith("loading") and number == signal.SIGABRT:
        return "the file may be damaged: fetch it again, or try `localspec doctor`"
    return "try `localspec doctor`"
