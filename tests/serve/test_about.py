"""What the server tells of itself, and what it refuses to be."""

import asyncio

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "a secret"}]}


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


async def test_embeddings_are_refused_with_the_reason(world):
    for path in ("/v1/embeddings", "/embeddings"):
        answer = await world.client.post(path, json={"input": "x", "model": "fake"})
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["code"] == "not_supported"
        assert "embeddings are not supported" in error["message"]
