import contextlib

import httpx2
import pytest
from fake_serving import World


@pytest.fixture
async def make_world(monkeypatch):
    """Servers on fake engines, with a client each."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(*, headers=None, **settings):
            world = World(**settings)
            transport = httpx2.ASGITransport(app=world.app)
            world.client = await stack.enter_async_context(
                httpx2.AsyncClient(
                    transport=transport, base_url="http://127.0.0.1:8080", headers=headers
                )
            )
            stack.push_async_callback(world.slots.close)
            return world

        yield make


@pytest.fixture
async def world(make_world):
    return await make_world()


def messages(text="Hi"):
    return [{"role": "user", "content": text}]
