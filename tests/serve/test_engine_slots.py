"""Several models stand side by side where there is room, and take each other's place where not."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest
from fake_serving import FakeEngine
from waiting import turn, until_so

from localspec.core.errors import EngineError, LocalspecError, OutOfMemoryError
from localspec.core.options import Options
from localspec.serve.backend import engine_slot, engine_times
from localspec.serve.http.settings import Limits

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def make_models(make_world, monkeypatch):
    async def make(most, **settings):
        world = await make_world(models=most, **settings)
        others = [(name, "") for name in ("other", "third", "fourth", "fifth")]
        monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: others)
        await world.slots.load()
        return world

    return make


async def ask(world, name):
    answer = await world.client.post(CHAT, json=HI | {"model": name})
    return answer.json().get("model", answer.status_code)


async def held(world, *names):
    """An event that ends replies which have begun, and the requests for them."""
    end = world.hold = asyncio.Event()
    begun = world.service.metrics.emitted + 2 * len(names)
    asked = [asyncio.create_task(ask(world, name)) for name in names]
    await until_so(lambda: world.service.metrics.emitted == begun, pause=turn)
    await turn(0)
    world.hold = None
    return end, asked


def alive(world):
    return [engine.options.model for engine in world.engines if engine.alive]


async def test_a_second_model_is_loaded_beside_the_first_and_both_answer(make_models):
    world = await make_models(2)
    for name in ("other", "fake", "other", "fake"):
        assert await ask(world, name) == name
    assert alive(world) == ["fake", "other"]
    assert len(world.engines) == 2
    assert "loading other beside fake" in world.notices
    listed = (await world.client.get("/v1/models")).json()["data"]
    loaded = {entry["id"]: entry["localspec"]["loaded"] for entry in listed}
    assert [name for name in loaded if loaded[name]] == ["fake", "other"]
    running = (await world.client.get("/api/ps")).json()["models"]
    assert [one["name"] for one in running] == ["fake:latest", "other:latest"]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), LocalspecError("no")])
async def test_who_waits_is_answered_where_the_room_cannot_be_measured(make_models, error):
    """It waited for ever."""
    world = await make_models(2)

    async def fits(_options):
        raise error

    world.slots._fits = fits
    assert await asyncio.wait_for(ask(world, "other"), 10) == "other"
    assert alive(world) == ["other"]
    told = world.defects if isinstance(error, RuntimeError) else world.notices
    assert any(str(error) in str(one) for one in told)


async def test_both_answer_at_the_same_time(make_models):
    world = await make_models(2)
    await ask(world, "other")
    world.hold = asyncio.Event()
    asked = [asyncio.create_task(ask(world, name)) for name in ("fake", "other")]
    await until_so(lambda: [engine.running for engine in world.engines] == [1, 1], pause=turn)
    world.hold.set()
    assert await asyncio.gather(*asked) == ["fake", "other"]


async def test_a_third_takes_the_place_of_the_one_that_was_asked_for_longest_ago(make_models):
    world = await make_models(2)
    for name in ("other", "fake", "third"):
        assert await ask(world, name) == name
    assert alive(world) == ["fake", "third"]
    assert await ask(world, "other") == "other"
    assert alive(world) == ["third", "other"]


async def test_where_there_is_no_room_models_take_each_others_place(make_models):
    world = await make_models(3)
    world.fits = False
    for name in ("other", "fake"):
        assert await ask(world, name) == name
        assert alive(world) == [name]


async def test_a_model_that_did_not_fit_beside_takes_the_place_of_one(make_models, monkeypatch):
    world, opened = await make_models(2), FakeEngine.open

    async def tight(engine):
        if any(other.alive for other in world.engines if other is not engine):
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    assert await ask(world, "other") == "other"
    assert alive(world) == ["other"]


@pytest.mark.parametrize("most", [2, 3])
async def test_all_that_wait_for_a_model_that_did_not_fit_are_answered(
    make_models, monkeypatch, most
):
    world, opened = await make_models(most), FakeEngine.open
    if most > 2:
        assert await ask(world, "third") == "third"

    async def tight(engine):
        await asyncio.sleep(0.01)
        if sum(other.alive for other in world.engines) > most - 2:
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    asked = [asyncio.create_task(ask(world, "other")) for _ in range(4)]
    assert await asyncio.gather(*asked) == ["other"] * 4
    assert alive(world) == ["third", "other"][3 - most :]  # one model went, and it was loaded once


async def test_a_model_that_cannot_be_loaded_leaves_the_others_as_they_were(make_models):
    world = await make_models(2)
    world.load_error = LocalspecError("damaged")
    for _ in range(2):
        assert await ask(world, "other") == 503
    world.load_error = None
    assert await ask(world, "fake") == "fake"
    assert alive(world) == ["fake"]
    assert await ask(world, "third") == "third"
    assert alive(world) == ["fake", "third"]


def breaks(world, monkeypatch, name):
    """An event after which the loading of that model fails."""
    end, opened = asyncio.Event(), FakeEngine.open

    async def broken(engine):
        if engine.options.model == name:
            await end.wait()
            raise LocalspecError("damaged")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", broken)
    return end


async def test_the_place_of_a_model_that_cannot_be_loaded_is_given_to_who_waits(
    make_models, monkeypatch
):
    world = await make_models(2)
    failed = breaks(world, monkeypatch, "other")
    end, asked = await held(world, "fake")
    second = asyncio.create_task(ask(world, "other"))
    await until_so(lambda: world.engines[-1].options.model == "other", pause=turn)
    third = asyncio.create_task(ask(world, "third"))
    await turn(0.01)
    failed.set()
    assert await second == 503
    assert await third == "third"
    assert alive(world) == ["fake", "third"]
    end.set()
    assert await asked[0] == "fake"


async def test_a_model_that_fails_when_its_client_has_left_leaves_no_trace(
    make_models, monkeypatch
):
    world = await make_models(2)
    failed = breaks(world, monkeypatch, "other")
    second = asyncio.create_task(ask(world, "other"))
    await until_so(lambda: world.engines[-1].options.model == "other", pause=turn)
    second.cancel()
    await turn(0)
    failed.set()
    await until_so(lambda: world.slots.present.options.model == "fake", pause=turn)
    assert (await world.client.get("/health")).status_code == 200
    assert (await world.client.post(CHAT, json=HI)).json()["model"] == "fake"


async def test_restarts_of_a_model_that_is_gone_still_count(make_models, monkeypatch):
    world = await make_models(2)
    assert await ask(world, "other") == "other"
    world.load_error = LocalspecError("damaged")
    world.engines[-1].die()
    await until_so(lambda: not world.slots.present.loading, pause=turn)
    assert world.slots.restarts == 1
    assert await ask(world, "other") == 503
    assert world.slots.restarts == 1
    assert [one.model for one in world.slots.every] == ["fake"]


async def test_requests_at_once_for_a_new_model_load_it_once(make_models):
    world = await make_models(3)
    asked = [asyncio.create_task(ask(world, "other")) for _ in range(5)]
    assert await asyncio.gather(*asked) == ["other"] * 5
    assert len(world.engines) == 2


async def test_requests_at_once_for_a_new_model_push_out_one_other(make_models):
    world = await make_models(2)
    for name in ("other", "fake"):
        assert await ask(world, name) == name
    asked = [asyncio.create_task(ask(world, "third")) for _ in range(5)]
    assert await asyncio.gather(*asked) == ["third"] * 5
    assert alive(world) == ["fake", "third"]
    assert len(world.engines) == 3


async def test_those_that_come_while_a_model_waits_for_its_place_wait_for_the_same(make_models):
    world = await make_models(2)
    assert await ask(world, "other") == "other"
    end, long = await held(world, "other", "fake")
    asked = []
    for _ in range(3):
        asked.append(asyncio.create_task(ask(world, "third")))
        await until_so(lambda: world.service.queue.size == 2 + len(asked), pause=turn)
    end.set()
    assert await asyncio.gather(*long, *asked) == ["other", "fake", *["third"] * 3]
    assert len(world.engines) == 3


async def test_an_empty_slot_is_given_to_one_model_only(make_models):
    """The other one takes the place of a model that nobody uses."""
    world = await make_models(2)
    assert await ask(world, "other") == "other"
    await world.client.post("/api/generate", json={"model": "other", "keep_alive": 0})
    await until_so(lambda: alive(world) == ["fake"], pause=turn)
    asked = [asyncio.create_task(ask(world, name)) for name in ("third", "fourth")]
    assert await asyncio.gather(*asked) == ["third", "fourth"]
    assert alive(world) == ["third", "fourth"]
    assert len(world.engines) == 4


async def test_two_models_at_once_take_the_places_of_two(make_models):
    world = await make_models(2)
    asked = [asyncio.create_task(ask(world, name)) for name in ("other", "third")]
    assert await asyncio.gather(*asked) == ["other", "third"]
    assert alive(world) == ["other", "third"]
    assert len(world.engines) == 3


async def test_a_model_that_answers_stays_where_another_one_is_idle(make_models):
    world = await make_models(2)
    assert await ask(world, "other") == "other"
    end, (long,) = await held(world, "fake")
    assert await ask(world, "other") == "other"  # "fake" was asked for longer ago
    assert await ask(world, "third") == "third"
    assert alive(world) == ["fake", "third"]
    end.set()
    assert await long == "fake"


async def test_the_answer_names_the_model_that_gave_it(make_models):
    """Also where the request named none, and another model was asked for meanwhile."""
    world = await make_models(2)
    world.engines[0].die()
    world.slot.pause.end()
    world.loading = asyncio.Event()
    asked = [asyncio.create_task(ask(world, name)) for name in (None, "other")]
    await until_so(lambda: len(world.engines) == 3, pause=turn)
    world.loading.set()
    assert await asyncio.gather(*asked) == ["fake", "other"]


async def test_a_model_too_large_for_one_place_takes_another_one_too(make_models, monkeypatch):
    world, opened = await make_models(2), FakeEngine.open
    assert await ask(world, "other") == "other"

    async def tight(engine):
        if engine.options.model == "third" and any(one.alive for one in world.engines):
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    assert await ask(world, "third") == "third"
    assert alive(world) == ["third"]


async def test_keep_alive_unloads_the_model_that_it_names(make_models):
    world = await make_models(2)
    await ask(world, "other")
    await ask(world, "fake")
    answer = await world.client.post("/api/generate", json={"model": "other", "keep_alive": 0})
    assert answer.json()["done_reason"] == "unload"
    await until_so(lambda: alive(world) == ["fake"], pause=turn)


async def test_a_model_in_use_stays_as_long_as_loading_it_took(make_models):
    """So requests in turns for two models do not cost a load each."""
    world = await make_models(1)
    slot = world.slot
    slot._stay._seconds = 1000.0
    await ask(world, "fake")
    asked = asyncio.create_task(ask(world, "other"))
    await until_so(lambda: world.service.queue.size == 1, pause=turn)
    for _ in range(3):
        assert await ask(world, "fake") == "fake"
    assert alive(world) == ["fake"]
    slot._stay._seconds = 0.0
    world.slots._advance()
    assert await asked == "other"


async def test_a_model_that_nobody_uses_leaves_at_once(make_models, monkeypatch):
    world = await make_models(1)
    world.slot._stay._seconds = 1000.0
    await ask(world, "fake")
    monkeypatch.setattr(engine_times, "_IN_USE", 0.0)
    async with asyncio.timeout(100):
        assert await ask(world, "other") == "other"


async def test_a_large_model_takes_as_many_places_as_it_needs(make_models, monkeypatch):
    """It is answered by the request that asked for it, also where it is the first one again."""
    world, opened = await make_models(3), FakeEngine.open
    for name in ("other", "third"):
        await ask(world, name)

    async def tight(engine):
        await asyncio.sleep(0)
        if any(other.alive for other in world.engines if other is not engine):
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    for name in ("fourth", "fake"):
        assert await ask(world, name) == name
        assert alive(world) == [name]


async def test_a_model_that_is_to_be_unloaded_anyway_stays_for_nobody(make_models, monkeypatch):
    monkeypatch.setattr(engine_times, "_IN_USE", 1000.0)
    world = await make_models(1)
    world.slots.present._stay._seconds = 1000.0
    world.hold = asyncio.Event()
    first = world.client.post("/api/chat", json=HI | {"model": "fake", "keep_alive": 0})
    asked = [asyncio.create_task(first), asyncio.create_task(ask(world, "other"))]
    await until_so(lambda: world.engines[0].running, pause=turn)
    world.hold.set()
    async with asyncio.timeout(20):
        assert (await asyncio.gather(*asked))[1] == "other"


async def test_a_stay_that_ends_while_it_is_looked_at_keeps_nobody_waiting(
    make_models, monkeypatch
):
    world, looks = await make_models(1), []

    def ending(slot):
        looks.append(slot)
        return 1e-6 if len(looks) == 1 else -1e-6

    monkeypatch.setattr(engine_slot.EngineSlot, "stays", property(ending))
    async with asyncio.timeout(20):
        assert await ask(world, "other") == "other"
    assert len(looks) > 1


async def unload(world, name):
    await world.client.post("/api/generate", json={"model": name, "keep_alive": 0})
    await until_so(lambda: name not in alive(world), pause=turn)
    await until_so(lambda: not any(slot._changing for slot in world.slots._slots), pause=turn)


async def test_the_place_of_an_unloaded_model_is_taken_only_where_there_is_room(make_models):
    for most in (2, 3):
        world = await make_models(most)
        await ask(world, "other")
        await unload(world, "other")
        world.fits = False  # what else runs here has taken the memory
        assert await ask(world, "third") == "third"
        assert alive(world) == ["third"]
        assert world.notices[-1] == "loading third in place of fake: 1 request waits for it"


async def test_a_model_that_was_unloaded_comes_back_only_where_there_is_room(make_models):
    world = await make_models(2)
    await ask(world, "other")
    await unload(world, "other")
    world.fits = False
    assert await ask(world, "other") == "other"
    assert alive(world) == ["other"]


async def test_where_there_is_room_it_is_taken_in_place_of_nobody(make_models):
    world = await make_models(2)
    await ask(world, "other")
    await unload(world, "other")
    assert await ask(world, "third") == "third"
    assert alive(world) == ["fake", "third"]
    assert world.notices == ["loading other beside fake", "loading third beside fake"]


@pytest.mark.parametrize("most", [1, 2])
async def test_a_model_that_was_not_loaded_is_named_in_no_notice(make_models, most):
    world = await make_models(most)
    await unload(world, "fake")
    assert await ask(world, "other") == "other"
    assert world.notices == []


async def test_the_place_of_a_first_model_that_failed_is_taken_only_where_there_is_room(
    make_models, monkeypatch
):
    world = await make_models(2)
    await ask(world, "other")
    await unload(world, "fake")
    world.load_error = LocalspecError("damaged")
    assert await ask(world, "fake") == 503
    world.load_error, world.fits = None, False
    assert await ask(world, "third") == "third"
    assert alive(world) == ["third"]


async def test_a_server_is_ready_while_one_of_its_models_answers(make_models):
    """A probe would take it away from the clients of that model."""
    world = await make_models(2)
    world.loading = asyncio.Event()
    asked = asyncio.create_task(ask(world, "other"))
    await until_so(lambda: len(world.engines) == 2, pause=turn)
    for path in ("/readyz", "/health"):
        assert (await world.client.get(path)).json() == {"status": "ok"}
    assert await ask(world, "fake") == "fake"
    await unload(world, "fake")
    answer = await world.client.get("/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
    world.loading.set()
    assert await asked == "other"
    assert (await world.client.get("/readyz")).status_code == 200


async def test_an_alias_has_the_facts_of_the_first_model_whichever_was_used_last(
    make_world, monkeypatch
):
    others = [("other", "")]
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: others)
    opened = FakeEngine.open

    async def opens(engine):
        info = await opened(engine)
        context = {"fake": 512, "other": 2048}[engine.options.model]
        engine.info = dataclasses.replace(info, context=context)
        return engine.info

    monkeypatch.setattr(FakeEngine, "open", opens)
    world = await make_world(models=2, aliases=("gpt",))
    for name in ("fake", "other"):
        await ask(world, name)
    listed = (await world.client.get("/v1/models")).json()["data"]
    found = {one["id"]: one["max_model_len"] for one in listed if one["localspec"]["loaded"]}
    assert found == {"other": 2048, "fake": 512, "gpt": 512}
    assert (await world.client.get("/v1/models/gpt")).json()["max_model_len"] == 512
    anthropic = {"anthropic-version": "2023-06-01"}
    one = await world.client.get("/v1/models/gpt", headers=anthropic)
    assert one.json()["max_input_tokens"] == 512


@pytest.mark.parametrize("queue", [0, 1])
async def test_a_full_queue_of_one_model_keeps_nobody_from_another_that_is_idle(make_models, queue):
    world = await make_models(2, limits=Limits(waiting=queue))
    service = world.service
    assert await ask(world, "other") == "other"
    end, asked = await held(world, "fake", "fake")
    world.hold = end
    asked += [asyncio.create_task(ask(world, "fake")) for _ in range(queue)]
    await until_so(lambda: service.queue.size == 2 + queue, pause=turn)
    for _ in range(2):
        assert await ask(world, "fake") == 429
    assert (service.queue.waiting, service.queue.parallel) == (queue, 4)
    asked += [asyncio.create_task(ask(world, "other")) for _ in range(2)]
    await until_so(lambda: service.queue.size == 4 + queue, pause=turn)
    assert await ask(world, "other") == 429
    assert len((await world.client.get("/slots")).json()) == 4
    end.set()
    assert await asyncio.gather(*asked) == ["fake"] * (2 + queue) + ["other"] * 2


async def test_a_model_that_waits_keeps_its_turn_while_broken_ones_come_and_go(
    make_models, monkeypatch
):
    """Room for it is asked for once each time, however many wait for it."""
    world = await make_models(2)
    world.fits = {"third"}
    breaks(world, monkeypatch, "third").set()
    end, asked = await held(world, "fake")
    asked += [asyncio.create_task(ask(world, "other")) for _ in range(10)]
    await until_so(lambda: world.room_asked == ["other"], pause=turn)
    asked.append(asyncio.create_task(ask(world, "fake")))
    for n in (2, 3):
        assert await ask(world, "third") == 503
        await until_so(lambda n=n: world.room_asked.count("other") == n, pause=turn)
        world.slots.pause_of(Options(model="third")).end()
    assert world.engines[0].running == 1
    end.set()
    assert await asyncio.gather(*asked) == ["fake", *["other"] * 10, "fake"]


async def test_a_model_is_loaded_in_the_place_of_one_that_has_failed_in_this_instant(
    make_models, monkeypatch
):
    """The process of that one ends while the other one waits for its place."""
    world, opened, closed = await make_models(2), FakeEngine.open, FakeEngine.close
    ended = asyncio.create_task(asyncio.Event().wait())

    async def fails(engine):
        if engine.options.model != "other":
            return await opened(engine)
        await engine.close()
        raise LocalspecError("damaged")

    async def ends(engine):
        if engine.options.model == "other" and not ended.done():
            await asyncio.wait({ended})
        await closed(engine)

    monkeypatch.setattr(FakeEngine, "open", fails)
    monkeypatch.setattr(FakeEngine, "close", ends)
    end, asked = await held(world, "fake")
    left = asyncio.create_task(ask(world, "other"))
    await until_so(lambda: len(world.engines) == 2, pause=turn)
    left.cancel()
    await turn(0)
    world.fits = False
    third = asyncio.create_task(ask(world, "third"))
    try:
        await until_so(lambda: world.slots.slot_of(Options(model="third")), pause=turn)
        await turn(0)
    finally:
        ended.cancel()
    assert await third == "third"
    end.set()
    assert await asked[0] == "fake"


async def test_two_models_that_fit_alone_and_not_together_are_both_answered(
    make_models, monkeypatch
):
    world, opened = await make_models(2), FakeEngine.open
    assert await ask(world, "other") == "other"
    large = {"third", "fourth"}

    async def tight(engine):
        for _ in range(9):
            await turn(0)
        others = [one for one in world.engines if one is not engine and not one.closed]
        if engine.options.model in large and any(one.options.model in large for one in others):
            for _ in range(9):
                await turn(0)
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    monkeypatch.setattr(engine_times, "_IN_USE", 0.0)
    asked = [asyncio.create_task(ask(world, name)) for name in large]
    assert {*await asyncio.gather(*asked)} == large


@pytest.mark.parametrize("most", [1, 2])
async def test_any_model_that_stops_while_it_loads_is_tried_after_growing_pauses(
    make_models, monkeypatch, most
):
    monkeypatch.setattr(engine_times, "time", SimpleNamespace(monotonic=lambda: 0.0))
    world = await make_models(most)
    monkeypatch.setattr(engine_times, "_IN_USE", -1.0)
    world.load_error = EngineError("the engine stopped while loading (signal 6)")
    for _ in range(5):
        assert await ask(world, "other") == 503
    assert [engine.options.model for engine in world.engines] == ["fake", "other"]
    world.load_error = None
    assert await ask(world, "fake") == "fake"


async def test_a_full_queue_takes_no_batch_for_a_model_that_is_not_loaded(make_models):
    world = await make_models(2, limits=Limits(waiting=4))
    world.fits = False
    end, asked = await held(world, "fake", "fake")
    world.hold = end
    asked += [asyncio.create_task(ask(world, "fake")) for _ in range(4)]
    await until_so(lambda: world.service.queue.size == 6, pause=turn)
    batch = {"model": "other", "prompt": ["a", "b", "c"]}
    assert (await world.client.post("/v1/completions", json=batch)).status_code == 429
    asked.append(asyncio.create_task(ask(world, "other")))
    await until_so(lambda: world.service.queue.size == 7, pause=turn)
    end.set()
    assert await asyncio.gather(*asked) == ["fake"] * 6 + ["other"]


async def test_a_model_that_fits_nowhere_is_refused_while_others_ask_all_the_time(
    make_models, monkeypatch
):
    """No slot is added for them before it has been tried alone."""
    world, opened = await make_models(2), FakeEngine.open
    world.fits = {"other"}
    assert await ask(world, "other") == "other"

    async def tight(engine):
        await turn(0)
        if engine.options.model == "third":
            raise OutOfMemoryError("too large")
        return await opened(engine)

    monkeypatch.setattr(FakeEngine, "open", tight)
    monkeypatch.setattr(engine_times, "_IN_USE", 0.0)
    world.fits = {"fake", "other"}
    large = asyncio.create_task(ask(world, "third"))

    async def asks(name):
        while not large.done():
            assert await ask(world, name) == name

    others = [asyncio.create_task(asks(name)) for name in ("fake", "other") * 3]
    async with asyncio.timeout(60):
        assert await large == 503
        await asyncio.gather(*others)
    tried = [engine.options.model for engine in world.engines].count("third")
    assert tried <= 2
    assert {await ask(world, "fake"), await ask(world, "other")} == {"fake", "other"}
    assert sorted(alive(world)) == ["fake", "other"]


async def test_a_batch_larger_than_the_queue_is_taken_where_nothing_waits(make_models):
    """Also for a model that is not loaded: trying again later would not help."""
    world = await make_models(2, limits=Limits(waiting=4))
    for name in ("fake", "other"):
        batch = {"model": name, "prompt": list("abcdefgh")}
        assert (await world.client.post("/v1/completions", json=batch)).status_code == 200


async def test_many_that_wait_for_a_model_are_looked_through_at_once(make_models, monkeypatch):
    """Each that comes or leaves looks who may come in: with hundreds it took half a second."""
    slots, looked = (await make_models(1)).slots, []
    place_for = slots._place_for

    def counted(options, leaving):
        looked.append(options.model)
        return place_for(options, leaving)

    async def want(name):
        async with slots.use(Options(model=name)):
            pass

    async with slots.use():
        wanted = [asyncio.create_task(want(name)) for name in ("other", "third") * 5]
        await until_so(lambda: len([*slots._waiting]) == 10, pause=turn)
        monkeypatch.setattr(slots, "_place_for", counted)
        slots._advance()
        assert looked == ["other", "third"]
    await asyncio.gather(*wanted)
