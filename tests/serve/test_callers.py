"""Clients with different keys have in turn what a server gives to few at a time."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import turn, until_so

from localspec.core.embedded import Embedded
from localspec.core.events import Message
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.media_places import MediaPlaces
from localspec.serve.http.bodies import LARGE, elsewhere
from localspec.serve.http.body_budget import Caller
from localspec.serve.http.settings import ApiKeys

ALICE, BOB, CAROL = (Caller(name) for name in ("alice", "bob", "carol"))


@pytest.mark.parametrize(("work", "places"), [("examine", 2), ("tokenize", 4)])
async def test_who_is_examined_or_split_everywhere_keeps_no_other_client_waiting(
    make_world, work, places
):
    world = await make_world()
    await world.slots.load()
    running, gate = [], asyncio.Semaphore(0)

    async def answered(request, *_, **__):
        running.append(request.prompt)
        await gate.acquire()

    setattr(world.engines[0], work, answered)

    def ask(caller, name):
        request = ReplyRequest(prompt=f"{caller.owner} {name}", seed=1)
        if work == "examine":
            return asyncio.create_task(world.service.examine(caller, None, request, (1,), None))
        return asyncio.create_task(world.service.tokenize(caller, None, request))

    asked = [ask(ALICE, i) for i in range(places + 4)]
    await until_so(lambda: len(running) == places, pause=turn)
    asked.append(ask(BOB, 0))
    await until_so(lambda: len(running) == places + 1, pause=turn)
    assert running[-1] == "bob 0"
    asked += [ask(BOB, 1), ask(CAROL, 0)]
    await asyncio.sleep(0.05)
    assert len(running) == places + 1
    gate.release()
    await until_so(lambda: len(running) == places + 2, pause=turn)
    assert running[-1] == "carol 0"
    for _ in asked:
        gate.release()
    await asyncio.gather(*asked)


async def test_pictures_that_never_come_keep_no_other_client_waiting(monkeypatch):
    places, running, gate = MediaPlaces(["https://a.org"]), [], asyncio.Event()

    async def downloaded(_self, address, _more):
        running.append(address)
        await gate.wait()
        return b"a picture"

    monkeypatch.setattr(MediaPlaces, "_downloaded", downloaded)

    def ask(caller):
        picture = Picture(address=f"https://a.org/{caller}.png")
        request = ReplyRequest(messages=(Message("user", "what?", pictures=(picture,)),))
        return asyncio.create_task(places.fetched(caller, request, lambda _: None))

    asked = [ask("alice") for _ in range(8)]
    await until_so(lambda: len(running) == 4, pause=turn)
    asked.append(ask("bob"))
    await until_so(lambda: len(running) == 5, pause=turn)
    assert running[-1] == "https://a.org/bob.png"
    gate.set()
    await asyncio.gather(*asked)


async def test_large_bodies_are_read_in_turn_of_their_clients():
    gate, begun = threading.Event(), []

    def read(caller):
        begun.append(caller.owner)
        gate.wait()

    def ask(caller):
        return asyncio.create_task(elsewhere(caller, LARGE + 1, lambda: read(caller)))

    asked = [ask(ALICE)]
    await until_so(lambda: begun)
    asked += map(ask, (ALICE, ALICE, BOB, BOB, CAROL))
    await asyncio.sleep(0)  # all of them wait
    asked[3].cancel()
    await asyncio.wait({asked[3]})
    gate.set()
    await asyncio.gather(*asked, return_exceptions=True)
    assert begun == ["alice", "bob", "carol", "alice", "alice"]


async def test_adapters_are_changed_in_turn_of_their_clients(make_world):
    world = await make_world()
    gate, begun = asyncio.Event(), []

    async def change(name):
        begun.append(name)
        await gate.wait()

    def ask(caller, name):
        changing = world.service.adapters.changing
        return asyncio.create_task(world.service.alone(caller, changing, lambda: change(name)))

    asked = [ask(ALICE, i) for i in range(3)] + [ask(BOB, 3)]
    await until_so(lambda: begun, pause=turn)
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*asked)
    assert begun == [0, 3, 1, 2]


ROUTES = {
    "/v1/embeddings": {"input": "a"},
    "/embedding": {"content": "a"},
    "/api/embed": {"model": "m", "input": "a"},
    "/api/embeddings": {"model": "m", "prompt": "a"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
}


@pytest.mark.parametrize("path", ROUTES)
async def test_a_model_of_texts_is_told_whose_they_are(make_world, path):
    keys = ApiKeys(("a" * 20, "b" * 20))
    world, callers = await make_world(keys=keys), []

    async def found(*_, caller, **__):
        callers.append(caller)
        return Embedded(np.ones((1, 1), np.float32), (1,))

    process = SimpleNamespace(model="m", info=None, embed=found, rank=found)
    world.service.embeddings = Embeddings(process, process)
    for key in ("a" * 20, "b" * 20):
        head = {"Authorization": f"Bearer {key}"}
        answer = await world.client.post(path, json=ROUTES[path], headers=head)
        assert answer.status_code == 200, answer.text
    assert callers == [keys.owner("a" * 20), keys.owner("b" * 20)]
