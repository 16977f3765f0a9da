"""Work in threads: its result arrives, and the end of the program waits for none of it."""

import asyncio
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import until_so

import tui
from localspec import tools
from localspec.core.in_thread import in_thread

ENDS = """
import asyncio, time
from localspec.core.in_thread import in_thread

async def main():
    asyncio.create_task(in_thread(lambda _: time.sleep(3600)))
    await asyncio.sleep(0)

asyncio.run(main())
"""


async def test_what_the_work_returns_or_raises_arrives():
    assert await in_thread(lambda gone: (gone(), threading.current_thread().name)) == (
        False,
        "in_thread",
    )
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda _: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(lambda _: next(iter(())))


async def test_the_work_is_told_that_nobody_waits_any_more():
    told, go = [], threading.Event()

    def work(gone):
        go.wait(60)
        told.append(gone())

    task = asyncio.create_task(in_thread(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await until_so(lambda: told == [True])


async def test_threads_that_nobody_waits_for_are_not_more_and_more():
    go = threading.Event()
    for _ in range(40):
        task = asyncio.create_task(in_thread(lambda _: go.wait(60)))
        await asyncio.sleep(0)
        task.cancel()
    assert sum(thread.name == "in_thread" for thread in threading.enumerate()) <= 16
    go.set()
    assert await in_thread(lambda _: "next") == "next"


def test_the_end_waits_only_for_what_is_saved_and_for_what_ends_soon():
    """It waits for each thread of `asyncio.to_thread`: none may read what the user names."""
    waited_for = "importlib.import_module", "desktop.copy", "servers_file.take_over"
    saving = "write", "edit.save", "defects.report", "self._allow_always"
    folders = (Path(module.__file__).parent for module in (tui, tools))
    files = (file for folder in folders for file in folder.rglob("*.py"))
    code = "".join(file.read_text("utf-8") for file in files)
    calls = set(re.findall(r"to_thread\(\s*([\w.]+)", code))
    assert calls == {*waited_for, *saving, "self.session.chat.recorder.close"}


READS = """
import asyncio, sys, threading, time
from pathlib import Path
from localspec.media import documents
from localspec.tools.folder import Folder
from localspec.tools.toolbox import Toolbox

begun = threading.Event()
documents.text_of = lambda path: (begun.set(), time.sleep(3600))

async def main():
    folder = Folder(Path(sys.argv[1]))
    read = next(tool for tool in folder.tools if tool.tool == "read_file")
    task = asyncio.create_task(Toolbox(folder=folder).call(read, {"path": "a.md"}))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [ENDS, READS], ids=["any work", "a file that a model reads"])
def test_a_program_ends_while_such_work_goes_on(program, tmp_path):
    (tmp_path / "a.md").write_text("one")
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=True)
