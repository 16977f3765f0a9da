"""The server describes itself wholly and truly, and nothing that it is sent ends in a 500."""

from __future__ import annotations

import random

import jsonschema
import pytest
from fake_serving import World
from faults.fuzz_server import Fuzzer
from faults.neighbours import neighbour
from served import served

from localspec.core import settings_schema
from localspec.core.setting_spec import Scope
from localspec.engine import protocol
from localspec.engine.messages import ReplyCommand
from localspec.serve.app import all_routes
from localspec.serve.http.settings import ServeSettings
from localspec.serve.routes import examples, openapi
from localspec.serve.routes.endpoint import Endpoint

EXAMPLES = {
    "/v1/chat/completions": examples.CHAT,
    "/v1/completions": examples.COMPLETION,
    "/v1/responses": examples.RESPONSE,
    "/v1/messages": examples.MESSAGE,
    "/v1/messages/count_tokens": examples.COUNT,
    "/tokenize": examples.TOKENIZE,
    "/detokenize": examples.DETOKENIZE,
    "/apply-template": examples.TEMPLATE,
    "/infill": examples.INFILL,
    "/api/chat": examples.OLLAMA_CHAT,
    "/api/generate": examples.OLLAMA_GENERATE,
    "/api/show": examples.OLLAMA_SHOW,
}
REPLIES = [*EXAMPLES][:4]


@pytest.fixture(scope="module")
def described():
    """The description, and a check of bodies by path."""
    found = openapi.description(all_routes(World().service))
    judges = {}
    for path, operations in found["paths"].items():
        if "requestBody" in operations.get("post", {}):
            content = operations["post"]["requestBody"]["content"]["application/json"]
            schema = content["schema"] | {"components": found["components"]}
            judges[path] = jsonschema.Draft202012Validator(schema)
    return found, judges


def test_every_path_is_described(world):
    routes = all_routes(world.service)
    paths = openapi.description(routes)["paths"]
    handlers = {(route.path_format, *route.methods - {"HEAD"}) for route in routes}
    named = {route.path_format for route in routes if isinstance(route, Endpoint)}
    assert set(paths) == named
    assert {(path, method.upper()) for path, one in paths.items() for method in one} <= handlers
    aliases = {route.path_format for route in routes} - named
    assert aliases == {
        *("/models", "/v1/health", "/readyz", "/embeddings"),
        *("/rerank", "/v1/reranking", "/reranking"),
        *("/chat/completions", "/completions", "/responses"),
    }


@pytest.mark.parametrize("path", REPLIES)
def test_every_sampling_setting_is_a_field_of_every_request_for_a_reply(described, path):
    found, judges = described
    properties = fields(found, judges[path].schema)
    for spec in settings_schema.of(Scope.SAMPLING):
        assert properties[spec.name]["description"].startswith(spec.help)
    assert {"repetition_penalty", "repeat_last_n"} <= set(properties)
    assert ("best_of" in properties) == ("completions" in path)


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


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_fit_their_schemas(described, path):
    found, judges = described
    content = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"] == EXAMPLES[path]
    judges[path].validate(EXAMPLES[path])


def with_number(value, number):
    """The value as often as it has numbers, each time with another one replaced."""
    if type(value) in {int, float}:
        yield number
    for key, inner in enumerate(value) if isinstance(value, list) else ():
        yield from ([*value[:key], one, *value[key + 1 :]] for one in with_number(inner, number))
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from (value | {key: one} for one in with_number(inner, number))


@pytest.mark.parametrize("number", [1 << 64, -(1 << 64) - 1, 10**399], ids=["65", "-65", "1300"])
@pytest.mark.parametrize("path", [*EXAMPLES, "/localspec/reply"])
async def test_numbers_of_too_many_bits_are_refused_or_reach_the_engine_as_others(
    world, path, number
):
    example = {**EXAMPLES.get(path, examples.NATIVE)}
    example.pop("model", None)
    for body in with_number(example, number):
        answer = await world.client.post(path, json=body)
        assert answer.status_code in {200, 400}, (body, answer.text)
    for request in world.requests:
        assert protocol.decode_command(protocol.encode(ReplyCommand(1, request)))
    assert not world.defects


@pytest.mark.parametrize("path", REPLIES)
async def test_more_tokens_than_any_context_has_are_as_many_as_it_has(world, path):
    field = "max_output_tokens" if "responses" in path else "max_tokens"
    body = EXAMPLES[path] | {"model": "fake", field: 1 << 64}
    assert (await world.client.post(path, json=body)).status_code == 200
    assert world.requests[0].max_tokens == 1 << 40


