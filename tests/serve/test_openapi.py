"""The server describes itself wholly and truly, and nothing that it is sent ends in a 500."""

from __future__ import annotations

import copy
import random

import jsonschema
import pytest
from fuzz_server import Fuzzer
from neighbours import neighbour
from served import served
from starlette.routing import Route

from localspec.serve.app import ROUTES
from localspec.serve.http.settings import ServeSettings
from localspec.serve.routes import openapi, openapi_examples


def test_every_path_is_described(world):
    described = set(openapi.OPERATIONS)
    for operation in openapi.OPERATIONS.values():
        described |= set(operation.aliases)
    routes = [route for contribute in ROUTES for route in contribute(world.service)]
    assert all(isinstance(route, Route) for route in routes)
    assert {route.path.replace(":path", "") for route in routes} == described
    for route in routes:
        operation = openapi.OPERATIONS.get(route.path.replace(":path", ""))
        if operation is not None:
            assert operation.method.upper() in route.methods


async def test_the_description_is_served_and_refers_to_nothing_that_is_missing(world):
    answer = await world.client.get("/openapi.json")
    described = answer.json()
    assert described["openapi"] == "3.1.0"
    names = set(described["components"]["schemas"])
    assert {ref.rpartition("/")[2] for ref in _refs(described)} <= names


def _refs(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inside in value.values():
            yield from _refs(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from _refs(inside)


@pytest.mark.parametrize("path", [p for p, o in openapi.OPERATIONS.items() if o.example])
def test_examples_fit_their_schemas(path):
    described = copy.deepcopy(openapi.description())
    content = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schema = content["schema"] | {"components": described["components"]}
    jsonschema.validate(content["example"], schema)


def test_neighbours_differ_and_are_the_same_each_time():
    chat = openapi_examples.CHAT
    made = [neighbour(chat, random.Random(seed)) for seed in range(50)]
    assert sum(body != chat for body in made) > 45
    assert repr(made) == repr([neighbour(chat, random.Random(seed)) for seed in range(50)])
    assert openapi.OPERATIONS["/v1/chat/completions"].example == openapi_examples.CHAT


BEYOND_SCHEMAS = (
    "nested too deep",
    "are not a JSON object",  # arguments of a call that are a text
    "two tools named",
    "exclude each other",
    "there are no tools",
    "names a tool",
    "needs logprobs: true",
    "best_of",
)
"""What answers say to requests that fit their schema: no schema has these rules."""


@pytest.mark.parametrize(
    "path", [p for p, o in openapi.OPERATIONS.items() if o.example and "localspec" not in p]
)
async def test_what_the_description_allows_is_answered_and_what_it_forbids_refused(world, path):
    await world.slot.load()
    described = copy.deepcopy(openapi.description())
    content = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schema = content["schema"] | {"components": described["components"]}
    fits = jsonschema.Draft202012Validator(schema)
    example = openapi.OPERATIONS[path].example
    chance = random.Random(path)
    for _ in range(120):
        body = neighbour(example, chance) | {"model": None}
        answer = await world.client.post(path, json=body)
        wrong = jsonschema.exceptions.best_match(fits.iter_errors(body))
        if answer.status_code == 200:
            assert wrong is None, body
        elif wrong is None:
            message = answer.json()["error"]["message"]
            assert any(known in message for known in BEYOND_SCHEMAS), (message, body)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_request_ends_in_an_answer_that_is_not_described():
    """A short part of scripts/fuzz_server."""
    with served(ServeSettings(port=0, max_tokens=3)) as server:
        fuzzer = Fuzzer(server.url)
        assert fuzzer.storm(seconds=20, clients=4) == []
        assert list(fuzzer.run(seconds=40, examples=10)) == []
        assert server.notes.defects == []
        assert fuzzer.sent > 20
        assert server.service.slot.restarts == 0
