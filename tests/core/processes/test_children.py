"""Children end with their parents, also where the system does not see to that itself."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.core.processes import children

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


async def test_nothing_is_left_running_where_nobody_waits_for_its_end() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", stdout=asyncio.subprocess.PIPE)
    ending = asyncio.create_task(children.ended(process, 60.0))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    assert ending.cancelled()
    assert await process.wait() == -signal.SIGKILL


async def test_a_process_that_does_not_end_by_itself_is_killed_in_time() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    await children.ended(process, 0.1)
    assert process.returncode == -signal.SIGKILL
    await children.ended(process, 0.0)


async def test_a_process_ends_whose_words_nobody_reads() -> None:
    process = await asyncio.create_subprocess_exec("yes", stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(30):
        await children.ended(process, 0.5)
        assert await process.wait() == -signal.SIGKILL