def test_neighbours_differ_and_are_the_same_each_time():
    chat = examples.CHAT
    made = [neighbour(chat, random.Random(seed)) for seed in range(50)]
    assert sum(body != chat for body in made) > 45
    assert repr(made) == repr([neighbour(chat, random.Random(seed)) for seed in range(50)])


BEYOND_SCHEMAS = (
    "a number in the body has",
    "nested too deep",
    "two tools named",
    "exclude each other",
    "more than one grammar",
    "there are no tools",
    "names a tool",
    "needs logprobs: true",
    "best_of",
    "in this order, each once",
    "this schema is not JSON",  # a text
    "an object in braces",
    "the grammar is empty",
    "choices must not be empty",
    "must be a list of texts in JSON",  # a text of dry_sequence_breakers
    "no sampler called",
    "infill is the last sampler here",
    "localspec has no adaptive_p",
    "the picture is not in base64",
    "the picture is empty",
    "has no place in a raw prompt",
    "stop texts",  # of two fields together
    "last message of the assistant is continued",
)
"""What answers say to requests that fit their schema: no schema has these rules."""


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
async def test_what_the_description_allows_is_answered_and_what_it_forbids_refused(
    world, described, path
):
    await world.slots.load()
    chance = random.Random(path)
    for _ in range(120):
        body = neighbour(EXAMPLES[path], chance) | {"model": None}
        await agreed(world, described, path, body)


HI = {"messages": [{"role": "user", "content": "Hi"}]}
LEAST = {
    "/v1/chat/completions": HI,
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": HI | {"max_tokens": 3},
    "/v1/messages/count_tokens": HI,
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/apply-template": HI,
    "/infill": {"input_prefix": "a", "input_suffix": ""},
    "/api/chat": HI,
    "/api/generate": {"prompt": "a"},
    "/api/show": {"model": "fake"},
}
"""A valid body for each path."""
ODD = {
    "/v1/responses": {"tools": [{"type": "web", "name": "a b", "parameters": {"required": [1]}}]},
    "/v1/messages": {"tools": [{"type": "web", "name": "a b", "input_schema": {"required": [1]}}]},
    "/v1/chat/completions": {"response_format": {"type": "text", "schema": 5}},
    "/v1/completions": {"response_format": {"type": "text", "json_schema": {"schema": 5}}},
}
"""What is wrong in a part that is not looked at."""
VALUES = (-1, 0, 1.0, 2, 1.5, "", "x", True, [], ["a"], [[1]], {}, {"a": 1})
"""What a field may be tried with."""


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
async def test_description_and_server_agree_on_every_field(world, described, path):
    await world.slots.load()
    found, judges = described
    for name in fields(found, judges[path].schema):
        for value in VALUES:
            await agreed(world, described, path, LEAST[path] | {name: value})


@pytest.mark.parametrize("path", ODD)
async def test_what_is_not_looked_at_may_be_anything(world, described, path):
    body = LEAST[path] | ODD[path]
    assert (await world.client.post(path, json=body)).status_code == 200
    await agreed(world, described, path, body)


def fields(found, schema):
    """The fields of a body: its own, and those of the types that it is made of."""
    own = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    more = (fields(found, part) for part in own.get("allOf", ()))
    return own["properties"] | {name: of for part in more for name, of in part.items()}


async def agreed(world, described, path, body):
    """Ask, and hold the answer against the schema."""
    answer = await world.client.post(path, json=body)
    if answer.status_code == 404:  # the model, which a schema does not know
        return
    wrong = jsonschema.exceptions.best_match(described[1][path].iter_errors(body))
    if answer.status_code == 200:
        assert wrong is None, body
    elif wrong is None:
        error = answer.json()["error"]
        message = error if isinstance(error, str) else error["message"]
        assert any(known in message for known in BEYOND_SCHEMAS), (message, body)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_request_ends_in_an_answer_that_is_not_described():
    """A short part of scripts/fuzz_server: each operation is asked once or some times."""
    with served(ServeSettings(port=0, max_tokens=3, pulls=False)) as server:
        fuzzer = Fuzzer(server.url)
        assert fuzzer.storm(seconds=60, clients=4, most=100) == []
        assert fuzzer.sent > 20
        assert list(fuzzer.run(seconds=200, examples=2, turns=1)) == []
        assert server.notes.defects == []
        assert {label for label, _ in fuzzer.statuses} == {one.label for one in fuzzer.operations}
        assert server.service.slots.restarts == 0
