"""Work for a client: it is done in the task of its request, which the client's leaving cancels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from localspec.serve.http.bodies import GoneError, while_connected
from localspec.serve.http.settings import Limits
from localspec.serve.http.streamed import StreamedAnswer


class Client:
    """A request whose client leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def for_ever(ended: list[str], began: asyncio.Event | None = None) -> None:
    try:
        if began is not None:
            began.set()
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_work_for_a_client_that_stays_ends_with_its_result() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await while_connected(Client(), work()) == 7  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_leaves_ends_the_work_and_cancels_nothing_else() -> None:
    client, ended = Client(), list[str]()
    asyncio.get_running_loop().call_soon(client.leaves.set)
    with pytest.raises(GoneError):
        await while_connected(client, for_ever(ended))  # type: ignore[arg-type]
    task = asyncio.current_task()
    assert task is not None
    assert (ended, task.cancelling()) == (["ended"], 0)
    await asyncio.sleep(0)


async def test_a_result_that_is_there_when_the_client_leaves_is_not_lost() -> None:
    client = Client()

    async def work() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7
        return 0

    asyncio.get_running_loop().call_soon(client.leaves.set)
    assert await while_connected(client, work()) == 7  # type: ignore[arg-type]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_task_that_is_cancelled_from_outside_is_cancelled() -> None:
    ended, began = list[str](), asyncio.Event()
    task = asyncio.create_task(while_connected(Client(), for_ever(ended, began)))  # type: ignore[arg-type]
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_a_stream_is_closed_when_its_client_leaves() -> None:
    client, ended = Client(), list[str]()

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            client.leaves.set()
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    answer = StreamedAnswer(parts(), Limits())
    await answer({"type": "http"}, client.receive, client.send)  # type: ignore[arg-type]
    assert ended == ["closed"]
    assert [one.get("body") for one in client.sent] == [None, b"one"]
