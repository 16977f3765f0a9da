"""SIGKILL at random moments: of commands and writers (`kill_writers`), and of the interface and its
engine (`kill_interface`). What was there before is there after, and every file is whole.
"""

from __future__ import annotations

import collections
import contextlib
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from faults.kill_writers import WRITERS, Writer
from faults.runner import Search

_PATIENCE = 120.0


@dataclass(frozen=True)
class Case:
    """One kill."""

    seed: int
    writer: str
    moment: float
    """Time of the kill, as a fraction of the process's undisturbed duration."""


class Kills(Search):
    """Kills of commands and writers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "kills"
        self._folder.mkdir()
        self._writers: dict[str, Writer] = {}
        self._seconds: dict[str, float] = {}
        self._kills: collections.Counter[str] = collections.Counter()
        self._late = 0
        self._number = 0

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        return Case(seed, WRITERS[seed % len(WRITERS)].__name__, rng.random())

    def wrong(self, case: Case) -> str | None:
        if case.writer not in self._writers:
            (kind,) = (w for w in WRITERS if w.__name__ == case.writer)
            self._writers[case.writer] = kind()
            if wrong := self._run(case.writer, None):
                return f"where nobody kills it: {wrong}"
        return self._run(case.writer, case.moment)

    def figures(self) -> Iterator[str]:
        for name, count in sorted(self._kills.items()):
            yield f"{name}: {count} killed, {self._seconds[name]:.1f} s where nobody kills it"
        yield f"{self._late} had finished before they could be killed"

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _run(self, name: str, moment: float | None) -> str | None:
        writer = self._writers[name]
        self._number += 1
        folder = self._folder / str(self._number)
        try:
            shutil.copytree(self._prepared(name), folder)
            return self._killed(name, writer, folder, moment)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _prepared(self, name: str) -> Path:
        """The files before the kill, made once."""
        folder = self._folder / name
        if not folder.exists():
            (folder / "home").mkdir(parents=True, mode=0o700)
            self._writers[name].prepare(folder)
        return folder

    def _killed(self, name: str, writer: Writer, folder: Path, moment: float | None) -> str | None:
        start = time.monotonic()
        with subprocess.Popen(
            writer.line(folder),
            env=writer.environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            if moment is None:
                code = process.wait(_PATIENCE)
                self._seconds[name] = time.monotonic() - start
                return writer.wrong(folder, finished=True) if code == 0 else f"it ends with {code}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment * self._seconds[name])
            children = _children(process.pid)
            process.kill()
            finished = process.wait() == 0
        self._late += finished
        self._kills[name] += not finished
        _, alive = psutil.wait_procs(children, 15)
        if alive:
            names = [" ".join(p.cmdline())[:80] for p in alive]
            for child in alive:
                child.kill()
            return f"processes are left behind: {names}"
        return writer.wrong(folder, finished=finished)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
