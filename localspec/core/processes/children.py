"""Starting modules of this package in a Python process of their own, which ends with its parent."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.core import errors
from localspec.core.errors import EngineError, LocalspecError, UsageError
from localspec.core.files import checked, defects

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_PATIENCE = 60.0
"""Seconds; a driver that starts up can take several."""
_KILLED_S = 1.0
"""Seconds for the end of a process that was killed."""
_HOME = str(Path(__file__).resolve().parents[3])
"""The folder that holds this package."""

_BEFORE = re.compile(rf"^(?:localspec|{re.escape(errors.__name__)}\.\w+): ")
"""What commands, and Python where a module is not imported, write before the text of an error."""
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_LOOK_S = 0.5


def command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs one of our modules with this Python, and its environment.

    -P and an explicit path: a folder called localspec in the working directory is not ours.

    Raises:
        UsageError: no process can be given one of the arguments.
    """
    for argument in arguments:
        if not checked.possible(argument):
            raise UsageError(f"{argument[:80]!r} is no name that there can be")
    return [sys.executable, "-P", "-m", module, *arguments], environment()


def environment() -> dict[str, str]:
    """The environment in which this Python finds this package and what it found beside it."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([_HOME, inherited] if inherited else [_HOME])
    return os.environ | {"PYTHONPATH": path}


def ask(module: str, *arguments: str) -> Any:
    """The JSON that a module prints. Blocks until it ends.

    Raises:
        LocalspecError: it failed; the message is the last line of its stderr.
    """
    line, environment = command(module, *arguments)
    try:
        done = subprocess.run(
            line,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise LocalspecError(f"no answer within {_PATIENCE:.0f} seconds") from None
    except OSError as error:
        raise LocalspecError(f"no answer: {defects.why(error)}") from None
    except ValueError as error:
        raise LocalspecError(f"no answer: {error}") from None
    raise _failed(done.stderr, done.returncode)


async def ask_async(module: str, *arguments: str) -> Any:
    """Ask a child process without blocking the event loop; cancelled, it ends the process.

    Raises:
        LocalspecError: as `ask`.
    """
    import asyncio  # here: it is slow to import, and commands do without

    line, environment = command(module, *arguments)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *line, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        raise LocalspecError(f"no answer: {defects.why(error)}") from None
    try:
        out, err = await asyncio.wait_for(process.communicate(), _PATIENCE)
        if process.returncode == 0:
            return json.loads(out)
    except TimeoutError:
        raise LocalspecError(f"no answer within {_PATIENCE:.0f} seconds") from None
    except ValueError as error:
        raise LocalspecError(f"no answer: {error}") from None
    finally:
        await ended(process, 0.0)
    raise _failed(err, process.returncode)


async def ended(process: Process, seconds: float, kill: Callable[[], None] | None = None) -> None:
    """Wait until a process has ended, and kill it where that takes longer, or where nobody waits
    any more: cancelled, it leaves nothing running. ``kill`` ends what the process started too,
    which may keep its pipes open.
    """
    import asyncio  # here: as above

    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            (kill or process.kill)()
    try:
        await asyncio.wait_for(process.wait(), _KILLED_S)
    except TimeoutError:  # asyncio waits for the end of its pipes too, which nobody reads any more
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


def failed(error: LocalspecError) -> dict[str, Any]:
    """The fields of a process's answer that is an error."""
    return {"error": type(error).__name__, "message": str(error)}


def read_failed(message: dict[str, Any]) -> LocalspecError:
    """The error that a message holds: of its class in `localspec.core.errors`."""
    kind = getattr(errors, str(message["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, LocalspecError)):
        kind = EngineError
    return kind(str(message["message"]))


def last_line(stderr: str) -> str:
    """The last line of a process, as its error says it; "" if there is none."""
    lines = stderr.strip().splitlines()
    return _BEFORE.sub("", lines[-1]) if lines else ""


def _failed(stderr: bytes, status: int | None) -> LocalspecError:
    said = last_line(stderr.decode("utf-8", "replace"))
    return LocalspecError(said or f"exit status {status}")


def end_with_parent() -> None:
    """End this process by SIGKILL when its parent has ended, whatever it is doing then.

    Linux does it itself. Elsewhere, as on macOS, a thread looks twice a second: an orphan gets
    another parent. Native code does not stop it, since calls into llama.cpp release Python's lock.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    else:
        watch_parent()


def watch_parent() -> None:
    """Start the thread that looks."""
    thread = threading.Thread(target=_until_orphaned, args=(os.getppid(),), name="parent")
    thread.daemon = True
    thread.start()


def _until_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)
