"""An endpoint as docs/server.md adds one: a module, and a line in `ROUTES`."""

from __future__ import annotations

from typing import Annotated

import httpx2
import pytest
from fake_serving import World
from msgspec import Meta, Struct
from starlette.responses import Response

from localspec.serve import app
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.http.typed import Body
from localspec.serve.routes.endpoint import Endpoints, Received


class Loudness(Body):
    loud: bool | None = None


class EchoBody(Body, kw_only=True):
    parts = (Loudness,)
    without_effect = ("accent",)

    text: Annotated[str, Meta(min_length=1, description="what to say")]
    times: Annotated[int, Meta(ge=1, le=9)] | None = None


class EchoAnswer(Struct):
    text: str


endpoints = Endpoints()


@endpoints.post("/v1/echo", "/echo", answer=EchoAnswer)
async def echo(received: Received[EchoBody]) -> Response:
    """The text, said again."""
    body, loud = received.body, received.part(Loudness).loud
    return JSONAnswer({"text": (body.text.upper() if loud else body.text) * (body.times or 1)})


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, endpoints))
    world = World()
    transport = httpx2.ASGITransport(app=world.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        world.client = client
        yield world


@pytest.mark.parametrize("path", ["/v1/echo", "/echo"])
async def test_it_answers_and_the_log_has_what_it_does_not_know(world, path):
    asked = {"text": "a", "times": 3, "loud": True, "accent": "x", "tempo": 1}
    assert (await world.client.post(path, json=asked)).json() == {"text": "AAA"}
    assert world.notices == ["the field 'tempo' in /v1/echo has no effect"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "text is missing"),
        ({"text": ""}, "text must not be empty"),
        ({"text": "a", "times": 10}, "times must be at most 9"),
        ({"text": "a", "loud": "very"}, "loud must be a boolean, not a string"),
    ],
)
async def test_it_refuses_what_its_types_forbid(world, asked, said):
    answer = await world.client.post("/echo", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == said


async def test_it_is_described(world):
    described = (await world.client.get("/openapi.json")).json()
    operation = described["paths"]["/v1/echo"]["post"]
    assert operation["summary"] == "The text, said again"
    assert "/echo" not in described["paths"]
    schemas = described["components"]["schemas"]
    assert schemas["EchoBody"]["required"] == ["text"]
    assert schemas["EchoBody"]["properties"]["text"]["description"] == "what to say"
    assert schemas["EchoBody"]["allOf"] == [{"$ref": "#/components/schemas/Loudness"}]
    assert schemas["EchoAnswer"]["properties"]["text"] == {"type": "string"}
