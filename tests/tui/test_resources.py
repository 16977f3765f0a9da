"""Work in threads: its result arrives, and the end of the interface waits for none of it."""

import asyncio
import subprocess
import sys
import threading

import pytest
from waiting import until_so

from tui.terminal.resources import in_thread

ENDS = """
import asyncio, time
from tui.terminal.resources import in_thread

async def main():
    asyncio.create_task(in_thread(lambda _: time.sleep(3600)))
    await asyncio.sleep(0)

asyncio.run(main())
"""


async def test_what_the_work_returns_or_raises_arrives():
    assert await in_thread(lambda gone: (gone(), threading.current_thread().name)) == (
        False,
        "interface",
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
    assert sum(thread.name == "interface" for thread in threading.enumerate()) <= 16
    go.set()
    assert await in_thread(lambda _: "next") == "next"


def test_a_program_ends_while_such_work_goes_on():
    subprocess.run([sys.executable, "-c", ENDS], timeout=60, check=True)
