"""Runs commands of others, such as compilers, for a limited time."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence

_END_S = 5.0
"""Seconds within which a killed process ends."""


def run(
    line: Sequence[str],
    patience_s: float,
    *,
    stdin: int | None = subprocess.DEVNULL,
    stderr: int | None = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """What a command gave. One that takes too long, or for which nobody waits any more, ends with
    all that it started: a compiler's driver leaves the work to others.

    It stays in our process group, so that Ctrl-C reaches it and all of those also where it is not
    the main thread that waits.

    Raises:
        subprocess.TimeoutExpired: it took longer.
        OSError: it cannot be started.
    """
    process = subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=env)
    try:
        out, err = process.communicate(timeout=patience_s)
    except BaseException:
        if process.returncode is None:
            _kill(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):  # what is not ours may stay
                process.wait(_END_S)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        raise
    return subprocess.CompletedProcess(line, process.returncode, out, err)


def _kill(pid: int) -> None:
    """Kill a child and what it started, as far as they are ours: sudo is not."""
    import psutil  # here: slow to import, and hardly ever needed

    with contextlib.suppress(psutil.Error):  # it has ended meanwhile
        top = psutil.Process(pid)
        with contextlib.suppress(psutil.AccessDenied):
            top.suspend()  # it starts no more
        for one in (*top.children(recursive=True), top):
            with contextlib.suppress(psutil.Error):
                one.kill()
