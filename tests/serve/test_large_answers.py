"""Large answers: made in a thread, in steps between which others have their turn."""

import asyncio
import json
import random
import threading

import pytest

from localspec.serve.http import bodies, sse
from localspec.serve.http.sse import dumps, dumps_in_steps

HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5000, "stream": False}
WHOLE = {
    "/v1/chat/completions": HI | {"logprobs": True, "top_logprobs": 20},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 5000},
    "/v1/messages": HI,
    "/v1/responses": {"input": "Hi"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/api/chat": {"messages": HI["messages"], "stream": False},
}
SCORED = {
    "/v1/completions": {"prompt": [1] * 900, "prompt_logprobs": 20, "max_tokens": 4},
    "/completions": {"prompt": [1] * 900, "echo": True, "logprobs": 20, "max_tokens": 4},
}
REPEATED = {"/v1/completions": {"prompt": [1] * 20_000, "return_token_ids": True, "max_tokens": 4}}


@pytest.fixture
def writers(monkeypatch):
    """The threads in which answers were written."""
    found = []

    def noted(value):
        found.append(threading.current_thread())
        return dumps_in_steps(value)

    monkeypatch.setattr(bodies, "dumps_in_steps", noted)
    return found


@pytest.mark.parametrize(
    ("path", "body"),
    [*WHOLE.items(), *SCORED.items(), *REPEATED.items()],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_the_loop_writes_no_large_answer(world, writers, path, body):
    world.words = ("w ",) * (5000 if path in WHOLE and body is WHOLE[path] else 4)
    answer = await world.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    (writer,) = writers
    assert writer is not threading.current_thread()


async def test_the_loop_writes_small_answers_itself(world, writers):
    for path, body in WHOLE.items():
        assert (await world.client.post(path, json=body)).status_code == 200
    assert {*writers} == {threading.current_thread()}


async def test_others_are_served_while_a_large_answer_is_written(world, monkeypatch):
    writing, go_on = threading.Event(), threading.Event()

    def held(value):
        if threading.current_thread() is not threading.main_thread():
            writing.set()
            assert go_on.wait(60)
        return dumps_in_steps(value)

    monkeypatch.setattr(bodies, "dumps_in_steps", held)
    asked = asyncio.create_task(
        world.client.post("/v1/completions", json=SCORED["/v1/completions"])
    )
    assert await asyncio.to_thread(writing.wait, 60)
    assert (await world.client.get("/v1/models")).status_code == 200
    go_on.set()
    assert (await asked).status_code == 200


def values_in(text):
    return sum(text.count(sign) for sign in ",[{")


ROW = {
    str(token): {"logprob": -0.5, "rank": None, "decoded_token": "ä\udce4"} for token in range(21)
}
LARGE = {
    "scored prompt": {"choices": [{"prompt_logprobs": [None, *[ROW] * 500]}, {"text": ""}]},
    "many choices": {"choices": [{"index": i, "prompt_logprobs": [ROW] * 90} for i in range(90)]},
    "vectors": {"data": [{"embedding": [i / 7 for i in range(5000)]}] * 40, "model": "a"},
    "tokens": {"tokens": (*range(50_000),), "count": 50_000},
    "pieces": {"tokens": [{"id": i, "piece": "a"} for i in range(30_000)]},
    "names": {str(i): i for i in range(17_000)},
    "nothing": [{}, [], (), *[[[], {"a": []}]] * 5000],
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_answer_is_written_in_short_steps_with_the_same_bytes(monkeypatch, kind):
    """Python's lock is kept for all of a step."""
    whole, steps = dumps(LARGE[kind]), []
    encoder = sse._ENCODER

    class Counting:
        @staticmethod
        def encode(value):
            text = encoder.encode(value)
            steps.append(values_in(text))
            return text

    monkeypatch.setattr(sse, "_ENCODER", Counting)
    assert dumps_in_steps(LARGE[kind]) == whole
    assert values_in(whole.decode()) > 4 * 4096 > 2 * max(steps)


def test_what_is_written_in_steps_has_the_bytes_of_one_step():
    chance = random.Random(20261126)

    def value(depth):
        kind = chance.randrange(6) if depth else chance.randrange(4)
        size = chance.choice((0, 1, 3, 31, 32, 33, 70))
        match kind:
            case 0:
                return chance.choice((None, True, 1.5e-7, -0.0, 10**20, "", 'a"\\\n', "ä\ud800"))
            case 4:
                return [value(depth - 1) for _ in range(size)]
            case 5:
                return {f'{i}"': value(depth - 1) for i in range(size)}
        return chance.random()

    for _ in range(60):
        given = value(4)
        assert dumps_in_steps(given) == dumps(given)
        json.loads(dumps(given))
