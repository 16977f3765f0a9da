"""The engine of the server: loaded, shared, exchanged, unloaded, started again."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_serving import World
from waiting import turn, until_so

from localspec.core.errors import (
    DeviceMemoryError,
    EngineError,
    LocalspecError,
    ModelNotFoundError,
    OutOfMemoryError,
)
from localspec.core.options import Options
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend import engine_times
from localspec.serve.http.body_budget import Caller

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_the_first_request_loads_the_model_and_others_wait_for_the_same_one(world):
    world.loading = asyncio.Event()
    asked = [asyncio.create_task(world.client.post(CHAT, json=HI)) for _ in range(3)]
    await until_so(lambda: world.slot.loading, pause=turn)
    health = await world.client.get("/health")
    assert (health.status_code, health.json()["error"]["code"]) == (503, "loading")
    world.loading.set()
    assert [(await task).status_code for task in asked] == [200, 200, 200]
    assert len(world.engines) == 1
    assert (await world.client.get("/health")).json() == {"status": "ok"}


async def test_an_engine_that_dies_gives_503_and_is_started_again(world):
    world.hold = asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI))
    await until_so(lambda: world.requests, pause=turn)
    world.engines[0].die()
    answer = await asked
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_stopped"
    assert "/home" not in answer.text
    world.hold.set()
    world.slot.pause.end()
    assert (await world.client.post(CHAT, json=HI)).status_code == 200
    assert len(world.engines) == 2
    assert world.slot.restarts == 1


async def test_what_is_started_for_a_request_in_the_instant_of_a_death_is_used(world):
    """The engine is dead already, and nobody has been told of it yet."""
    await world.slots.load()
    first = world.engines[0]
    first.alive = False
    world.loading = asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI))
    await until_so(lambda: len(world.engines) == 2, pause=turn)
    first.die()
    world.loading.set()
    assert (await asked).status_code == 200
    assert len(world.engines) == 2
    assert world.slot.restarts == 1


async def test_a_server_that_stops_does_not_wait_for_the_next_attempt_to_load(world, monkeypatch):
    monkeypatch.setattr(engine_times, "_LONGEST", 1000.0)
    await world.slots.load()
    world.slot.pause.failures = 10  # the longest pause
    world.engines[0].die()
    await until_so(lambda: world.slot.loading, pause=turn)
    await asyncio.sleep(0.01)  # the attempt waits until its pause is over
    async with asyncio.timeout(100):
        await world.slot.close()


@pytest.mark.parametrize("late", [False, True])
async def test_another_model_does_not_wait_for_one_that_is_to_be_started_again(
    two_models, monkeypatch, late
):
    """Nor does an engine stay that was started meanwhile."""
    monkeypatch.setattr(engine_times, "_LONGEST", 1000.0)
    world = two_models
    world.slot.pause.failures = 0 if late else 10
    if late:
        monkeypatch.setattr(engine_times.RestartPause, "left", 0.0)
        world.loading = asyncio.Event()
    world.engines[0].die()
    await until_so(lambda: world.slot.loading, pause=turn)
    await asyncio.sleep(0.01)
    asked = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    if late:
        await until_so(lambda: world.slot._changing, pause=turn)
        world.loading.set()
    async with asyncio.timeout(100):
        assert (await asked).status_code == 200
    assert [engine.alive for engine in world.engines].count(True) == 1
    await world.slot.close()
    assert not any(engine.alive for engine in world.engines)


async def test_another_model_is_loaded_once_where_its_request_comes_with_a_death(
    two_models, monkeypatch
):
    monkeypatch.setattr(engine_times, "_FIRST", 0.0)
    world = two_models
    world.engines[0].die()
    async with world.slots.use(Options(model="other")) as engine:
        assert engine.options.model == "other"
    assert [engine.options.model for engine in world.engines].count("other") == 1


async def test_a_stream_ends_with_an_error_when_the_engine_dies(world):
    world.hold = asyncio.Event()

    async def kill():
        await until_so(lambda: world.requests and world.service.metrics.emitted, pause=turn)
        world.engines[0].die()

    killing = asyncio.create_task(kill())
    answer = await world.client.post(CHAT, json=HI | {"stream": True})
    await killing
    assert answer.status_code == 200
    last = answer.text.rstrip().splitlines()[-1]
    assert '"engine_stopped"' in last
    assert "[DONE]" not in answer.text


async def test_requests_do_not_wait_long_for_an_engine_that_keeps_stopping(world, monkeypatch):
    monkeypatch.setattr(engine_times, "time", SimpleNamespace(monotonic=lambda: 0.0))
    await world.slots.load()
    world.slot.pause.failures = 10  # the longest pause, half a minute
    world.engines[0].die()
    for body in (HI, HI | {"stream": True}):
        answer = await world.client.post(CHAT, json=body)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_stopped"
        assert answer.headers["retry-after"] == "30"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_replies_that_the_end_of_the_server_cuts_are_errors_and_not_whole(world, path):
    world.hold = asyncio.Event()
    body = HI if path == CHAT else {"prompt": "Hi"}
    whole = asyncio.create_task(world.client.post(path, json=body))
    stream = asyncio.create_task(world.client.post(path, json=body | {"stream": True}))
    await until_so(lambda: world.service.metrics.emitted == 4)  # both have begun
    world.service.queue.cut()
    answer = await whole
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "server_stopping"
    said = (await stream).text
    assert "Hello" in said
    assert '"server_stopping"' in said.rstrip().splitlines()[-1]
    assert "[DONE]" not in said
    assert '"finish_reason":"' not in said


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("body", [HI | {"n": 4}, {"prompt": ["a", "b", "c", "d"]}])
async def test_no_choice_begins_once_the_server_stops(world, monkeypatch, at, body):
    await world.slots.load()
    begun, reply = [], world.engines[0].reply

    def cuts(request):
        begun.append(request)
        made = reply(request)
        if len(begun) == at:
            asyncio.get_running_loop().call_soon(world.service.queue.cut)
        return made

    monkeypatch.setattr(world.engines[0], "reply", cuts)
    path = CHAT if "n" in body else "/v1/completions"
    async with asyncio.timeout(60):
        answer = await world.client.post(path, json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "server_stopping"
    assert len(begun) == at


async def test_a_device_without_memory_is_used_with_less(world):
    await world.slots.load()
    world.engines[0].die(DeviceMemoryError("the GPU ran out of memory"))
    assert world.slot.options.smaller == 1


async def test_a_model_that_cannot_be_loaded_is_503_with_the_reason_in_the_log(world):
    world.load_error = ModelNotFoundError("no file /home/me/x.gguf")
    answer = await world.client.post(CHAT, json=HI)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "not_loaded"
    assert int(answer.headers["retry-after"]) >= 1
    assert "/home" not in answer.text
    assert any("/home/me/x.gguf" in notice for notice in world.notices)
    world.load_error = None
    world.slot.pause.end()
    assert (await world.client.post(CHAT, json=HI)).status_code == 200


async def test_a_model_without_memory_for_it_is_told_so_to_requests_and_probes_alike(world):
    world.load_error = OutOfMemoryError("no room")
    for answer in (await world.client.post(CHAT, json=HI), await world.client.get("/health")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")
        assert int(answer.headers["retry-after"]) >= 1
    page = Path(__file__).parent.parent.parent / "docs/server.md"
    assert "(`out_of_memory`)" in page.read_text("utf-8")


async def test_what_fails_when_the_server_starts_is_told_by_it_and_not_twice(world):
    world.load_error = EngineError("there is no place for the engine's log")
    with pytest.raises(EngineError, match="no place"):
        await world.slots.load(reports=False)
    assert world.notices == []


async def test_a_failed_load_is_not_repeated_for_every_request(world):
    world.load_error = LocalspecError("no")
    for _ in range(5):
        await world.client.post(CHAT, json=HI)
    assert len(world.engines) == 1


async def test_another_model_waits_for_the_replies_of_the_present_one(make_world, monkeypatch):
    world = await make_world()
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    world.hold = asyncio.Event()
    first = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "fake"}))
    await until_so(lambda: world.requests, pause=turn)
    second = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    third = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(world.engines) == 1
    world.hold.set()
    assert (await first).json()["model"] == "fake"
    assert (await second).json()["model"] == "other"
    assert (await third).json()["model"] == "other"
    assert len(world.engines) == 2
    assert not world.engines[0].alive
    listed = (await world.client.get("/v1/models")).json()["data"]
    assert [(m["id"], m["localspec"]["loaded"]) for m in listed] == [
        ("other", True),
        ("fake", False),
    ]


async def test_where_another_model_cannot_be_loaded_the_present_one_comes_back(
    make_world, monkeypatch
):
    world = await make_world()
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    await world.slots.load()
    world.load_error = LocalspecError("too big")
    assert (await world.client.post(CHAT, json=HI | {"model": "other"})).status_code >= 500
    world.load_error = None
    answer = await world.client.post(CHAT, json=HI)
    assert answer.json()["model"] == "fake"


async def test_it_comes_back_too_where_nobody_waits_for_the_other_any_more(make_world, monkeypatch):
    world = await make_world()
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    await world.slots.load()
    world.load_error, world.loading = LocalspecError("too big"), asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    await until_so(lambda: world.slot.loading, pause=turn)
    asked.cancel()
    world.loading.set()
    await until_so(lambda: not world.slot.loading, pause=turn)
    world.load_error = None
    assert (await world.client.post(CHAT, json=HI)).json()["model"] == "fake"


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("model", ["other", None])
async def test_who_comes_in_the_instant_in_which_a_model_cannot_be_loaded_gets_its_own(
    two_models, turns, model
):
    """A request for whichever model gets the one before; one for the other, which is tried again or
    fails, never gets that.
    """
    world, used = two_models, []
    world.load_error, world.loading = LocalspecError("too big"), asyncio.Event()

    async def use(name):
        async with world.slots.use(name and Options(model=name)) as engine:
            used.append(engine.options.model)

    first = asyncio.create_task(use("other"))
    await until_so(lambda: len(world.engines) == 2, pause=turn)
    world.loading.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    second = asyncio.create_task(use(model))
    await until_so(first.done, pause=turn)
    world.load_error = None
    refused = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(refused[0], LocalspecError)
    if isinstance(refused[1], LocalspecError):
        assert model == "other"
    else:
        assert used == [model or "fake"]


async def test_a_model_is_loaded_once_the_one_before_is_gone(two_models):
    """Also where that is being unloaded already."""
    world = two_models
    world.closing = asyncio.Event()
    await world.client.post("/api/generate", json={"model": "fake", "keep_alive": 0})
    await until_so(lambda: world.engines[0].closed, pause=turn)
    asked = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    await until_so(lambda: world.slot.exchanging, pause=turn)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(world.engines) == 1
    world.closing.set()
    assert (await asked).json()["model"] == "other"


@pytest.mark.parametrize("name", ["/etc/passwd", "other.gguf", "../x.gguf", "user/repo:Q4"])
async def test_a_request_cannot_name_files_or_repositories(world, name):
    answer = await world.client.post(CHAT, json=HI | {"model": name})
    assert answer.status_code == 404
    assert not world.engines


async def test_an_unused_model_is_unloaded_and_comes_back_on_request(make_world):
    world = await make_world(keep_loaded=0.0)
    await world.client.post(CHAT, json=HI)
    await until_so(lambda: not world.engines[0].alive, pause=turn)
    assert world.slot.info is None
    assert (await world.client.get("/health")).json() == {"status": "ok", "loaded": False}
    assert (await world.client.post(CHAT, json=HI)).status_code == 200
    assert len(world.engines) == 2


async def test_nor_does_one_stay_that_is_started_again_for_nobody(make_world, monkeypatch):
    """Its request leaves before there is an engine again."""
    monkeypatch.setattr(engine_times, "_FIRST", 0.0)
    world = await make_world(keep_loaded=0.0)
    async with world.slots.use():
        world.engines[0].die()
    await until_so(lambda: world.slot.restarts and not world.slot.users, pause=turn)
    async with asyncio.timeout(5):
        await until_so(lambda: len(world.engines) == 2 and not world.slot.loading, pause=turn)
        await until_so(lambda: world.slot.info is None and not world.engines[1].alive, pause=turn)


async def test_a_full_queue_is_429_with_the_time_to_wait(make_world):
    from localspec.serve.http.settings import Limits

    world = await make_world(limits=Limits(waiting=1))
    await world.slots.load()
    world.hold = asyncio.Event()
    asked = [asyncio.create_task(world.client.post(CHAT, json=HI)) for _ in range(3)]
    await until_so(lambda: world.service.queue.size == 3, pause=turn)
    refused = await world.client.post(CHAT, json=HI)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) >= 1
    world.hold.set()
    assert [(await task).status_code for task in asked] == [200, 200, 200]
    assert world.service.queue.size == 0


async def test_one_client_that_fills_the_queue_leaves_a_place_to_others(make_world):
    from localspec.serve.http.settings import ApiKeys, Limits

    first, other = ({"Authorization": f"Bearer {name * 20}"} for name in "ab")
    keys = ApiKeys(("a" * 20, "b" * 20))
    world = await make_world(limits=Limits(waiting=1), keys=keys)
    await world.slots.load()
    world.hold = asyncio.Event()

    def ask(who):
        return asyncio.create_task(world.client.post(CHAT, json=HI, headers=who))

    asked = [ask(first) for _ in range(3)]
    await until_so(lambda: world.service.queue.size == 3, pause=turn)
    assert (await ask(first)).status_code == 429
    asked.append(ask(other))
    await until_so(lambda: world.service.queue.size == 4, pause=turn)
    assert (await ask(other)).status_code == 429
    world.hold.set()
    assert [(await task).status_code for task in asked] == [200] * 4


async def test_the_prompts_of_a_batch_count_for_the_queue(make_world):
    from localspec.serve.http.settings import Limits

    world = await make_world(limits=Limits(waiting=2))
    await world.slots.load()
    world.hold = asyncio.Event()
    asked = [asyncio.create_task(world.client.post(CHAT, json=HI)) for _ in range(2)]
    await until_so(lambda: world.service.queue.size == 2, pause=turn)
    batch = {"prompt": ["a", "b", "c"]}
    assert (await world.client.post("/v1/completions", json=batch)).status_code == 429
    world.hold.set()
    assert [(await task).status_code for task in asked] == [200] * 2
    assert (await world.client.post("/v1/completions", json=batch)).status_code == 200


@pytest.mark.parametrize(("work", "places"), [("examine", 2), ("tokenize", 4)])
async def test_few_are_examined_or_split_at_a_time_whoever_leaves(make_world, work, places):
    world = await make_world()
    await world.slots.load()
    running, left, gate, done = [], [], asyncio.Event(), []

    async def answered(request, *_, **__):
        running.append(request.prompt)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            left.append(request.prompt)
            await gate.wait()  # the engine ends it at the end of its pass
            raise
        finally:
            done.append(request.prompt)

    setattr(world.engines[0], work, answered)

    def ask(name):
        request = ReplyRequest(prompt=name, seed=1)
        if work == "examine":
            return asyncio.create_task(world.service.examine(Caller(), None, request, (1,), None))
        return asyncio.create_task(world.service.tokenize(Caller(), None, request))

    asked = [ask(str(i)) for i in range(7)]
    await until_so(lambda: len(running) == places, pause=turn)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    last = ask("last")
    await asyncio.sleep(0.05)
    begun = [str(i) for i in range(places)]
    assert running == left == begun  # the engine is told, and their places are not free yet
    gate.set()
    await last
    assert done == [*begun, "last"]


async def test_a_prompt_that_is_repeated_is_split_in_such_a_place(make_world):
    world = await make_world()
    async with contextlib.AsyncExitStack() as places:
        for _ in range(4):
            await places.enter_async_context(world.service.splitting.of(""))
        body = {"prompt": "Hi", "echo": True}
        asked = asyncio.create_task(world.client.post("/v1/completions", json=body))
        await until_so(lambda: world.requests, pause=turn)
        await asyncio.sleep(0.05)
        assert not asked.done()
    assert (await asked).status_code == 200


async def test_closing_while_the_model_is_loaded_ends_the_loading():
    world = World()
    world.loading = asyncio.Event()
    loading = asyncio.create_task(world.slots.load())
    await until_so(lambda: world.slot.loading, pause=turn)
    closing = asyncio.create_task(world.slot.close())
    await asyncio.sleep(0)
    world.loading.set()
    await closing
    await asyncio.wait({loading})
    assert not world.engines[0].alive


@pytest.fixture
async def two_models(make_world, monkeypatch):
    """A server that has "fake" loaded and may load "other"."""
    world = await make_world()
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    await world.slots.load()
    return world


async def test_requests_for_two_models_in_turns_cost_one_exchange_each_way(two_models):
    world = two_models
    world.hold = asyncio.Event()
    names = ["fake", *["other", "fake"] * 8]
    asked = []
    for name in names:
        asked.append(asyncio.create_task(world.client.post(CHAT, json=HI | {"model": name})))
        await until_so(lambda: world.service.queue.size == len(asked), pause=turn)
    world.hold.set()
    assert [(await task).json()["model"] for task in asked] == names
    assert [engine.options.model for engine in world.engines] == ["fake", "other", "fake"]
    assert [line for line in world.notices if line.startswith("loading")] == [
        "loading other in place of fake: 8 requests wait for it",
        "loading fake in place of other: 8 requests wait for it",
    ]


async def test_a_model_that_is_waited_for_gets_its_turn_however_many_ask_for_the_present_one(
    two_models,
):
    world = two_models
    ended = []

    async def ask(name):
        await world.client.post(CHAT, json=HI | {"model": name})
        ended.append(name)

    async def keep_asking():
        while "other" not in ended:
            await ask("fake")

    busy = [asyncio.create_task(keep_asking()) for _ in range(3)]
    await until_so(lambda: ended, pause=turn)
    await ask("other")
    before = len(ended)
    await asyncio.gather(*busy)
    assert ended[before - 1] == "other"


async def test_all_that_wait_for_a_model_that_cannot_be_loaded_are_refused(two_models):
    world = two_models
    world.load_error, world.loading = LocalspecError("too big"), asyncio.Event()
    asked = []
    for name in ("other", "fake", "other"):
        asked.append(asyncio.create_task(world.client.post(CHAT, json=HI | {"model": name})))
        await until_so(lambda: world.service.queue.size == len(asked), pause=turn)
    world.loading.set()
    await until_so(lambda: not world.slot.loading, pause=turn)
    world.load_error = None
    assert [(await task).status_code for task in asked] == [503, 200, 503]


async def test_requests_that_wait_for_a_model_hear_that_the_server_stops(two_models):
    world = two_models
    world.loading = asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"}))
    await until_so(lambda: world.slot.loading, pause=turn)
    world.service.queue.cut()
    answer = await asked
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")
    world.loading.set()


async def test_a_star_is_no_endless_name(make_world):
    world = await make_world(aliases=("*",))
    for name, status in (("a" * 512, 200), ("a" * 513, 404)):
        answer = await world.client.post("/api/chat", json=HI | {"model": name})
        assert answer.status_code == status


async def test_an_alias_is_the_first_model_and_a_star_whichever_is_loaded(make_world, monkeypatch):
    world = await make_world(aliases=("gpt", "*"))
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    answered = [
        (await world.client.post(CHAT, json=HI | {"model": name})).json()["model"]
        for name in ("gpt", "other", "anything", "gpt")
    ]
    assert answered == ["fake", "other", "other", "fake"]


async def test_a_reply_that_the_end_of_the_engine_cuts_is_not_promised_another_engine(world):
    world.hold = asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI | {"stream": True}))
    await until_so(lambda: world.service.metrics.emitted, pause=turn)
    await world.slots.close()
    last = (await asked).text.rstrip().splitlines()[-1]
    assert '"server_stopping"' in last


async def test_an_engine_that_ends_while_it_loads_is_one_line_for_all_who_wait(two_models):
    world = two_models
    world.load_error, world.loading = EngineError("the engine stopped (signal 9)"), asyncio.Event()
    asked = []
    for _ in range(3):
        asked.append(asyncio.create_task(world.client.post(CHAT, json=HI | {"model": "other"})))
        await until_so(lambda: world.service.queue.size == len(asked), pause=turn)
    world.loading.set()
    assert [(await task).status_code for task in asked] == [503, 503, 503]
    assert world.notices[1:] == ["the engine cannot be started: the engine stopped (signal 9)"]
