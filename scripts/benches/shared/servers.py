"""Servers and workers that are started for a measurement and ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = r"(http://127\.0\.0\.1:\d+)"
"""What `localspec serve` says of its address."""
_START_S, _END_S = 300.0, 20.0


@contextlib.contextmanager
def running(*arguments: str, address: str = ADDRESS) -> Iterator[str]:
    """`localspec ARGUMENTS` in a process of its own until the block ends; what the group of the
    regular expression ``address`` has found in its output.

    Raises:
        SystemExit: it does not start; with what it said.
    """

    def found(said: str) -> str:
        match = re.search(address, said)
        return match[1] if match else ""

    with started(own_command(*arguments), found, own_environment()) as (_, where):
        yield where


def own_command(*arguments: str) -> list[str]:
    """`localspec` of this checkout."""
    return [sys.executable, "-P", "-m", "localspec", *arguments]


def own_environment() -> dict[str, str]:
    """In which it is found."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


@contextlib.contextmanager
def started(
    command: Sequence[str],
    ready: Callable[[str], str],
    environment: Mapping[str, str],
    log: Path | None = None,
    seconds: float = _START_S,
) -> Iterator[tuple[int, str]]:
    """A process's id and what ``ready`` made of its output, from when that is not empty on. The
    output goes to the file ``log``, if there is one.

    Raises:
        SystemExit: it ends before, or takes too long; with what it said.
    """
    with log.open("wb+") if log else tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            end = time.monotonic() + seconds
            while True:
                said = os.pread(output.fileno(), 1 << 16, 0).decode(errors="replace")
                if where := ready(said):
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{' '.join(command)} does not start: {said[-500:]}")
                time.sleep(0.1)
            yield process.pid, where
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(url: str, path: str = "/health") -> str:
    """The address, once the server there answers."""
    with contextlib.suppress(httpx2.TransportError):
        if httpx2.get(f"{url}{path}", timeout=5).status_code == httpx2.codes.OK:
            return url
    return ""


def chunks(http: httpx2.Client, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Stream a chat's reply: each chunk, and the moment when it came.

    Raises:
        SystemExit: the server does not answer as it should; with what it said.
    """
    with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
        if answer.status_code != httpx2.codes.OK:
            raise SystemExit(f"status {answer.status_code}: {answer.read()[:300]!r}")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield time.perf_counter(), json.loads(line.removeprefix("data: "))


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
