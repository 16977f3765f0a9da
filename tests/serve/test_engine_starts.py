"""What happens to an engine while it is started: its adapters, deaths, other requests."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_serving import FakeEngine
from waiting import turn, until_so

from localspec.core.errors import DefectError, DeviceMemoryError, EngineError
from localspec.core.options import Options
from localspec.serve.backend import engine_times
from localspec.serve.backend.engine_times import KeepAlive

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
FILE = Path("/a/x.gguf")


async def unloaded(world):
    """A server whose model was unloaded after a request had loaded an adapter for it."""
    await world.slots.load()
    world.slots.adapters.add(world.slots.first, "x", FILE)
    world.slots.keep(None, KeepAlive(0.0))
    await until_so(lambda: world.slot.empty and not world.slot._changing, pause=turn)
    return world


def held_adapters(monkeypatch):
    """Engines that load an adapter, until their event is set or they are closed."""
    at = []

    async def adapter(engine, name, path):
        at.append(engine)
        await engine.adapter_held.wait()
        if isinstance(engine.adapter_ends, Exception):
            raise engine.adapter_ends
        engine.adapters[name] = path

    opened, close = FakeEngine.open, FakeEngine.close

    async def opens(engine):
        engine.adapter_held, engine.adapter_ends = asyncio.Event(), None
        return await opened(engine)

    async def closes(engine):
        if not engine.adapter_held.is_set():
            engine.adapter_ends = EngineError("the engine was closed")
            engine.adapter_held.set()
        await close(engine)

    monkeypatch.setattr(FakeEngine, "open", opens)
    monkeypatch.setattr(FakeEngine, "close", closes)
    monkeypatch.setattr(FakeEngine, "adapter", adapter)
    return at


async def adapters(world):
    async with world.slots.use() as engine:
        return {*engine.adapters.values()}


async def used(world, name):
    async with world.slots.use(Options(model=name)) as engine:
        return engine.options.model


async def test_nobody_gets_an_engine_that_has_not_loaded_its_adapters_yet(world, monkeypatch):
    await unloaded(world)
    at = held_adapters(monkeypatch)
    first = asyncio.create_task(adapters(world))
    await until_so(lambda: at, pause=turn)
    second = asyncio.create_task(adapters(world))
    for _ in range(20):
        await turn(0)
    assert not second.done()
    assert (await world.client.get("/readyz")).status_code == 503
    at[0].adapter_held.set()
    assert await asyncio.gather(first, second) == [{FILE}, {FILE}]
    assert len(world.engines) == 2


async def test_a_model_that_starts_again_for_nobody_does_not_keep_another_one_waiting(
    world, monkeypatch
):
    """It is not loaded completely, only to be exchanged."""
    monkeypatch.setattr(engine_times, "_FIRST", 0.0)  # no pause before the start
    await world.slots.load()
    async with world.slots.use():
        other = asyncio.create_task(used(world, "other"))
        await turn(0)
        world.loading = asyncio.Event()
        world.engines[0].die()
    await until_so(lambda: world.engines[-1].options.model == "other")
    assert all(not engine.alive for engine in world.engines)
    world.loading.set()
    assert await other == "other"


async def test_a_defect_at_an_adapter_is_told_and_the_model_answers_without_it(world):
    await unloaded(world)
    world.adapter_error = DefectError("internal error, OSError")
    assert (await world.client.post(CHAT, json=HI)).status_code == 200
    assert [engine.alive for engine in world.engines] == [False, True]
    told = "the adapter x.gguf is not loaded again: internal error, OSError"
    assert told in world.notices


async def test_an_engine_whose_start_fails_late_is_ended(world):
    await unloaded(world)
    world.adapter_error = EngineError("no answer")
    assert (await world.client.post(CHAT, json=HI)).status_code == 503
    assert not any(engine.alive for engine in world.engines)


async def test_an_engine_that_is_unloaded_while_it_loads_adapters_has_not_failed(
    world, monkeypatch
):
    await unloaded(world)
    at = held_adapters(monkeypatch)
    asked = asyncio.create_task(adapters(world))
    await until_so(lambda: at, pause=turn)
    asked.cancel()
    await turn(0)
    world.slots.keep(None, KeepAlive(0.0))
    await until_so(lambda: world.slot.empty and not world.slot._changing, pause=turn)
    assert (world.slots.error, world.slot.pause.failures) == (None, 0)
    assert world.notices == []
    asked = asyncio.create_task(adapters(world))
    await until_so(lambda: len(at) == 2, pause=turn)
    at[1].adapter_held.set()
    assert await asked == {FILE}


@pytest.mark.parametrize("kind", [EngineError, DeviceMemoryError])
async def test_an_engine_that_dies_while_it_loads_adapters_is_a_start_that_failed(
    world, monkeypatch, kind
):
    await unloaded(world)
    at = held_adapters(monkeypatch)
    asked = asyncio.create_task(world.client.post(CHAT, json=HI))
    await until_so(lambda: at, pause=turn)
    at[0].adapter_ends = error = kind("the engine stopped (signal 6)")
    at[0].adapter_held.set()
    at[0].die(error)
    assert (await asked).json()["error"]["code"] == "engine_stopped"
    assert world.notices == [f"the engine cannot be started: {error}"]
    assert (world.slots.restarts, world.slot.pause.failures) == (0, 1)
    assert world.slot.options.smaller == (kind is DeviceMemoryError)  # the next start takes less


async def test_nobody_is_told_of_another_start_where_the_first_one_ends_the_server(world):
    """Whoever asked first: who came before the server began to load, or after."""
    world.loading = asyncio.Event()
    world.load_error = EngineError("the engine stopped while loading (signal 9)")
    early = asyncio.create_task(world.client.post(CHAT, json=HI))
    await until_so(lambda: world.slot.loading, pause=turn)
    first = asyncio.create_task(world.slots.load(reports=False))
    late = asyncio.create_task(world.client.post(CHAT, json=HI))
    await until_so(lambda: world.service.queue.size == 2 and world.slot.users == 3, pause=turn)
    world.loading.set()
    with pytest.raises(EngineError, match="signal 9"):
        await first
    for answer in (await early, await late):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "not_loaded")
        assert "again" not in error["message"]


async def test_who_asks_for_an_engine_that_keeps_stopping_is_told_how_long_to_wait(
    world, monkeypatch
):
    """Also where it stops while it loads."""
    monkeypatch.setattr(engine_times, "time", SimpleNamespace(monotonic=lambda: 0.0))
    world.load_error = EngineError("the engine stopped while loading (signal 6)")
    world.slot.pause.failures = 10  # the longest pause, half a minute
    await world.client.post(CHAT, json=HI)
    for _ in range(2):
        answer = await world.client.post(CHAT, json=HI)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert answer.json()["error"]["code"] == "engine_stopped"
    assert len(world.engines) == 1
    assert len(world.notices) == 1
