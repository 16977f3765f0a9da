"""Children end with their parents, also where the system does not see to that itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
time.sleep(600)
"""
_CHILD = """
import time
from localspec.core.processes import children
children.{function}()
print("ready", flush=True)
time.sleep(600)
"""


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("function", ["end_with_parent", "watch_parent"])
def test_a_child_ends_when_its_parent_was_killed(function: str) -> None:
    child = _CHILD.format(function=function)
    line = [sys.executable, "-c", _PARENT, child]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        (pid,) = (int(word) for word in said - {"ready"})
        assert "ready" in said
        assert _alive(pid)
        parent.send_signal(signal.SIGKILL)
    try:
        deadline = time.monotonic() + 60
        while _alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _alive(pid)
    finally:
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)
