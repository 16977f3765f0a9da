"""The engine process as the interface starts it, and what its end means."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from localspec.core.errors import (
    DeviceLostError,
    DeviceMemoryError,
    EngineError,
    LocalspecError,
    WorkerLostError,
)
from localspec.core.files import defects, paths
from localspec.core.files.private import opener
from localspec.core.processes import children
from localspec.engine import native_words, protocol


async def spawn(log_path: Path, runtime: str | None, interval: float | None = None) -> Process:
    """Start the process, its log in ``log_path``; ``runtime`` names another MODULE:FACTORY, and
    ``interval`` is the number of seconds between two messages with tokens.

    Raises:
        EngineError: it could not be started, or there is no place for its log.
    """
    try:
        paths.make(log_path.parent)
    except LocalspecError as error:
        raise EngineError(f"there is no place for the engine's log: {error}") from None
    other: tuple[str, ...] = () if runtime is None else ("--runtime", runtime)
    if interval is not None:
        other += ("--interval", str(interval))
    arguments = ("localspec.engine", "--log", str(log_path), *other)
    return await started(arguments, log_path, "the engine", mode="ab", limit=protocol.MAX_LINE)


async def started(
    arguments: Sequence[str], log_path: Path, what: str, *, mode: str, limit: int
) -> Process:
    """A module with arguments, started as a process that answers in lines of at most ``limit``
    bytes. Its stderr goes to a log, opened in ``mode``; errors call the process ``what``.

    Raises:
        EngineError: it could not be started.
    """
    command, environment = children.command(*arguments)
    try:
        with open(log_path, mode, opener=opener) as log:  # noqa: ASYNC230 - done in a blink
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                limit=limit,
                start_new_session=True,  # keys and hang-ups of the terminal are not for it
            )
    except OSError as error:
        raise EngineError(f"{what} could not be started: {defects.why(error)}") from None


def exit_error(status: int, log: Path, doing: str = "") -> EngineError:
    """The error of a process that ended unexpectedly; a `DeviceError` where a device failed."""
    message = exit_message(status, log, doing)
    if status <= 0 and status != -signal.SIGABRT:
        return EngineError(message)
    from localspec.core.processes import crash  # rarely needed, and it compiles expressions

    if status > 0:  # a native library has called exit(): earlier output has other reasons
        said: tuple[str, ...] = (native_words.last(log, status),)
    else:
        llama_log = crash.recent_lines(paths.state_dir() / paths.LLAMA_LOG)
        said = llama_log, native_words.words(log, status)
    failure = crash.device_failure(*said)
    if not failure:
        return EngineError(message)
    at = f" while {doing}" if doing else ""
    kind: type[EngineError] = {
        crash.OUT_OF_MEMORY: DeviceMemoryError,
        crash.OUT_OF_HOST_MEMORY: DeviceMemoryError,
        crash.LOST: DeviceLostError,
        crash.WORKER_GONE: WorkerLostError,
        crash.WORKER_SILENT: WorkerLostError,
    }.get(failure, EngineError)
    message = f"{crash.which(failure, *said)}, and the engine stopped{at}; its log is {log}"
    return kind(f"{message}; {crash.advice(0, '', failure)}" if kind is EngineError else message)


def exit_message(status: int, log: Path, doing: str = "") -> str:
    """The message for a process that ended unexpectedly, with ``status``, while ``doing``."""
    at = f" while {doing}" if doing else ""
    words = native_words.last(log, status) if status > 0 or status == -signal.SIGABRT else ""
    words = f": {words}" if words else ""
    if status >= 0:
        return f"the engine stopped{at} (exit status {status}){words}; its log is {log}"
    try:
        name = f", {signal.Signals(-status).name}"
    except ValueError:
        name = ""
    advice = "" if -status == signal.SIGKILL else "; try `localspec doctor`"
    return f"the engine stopped{at} (signal {-status}{name}){words}; its log is {log}{advice}"
