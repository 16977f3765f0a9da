"""Endpoints about the server itself, and interfaces that it refuses."""

import asyncio

import pytest

from localspec import __version__

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "a secret"}]}


async def test_a_server_that_loads_is_alive_not_ready_and_not_asleep(world):
    for path, status in (("/livez", 200), ("/readyz", 200)):
        assert (await world.client.get(path)).status_code == status
    assert (await world.client.get("/props")).json()["is_sleeping"] is True
    world.loading = asyncio.Event()
    loading = asyncio.create_task(world.slots.load())
    while not world.slot.loading:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    for path, status in (("/livez", 200), ("/readyz", 503), ("/health", 503)):
        assert (await world.client.get(path)).status_code == status
    assert (await world.client.get("/props")).json()["is_sleeping"] is False
    world.loading.set()
    await loading
    assert (await world.client.get("/readyz")).status_code == 200
    assert (await world.client.get("/props")).json()["is_sleeping"] is False


async def test_the_version_is_told(world):
    assert (await world.client.get("/version")).json() == {"version": __version__}


async def test_the_list_of_models_says_how_much_the_loaded_one_takes(make_world):
    world = await make_world(max_tokens=100)
    await world.slots.load()
    headers = {"anthropic-version": "2023-06-01"}
    model, *_ = (await world.client.get("/v1/models", headers=headers)).json()["data"]
    assert (model["max_input_tokens"], model["max_tokens"]) == (512, 100)


async def test_slots_tell_of_running_replies_and_of_no_text(world):
    assert (await world.client.get("/slots")).json() == []  # nothing is loaded
    world.hold = asyncio.Event()
    asked = asyncio.create_task(world.client.post(CHAT, json=HI))
    while world.service.metrics.emitted < 2:  # noqa: ASYNC110 - the fakes set no events
        await asyncio.sleep(0)
    answer = await world.client.get("/slots")
    busy, free = answer.json()
    assert (busy["id"], busy["is_processing"], busy["n_ctx"], busy["n_decoded"]) == (
        0,
        True,
        512,
        2,
    )
    assert (free["id"], free["is_processing"], free["n_decoded"]) == (1, False, 0)
    assert "secret" not in answer.text
    assert (await world.client.get("/slots?fail_on_no_slot=1")).status_code == 200
    world.hold.set()
    await asked
    assert not any(slot["is_processing"] for slot in (await world.client.get("/slots")).json())


async def test_slots_can_be_asked_to_fail_when_none_is_free(world):
    world.hold = asyncio.Event()
    asked = [asyncio.create_task(world.client.post(CHAT, json=HI)) for _ in range(2)]
    while world.service.metrics.emitted < 4:  # noqa: ASYNC110
        await asyncio.sleep(0)
    answer = await world.client.get("/slots?fail_on_no_slot=1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_slot")
    world.hold.set()
    await asyncio.gather(*asked)


async def test_a_server_without_a_model_for_texts_says_what_to_load(world):
    for path, body, flag in (
        ("/v1/embeddings", {"input": "x", "model": "fake"}, "--embedding MODEL"),
        ("/embeddings", {"input": "x"}, "--embedding MODEL"),
        ("/embedding", {"content": "x"}, "--embedding MODEL"),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}, "--reranker MODEL"),
    ):
        answer = await world.client.post(path, json=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["code"] == "not_supported"
        assert flag in error["message"]


async def test_models_are_listed_in_the_shape_of_the_api_that_the_client_speaks(world):
    await world.slots.load()
    headers = {"anthropic-version": "2023-06-01"}
    listed = (await world.client.get("/v1/models", headers=headers)).json()
    model, *others = listed.pop("data")
    last = others[-1]["id"] if others else "fake"
    assert listed == {"has_more": False, "first_id": "fake", "last_id": last}
    assert (model["type"], model["id"], model["display_name"]) == ("model", "fake", "fake")
    assert model["created_at"].endswith("Z")
    one = (await world.client.get("/v1/models/fake", headers=headers)).json()
    assert one == model
    assert (await world.client.get("/v1/models")).json()["object"] == "list"


@pytest.mark.parametrize(
    ("name", "found"),
    [("fake:latest", "fake"), ("other", "other"), ("other:latest", "other"), ("no", None)],
)
async def test_a_model_is_found_by_every_name_that_requests_may_have(make_world, name, found):
    world = await make_world(aliases=("other",))
    described = await world.client.get(f"/v1/models/{name}")
    asked = await world.client.post(CHAT, json=HI | {"model": name})
    assert described.status_code == asked.status_code == (404 if found is None else 200)
    assert described.json().get("id") == found


async def test_where_any_name_is_taken_it_means_the_present_model(make_world):
    world = await make_world(aliases=("*",))
    assert (await world.client.get("/v1/models/gpt-4o")).json()["id"] == "fake"


@pytest.mark.parametrize("path", ["/v1/models/", "//v1//models", "/models/"])
async def test_needless_slashes_change_nothing(world, path):
    answer = await world.client.get(path)
    assert answer.status_code == 200
    assert answer.json()["object"] == "list"


async def test_a_base_url_with_one_v1_too_many_is_explained(world):
    answer = await world.client.post("/v1/v1/messages", json={})
    assert answer.status_code == 404
    assert "the base URL of this client should end before /v1" in answer.text
