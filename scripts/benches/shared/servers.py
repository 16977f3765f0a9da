"""Servers and workers of this checkout, started for a measurement and ended with it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_START_S = 120.0


@contextlib.contextmanager
def running(*arguments: str, address: str) -> Iterator[str]:
    """`localspec ARGUMENTS` in a process of its own until the block ends; what the group of the
    regular expression ``address`` has found in its output.

    Raises:
        SystemExit: it does not start; with what it said.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "localspec", *arguments],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _found(process, log.fileno(), address)
        finally:
            process.terminate()
            process.wait()


def _found(process: subprocess.Popen[bytes], log: int, address: str) -> str:
    end = time.monotonic() + _START_S
    while True:
        said = os.pread(log, 1 << 16, 0).decode(errors="replace")
        if found := re.search(address, said):
            return found[1]
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"localspec {process.args[4]} does not start: {said[-500:]}")  # type: ignore[index]
        time.sleep(0.1)
