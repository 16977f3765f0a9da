from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec.engine.client import EngineClient


@dataclass(frozen=True)
class FakeOptions:
    model: str = "fake"


@pytest.fixture
async def make_client(tmp_path, monkeypatch):
    """Clients whose child runs tests/engine/fake_runtime.py; closed at the end."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    clients = []

    def make(model="fake", **more):
        client = EngineClient(
            FakeOptions(model), log_dir=tmp_path / "log", runtime="fake_runtime:create", **more
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def client(make_client):
    client = make_client()
    await client.open()
    return client
