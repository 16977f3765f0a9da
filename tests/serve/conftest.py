import contextlib
import subprocess

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


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """A certificate, its key, and the key of another one."""
    folder = tmp_path_factory.mktemp("tls")

    def made(name):
        found = folder / f"{name}.pem", folder / f"{name}.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-out", str(found[0]), "-keyout", str(found[1])),
            ],
            check=True,
            capture_output=True,
        )
        return found

    certificate, key = made("one")
    return certificate, key, made("other")[1]


def messages(text="Hi"):
    return [{"role": "user", "content": text}]
