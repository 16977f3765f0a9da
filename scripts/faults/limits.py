"""Cases run in a process with limits; one that ends it, hangs or takes too much is a fault."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEMORY = 1 << 30
"""Bytes that a process may take beyond what it has when it starts."""
SECONDS = 10
_PATIENCE = 60.0
"""Seconds without a word after which the process is ended."""

Case = Callable[[random.Random, Path], str | None]
"""One case, given its own source of chance and an empty folder; what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A case that did not end as it should."""

    search: str
    seed: int
    number: int
    what: str

    def __str__(self) -> str:
        """One line, then what is known."""
        again = f"--only {self.search} --seed {self.seed} --first {self.number} --cases 1"
        return f"{self.search}, case {self.number} ({again}): {self.what}"


def run(
    search: str, case: Case, cases: int, seed: int, folder: Path, first: int = 0
) -> list[Fault]:
    """Run cases ``first`` to ``first + cases``; the same seed makes the same cases."""
    found: list[Fault] = []
    number, end = first, first + cases
    while number < end:
        number, faults = _stretch(search, case, number, end, seed, folder)
        found += faults
    return found


def _stretch(
    search: str, case: Case, number: int, end: int, seed: int, folder: Path
) -> tuple[int, list[Fault]]:
    """Cases up to the end, or to one that ends the process; where to go on."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(search, case, number, end, seed, folder, writer)
    os.close(writer)
    faults, buffer, heard = [], b"", time.monotonic()
    current = number - 1
    while True:
        ready, _, _ = select.select([reader], [], [], 1.0)
        chunk = os.read(reader, 1 << 16) if ready else b""
        if ready and not chunk:
            break
        if chunk:
            heard = time.monotonic()
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                current, what = json.loads(line)
                if what is not None:
                    faults.append(Fault(search, seed, current, what))
        elif time.monotonic() - heard > _PATIENCE:
            os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return end, faults
    name = signal.Signals(-code).name if code < 0 else f"status {code}"
    faults.append(Fault(search, seed, current, f"the process ended: {name}"))
    return current + 1, faults


def _child(
    search: str, case: Case, number: int, end: int, seed: int, folder: Path, writer: int
) -> None:
    status = 1
    try:
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = taken * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for i in range(number, end):
            _tell(writer, i, None)
            place = folder / f"{search}-{i}"
            place.mkdir(parents=True)
            signal.alarm(SECONDS)
            try:
                what = case(random.Random(f"{search}:{seed}:{i}"), place)
            except BaseException as error:  # noqa: BLE001 - that is what is looked for
                frames = traceback.extract_tb(error.__traceback__)[-3:]
                where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
                what = f"{type(error).__name__}: {str(error)[:200]} ({where})"
            signal.alarm(0)
            _remove(place)
            if what is not None:
                _tell(writer, i, what)
        status = 0
    finally:
        os._exit(status)


def _tell(writer: int, number: int, what: str | None) -> None:
    os.write(writer, json.dumps([number, what]).encode() + b"\n")


def _remove(place: Path) -> None:
    import shutil

    with contextlib.suppress(OSError):
        shutil.rmtree(place)
