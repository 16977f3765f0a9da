"""A process with limits that runs the cases of one search; a case that ends it, hangs or takes too
much is a fault.

``python tests/faults/limits.py NAME`` reads a case a line, ``[seed, [left out]]``, and answers
each with ``[what is wrong or null, [changes made]]``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from faults.mutations import MEMORY

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10
"""Seconds of computing that a case may take,"""
WALL_SECONDS = 120
"""and seconds of the clock, which a busy machine makes long."""
_MANY = 400
"""Cases after which a process is replaced: what a case leaves behind does not add up for ever."""


def environment() -> dict[str, str]:
    """Variables of a process that imports the program, the searches and the tests' small models."""
    path = [str(ROOT / name) for name in ("", "tests", "tests/helpers", "tests/models")]
    inherited = os.environ.get("PYTHONPATH")
    path += [inherited] if inherited else []
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


class Limited:
    """The process that runs the cases of the search called ``name``."""

    def __init__(self, name: str, script: Path = Path(__file__)) -> None:
        """``script`` serves it."""
        self._name, self._script = name, script.resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._done = 0

    def run(self, seed: int, left_out: Sequence[int] = ()) -> tuple[str | None, list[str]]:
        """The fault of a case, and the changes that it made."""
        if self._process is None or self._done >= _MANY:
            self.close()
            self._process = self._started()
        process = self._process
        self._done += 1
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([seed, [*left_out]]).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], WALL_SECONDS)
        line = process.stdout.readline() if ready else b""
        if line.endswith(b"\n"):
            what, changes = json.loads(line)
            return what, changes
        if not ready:
            process.kill()
        code = process.wait()
        self.close()
        if not ready:
            return f"no answer within {WALL_SECONDS} s", []
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        more = f" ({SECONDS} s of computing)" if code == -signal.SIGPROF else ""
        return f"the process ended: {name}{more}", []

    def close(self) -> None:
        """End the process."""
        process, self._process, self._done = self._process, None, 0
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", str(self._script), self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(),
        )


def _serve(name: str) -> None:
    """Run the cases that are asked for on standard input."""
    import resource

    from faults import cases, mutations

    case = cases.CASES[name]
    answers = os.dup(1)
    os.dup2(2, 1)  # what a case prints is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="localspec-case-") as folder:
        for number, line in enumerate(sys.stdin.buffer):
            seed, left_out = json.loads(line)
            chance = mutations.Chance(f"{name}:{seed}", left_out)
            place = Path(folder) / str(number)
            place.mkdir()
            _limit()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                what = case(chance, place)
            except BaseException as error:  # noqa: BLE001 - that is what is looked for
                frames = traceback.extract_tb(error.__traceback__)[-3:]
                where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
                what = f"{type(error).__name__}: {str(error)[:200]} ({where})"
            signal.setitimer(signal.ITIMER_PROF, 0)
            shutil.rmtree(place, ignore_errors=True)
            answer = json.dumps([what, chance.changes]).encode() + b"\n"
            while answer:
                answer = answer[os.write(answers, answer) :]


def _limit() -> None:
    """No case takes more memory than `MEMORY` beyond what the process has now."""
    import resource

    gc.collect()
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = taken * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


if __name__ == "__main__":
    _serve(sys.argv[1])
