"""Workers that are lost at random moments, from the first connection to the last token: killed,
stopped, cut off, or silenced. A command ends with the whole reply, or with a part of it and one
sentence; the next command finds the worker again.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from slow_network import Proxy

from faults.runner import Search
from localspec.core.endpoint import Endpoint
from localspec.core.errors import WorkerError
from localspec.llama.rpc import handshake

_PATIENCE = 120.0
_SILENCE_S = 3
_WAYS = ("kill", "kill", "kill", "stop", "cut", "silence")
"""Killed most often: that is what happens."""
_MOST_WORKERS = 3
_PROMPT = "Count from 1 to 20."
_DELAY_S = 0.005
"""Each way, so that a reply is no matter of an instant."""


@dataclass(frozen=True)
class Case:
    """One loss."""

    seed: int
    way: str
    workers: int
    which: int
    moment: float
    """A fraction of the duration of an undisturbed command."""
    drafted: bool


class Workers(Search):
    """Losses of workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "workers"
        (self._folder / "home").mkdir(parents=True, mode=0o700)
        self._environment = os.environ | {"LOCALSPEC_HOME": str(self._folder / "home")}
        self._machines: list[_Machine] = []
        self._usual: dict[tuple[int, bool], tuple[float, str]] = {}
        """Seconds and text of an undisturbed command."""
        self._ends: collections.Counter[str] = collections.Counter()

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        count = rng.randint(1, _MOST_WORKERS)
        way, which = rng.choice(_WAYS), rng.randrange(count)
        moment = rng.uniform(0.3, 1.0)  # Python starts before, and no worker is needed
        return Case(seed, way, count, which, moment, rng.random() < 0.7)

    def smaller(self, case: Case) -> Iterator[Case]:
        if case.workers > 1:
            yield replace(case, workers=1, which=0)
        if case.drafted:
            yield replace(case, drafted=False)

    def wrong(self, case: Case) -> str | None:
        while len(self._machines) < case.workers:
            self._machines.append(_Machine(self._folder, self._environment))
        machines = self._machines[: case.workers]
        with contextlib.ExitStack() as stack:
            proxies = [stack.enter_context(Proxy(m.address, _DELAY_S)) for m in machines]
            line = self._line(case, proxies)
            kind = case.workers, case.drafted
            if kind not in self._usual:
                start = time.monotonic()
                status, text, err = self._finish(self._begin(line))
                if status:
                    return f"where no worker is lost: {err[-300:]}"
                self._usual[kind] = time.monotonic() - start, text
            seconds, text = self._usual[kind]
            process = self._begin(line)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(case.moment * seconds)
            with machines[case.which].lost(case.way, proxies[case.which]):
                try:
                    status, out, err = self._finish(process)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return f"no end within {_PATIENCE:.0f} s"
            self._ends[f"{case.way}: {'whole' if status == 0 else 'lost'}"] += 1
            if wrong := _told_wrongly(status, out, err, text):
                return wrong
        with contextlib.ExitStack() as stack:
            proxies = [stack.enter_context(Proxy(m.address)) for m in machines]
            for machine in machines:
                machine.answers()
            status, again, err = self._finish(self._begin(self._line(case, proxies)))
        if status or again != text:
            return f"afterwards, status {status}: {again[:60]!r} {err[-300:]}"
        return None

    def figures(self) -> Iterator[str]:
        for name, count in sorted(self._ends.items()):
            yield f"{name} {count}"

    def close(self) -> None:
        for machine in self._machines:
            machine.close()

    def _line(self, case: Case, proxies: list[Proxy]) -> list[str]:
        rpc = ",".join(proxy.name for proxy in proxies)
        drafts = ["--draft-max", "4"] if case.drafted else ["--drafter", "off"]
        options = ["--rpc", rpc, "--rpc-timeout", str(_SILENCE_S), "--threads", "1", "-t", "0"]
        return [sys.executable, "-P", "-m", "localspec", "run", _PROMPT, *options, *drafts]

    def _begin(self, line: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def _finish(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        with process:
            out, err = process.communicate(timeout=_PATIENCE)
        return process.returncode, out, err


def _told_wrongly(status: int, out: str, err: str, text: str) -> str | None:
    """The fault in the end of a command whose worker was lost."""
    if "Traceback" in err or "bug in localspec" in err:
        return f"it fails: {err[-300:]}"
    if status == 0:
        return None if out == text else f"another text: {out[:60]!r}"
    if status != 1:
        return f"it ends with {status}: {err[-300:]}"
    if not text.startswith(out):
        return f"its part of the reply is none of the reply: {out[:60]!r}"
    sentences = [line for line in err.splitlines() if "worker" in line]
    notices = [line for line in sentences if "layers of" in line]
    if len(sentences) - len(notices) != 1:
        return f"{len(sentences) - len(notices)} sentences: {err[-300:]}"
    return None


class _Machine:
    """A worker, and what can happen to it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        log = folder / f"worker-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "localspec", "worker", "--threads", "1"),
                    *("--bind", "127.0.0.1:0"),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._log = log
        until = time.monotonic() + _PATIENCE
        while not (found := re.search(r"worker at (\S+):(\d+) ", log.read_text())):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the worker does not start: {log.read_text()}")
            time.sleep(0.05)
        self.address = found[1], int(found[2])

    def _devices(self) -> psutil.Process:
        until = time.monotonic() + _PATIENCE
        while True:
            children = psutil.Process(self._process.pid).children()
            if children:
                return children[0]
            if time.monotonic() > until:
                raise RuntimeError(f"the worker is not started again: {self._log.read_text()}")
            time.sleep(0.05)

    @contextlib.contextmanager
    def lost(self, way: str, proxy: Proxy) -> Iterator[None]:
        """Lose it in that way; a worker that was only stopped goes on afterwards."""
        devices = self._devices()
        if way == "kill":
            devices.kill()
        elif way == "stop":
            devices.suspend()
        elif way == "cut":
            proxy.cut()
        else:
            proxy.stall()
        try:
            yield
        finally:
            if way == "stop":
                devices.resume()

    def answers(self) -> None:
        """Wait until it serves somebody new."""
        self._devices()
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                handshake.ask(Endpoint(*self.address))
            except WorkerError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
