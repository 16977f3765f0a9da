"""Checks that run llama.cpp, each in a separate process: if one crashes or hangs, doctor continues.

``python -m localspec.doctor.examiner CHECK`` writes findings as lines of JSON.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from localspec.core.processes import activity, crash
from localspec.core.processes.children import command
from localspec.doctor import backend, pair
from localspec.doctor.findings import BACKEND, FIT, LIBRARY, SPEED, Finding

_PATIENCE = {BACKEND: 60.0, SPEED: 120.0, FIT: 60.0}
"""Seconds; a graphics driver that starts up can take several, and compiles its kernels at first."""
_FETCH = "fetch that model again, or set another one in config.toml: its file may be damaged"
_TAIL = 2000
"""Characters of native text that programs get."""


def here(check: str) -> Iterator[Finding]:
    """Findings of a check, made in this process, which ends if llama.cpp crashes."""
    if check == BACKEND:
        yield from backend.check()
    else:
        yield pair.speed() if check == SPEED else pair.fit()


def apart(check: str) -> Iterator[Finding]:
    """Findings of a check, made in another process; a crash or a time-out is a finding too, the
    last one.
    """
    limit = _PATIENCE[check]
    with tempfile.TemporaryFile() as shared:
        shared.truncate(activity.SIZE)
        line, environment = command(__name__, check, str(shared.fileno()))
        try:
            done = subprocess.run(
                line,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=[shared.fileno()],
                timeout=limit,
                check=False,
            )
            found, native, status = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            found, native, status = error.stdout or b"", error.stderr or b"", None
        doing = activity.last(shared.read(activity.SIZE)).doing
    for fields in map(json.loads, found.splitlines()):
        yield Finding(**{**fields, "table": tuple(fields["table"])})
    if status != 0:
        yield _failed(check, status, doing, native.decode("utf-8", "replace"))


def _failed(check: str, status: int | None, doing: str, native: str) -> Finding:
    """A check that ended with another status than 0; None if it had to be ended."""
    if status is None:
        text = f"no answer within {_PATIENCE[check]:.0f} seconds"
        text += f" while {crash.harmless(doing)}" if doing else ""
    elif status < 0:
        text = crash.explain(-status, doing, native)
    else:
        last = (native.strip().splitlines() or [f"exit status {status}"])[-1]
        text = f"the check failed: {crash.harmless(last)}"
    details = {"status": status, "native": native[-_TAIL:]}
    fix = _FETCH if check == FIT else backend.reinstall()
    return Finding(LIBRARY if check == BACKEND else check, "broken", text, fix, details)


def _main(check: str, shared: int) -> None:
    """Run one check in a child process: findings go to stdout, native output to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        faulthandler.enable()
        activity.share(mmap.mmap(shared, activity.SIZE))
        activity.doing("starting llama.cpp")
        for finding in here(check):
            out.write(json.dumps(dataclasses.asdict(finding)) + "\n")
            out.flush()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
