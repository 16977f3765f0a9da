"""Large answers: made in a thread, in steps between which others have their turn."""

import asyncio
import json
import random
import threading

import pytest
from starlette.responses import Response
from waiting import until_so

from localspec.core.errors import EngineError
from localspec.core.events import ReplyFormat
from localspec.serve.http import bodies, sse, streamed
from localspec.serve.http.body_budget import BodyBudget, Share
from localspec.serve.http.settings import Limits
from localspec.serve.http.sse import dumps, dumps_in_steps

HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5000, "stream": False}
CHAT = "/v1/chat/completions"
WHOLE = {
    CHAT: HI | {"logprobs": True, "top_logprobs": 20},
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
IDS = {"prompt": [1] * 20_000, "return_token_ids": True, "max_tokens": 4}
METADATA = {"input": "Hi", "metadata": {"k": [*range(20_000)]}}
REPEATED = {
    "/v1/completions": IDS,
    "/v1/responses": METADATA,
}


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


ECHO = {"prompt": [1] * 30_000, "echo": True, "stream": True, "max_tokens": 2}
SCORES = {"input": "Hi", "top_logprobs": 20, "stream": True}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
ORIGINS = HI | {"stream": True, "localspec": {"origins": True}}
STREAMS = {
    "echo": ("/v1/completions", ECHO, 4),
    "ids": ("/v1/completions", IDS | {"stream": True}, 4),
    "end": ("/v1/responses", SCORES, 600),
    "call": ("/v1/responses", SCORES | {"tools": [TOOL]}, 600),
    "request": ("/v1/responses", METADATA | {"stream": True}, 4),
    "origins": ("/v1/messages", ORIGINS, 5000),
}


@pytest.fixture
def parts(monkeypatch):
    """The parts of streams."""
    found, put = [], streamed._Unread.put

    def noted(unread, part):
        found.append(part)
        put(unread, part)

    monkeypatch.setattr(streamed._Unread, "put", noted)
    return found


@pytest.fixture
def large_events(monkeypatch):
    """The threads in which events of 8 KB and more were written."""
    found, dumps = [], sse.dumps_in_steps

    def noted(value):
        written = dumps(value)
        if len(written) > 1 << 13:
            found.append(threading.current_thread())
        return written

    monkeypatch.setattr(sse, "dumps_in_steps", noted)
    return found


@pytest.mark.parametrize("kind", STREAMS)
async def test_the_loop_writes_no_large_part_of_a_stream(world, parts, large_events, kind):
    path, body, words = STREAMS[kind]
    world.words = ("w ",) * words
    if kind == "call":
        world.form, world.words = ReplyFormat(tools="hermes"), (*world.words, CALL, " x", " x")
    answer = await world.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert large_events
    assert threading.current_thread() not in large_events
    assert b"".join(parts) == answer.content
    largest = max(len(event) for event in answer.content.split(b"\n\n"))
    assert max(map(len, parts)) <= bodies.LARGE + largest + 2


@pytest.mark.parametrize("form", [ReplyFormat(), ReplyFormat(tools="hermes")])
async def test_only_the_end_of_an_item_waits_for_large_answers_of_others(world, monkeypatch, form):
    """What comes token by token is small, whatever came before it."""
    elsewhere, dumps = [], sse.dumps_in_steps

    def noted(value):
        if threading.current_thread() is not threading.main_thread():
            elsewhere.append(value["type"])
        return dumps(value)

    monkeypatch.setattr(sse, "dumps_in_steps", noted)
    world.form, world.words = form, ("w <",) * 100
    answer = await world.client.post("/v1/responses", json=SCORES | {"tools": [TOOL]})
    assert answer.text.count("event: response.output_text.delta") > 40
    assert "response.completed" in elsewhere
    # With the end comes what might have begun a call.
    assert elsewhere.count("response.output_text.delta") <= 1


async def test_a_part_of_a_stream_is_refused_at_once_or_not_at_all(world, parts, monkeypatch):
    """The prompt and its progress, which are written one after the other."""
    reads, write = asyncio.Event(), streamed._Body.write

    async def slow(body, part):
        await reads.wait()
        await write(body, part)

    monkeypatch.setattr(streamed._Body, "write", slow)
    world.hold, world.hold_at = asyncio.Event(), 1
    budget, full = world.app._app._app._app, Limits().answers_bytes
    budget.answering = full
    progress = ECHO | {"return_progress": True}
    asked = asyncio.create_task(world.client.post("/v1/completions", json=progress))
    await until_so(lambda: asked.done() or len(parts) == 2)
    assert len(parts[0]) > bodies.LARGE
    reads.set()
    await until_so(lambda: asked.done() or budget.answering == full)
    world.hold.set()
    assert b"read_too_slowly" not in (await asked).content


def test_the_loop_writes_in_one_step_what_it_has_to_write(monkeypatch):
    steps = []
    monkeypatch.setattr(sse, "_steps", steps.append)

    async def written():
        return dumps_in_steps(LARGE["names"])

    assert asyncio.run(written()) == dumps(LARGE["names"])
    assert not steps


async def test_the_end_of_an_ordinary_stream_waits_for_no_large_answer(world, large_events):
    world.words = ("w ",) * 600
    assert (await world.client.post("/v1/messages", json=ORIGINS)).status_code == 200
    assert {*large_events} == {threading.current_thread()}


async def test_a_stream_that_fails_repeats_no_logprobs(world):
    """What it has said may be large, and there may be no memory for more."""
    world.words, world.error, world.error_at = ("w ",) * 400, EngineError("it fell"), 150
    answer = await world.client.post("/v1/responses", json=SCORES)
    last = answer.text.strip().rpartition("\n\n")[2]
    assert last.startswith("event: response.failed\n")
    (item,) = json.loads(last.partition("data: ")[2])["response"]["output"]
    (part,) = item["content"]
    assert part["text"].startswith("w w ")
    assert part["logprobs"] == []


KEPT = {
    "/v1/completions": {"prompt": "Hi", "max_tokens": 400, "logprobs": 20},
    "/v1/responses": SCORES,
    "/api/chat": {
        "messages": HI["messages"],
        "logprobs": True,
        "top_logprobs": 20,
        "stream": False,
    },
}


@pytest.mark.parametrize("path", KEPT)
async def test_an_answer_that_grows_too_large_is_refused_on_the_way(make_world, path):
    world = await make_world(limits=Limits(answers_bytes=1 << 20))
    world.words, world.hold, world.hold_at = ("w ",) * 400, asyncio.Event(), 190
    answer = await world.client.post(path, json=KEPT[path])
    assert "the answer takes 1 MB, and 1 MB is the most" in answer.text
    assert answer.status_code == (200 if KEPT[path].get("stream") else 413)
    assert world.engines[0].interrupted == [1]
    assert world.app._app._app._app.answering == 0


@pytest.mark.parametrize("path", [path for path in WHOLE if path != CHAT])
async def test_replies_without_logprobs_are_answered_where_others_fill_the_memory(world, path):
    world.words = ("w ",) * 600
    world.app._app._app._app.answering = Limits().answers_bytes
    assert (await world.client.post(path, json=WHOLE[path])).status_code == 200


def test_what_is_given_back_is_never_refused():
    budget = BodyBudget(Response(), most=1 << 20, answers=1 << 20)
    share = Share(budget)
    share.keep(1 << 19)
    budget.answering += 2 << 20  # a part of a stream, which is not refused
    share.keep(0)
    assert budget.answering == 2 << 20


async def test_of_an_answer_that_is_made_its_bytes_alone_are_counted(make_world):
    world = await make_world(limits=Limits(answers_bytes=1_800_000))
    world.words = ("w ",) * 400
    answer = await world.client.post(CHAT, json=WHOLE[CHAT])
    assert answer.status_code == 200, answer.text
    assert 1_600_000 + len(answer.content) > 1_800_000  # the events, and what was made of them


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
