"""Large bodies: read in a thread, in one pass over each text; what they hold is counted."""

import asyncio
import json
import threading

import pytest

from localspec.core import codec
from localspec.core.emitted import Origin, TokenLogprob, TokenLogprobs
from localspec.core.events import Finished, Message, MessageCall, Reply, Speculation, Stats, Token
from localspec.core.json_text import MOST_DEPTH
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_parts import WholeReply
from localspec.grammar.reply_reader import ReplyReader
from localspec.models.catalog import links
from localspec.serve.backend import answering, service
from localspec.serve.backend.answering import require_room
from localspec.serve.http import bodies, wording
from localspec.serve.http.bodies import LARGE, elsewhere
from localspec.serve.http.body_budget import Caller
from localspec.serve.http.errors import ApiError
from localspec.serve.http.json_body import parse, parse_value
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import read
from localspec.serve.requests import anthropic
from localspec.serve.requests.anthropic import CountBody
from localspec.serve.requests.chat import ConversationBody
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.requests.responses import ResponsesBody
from localspec.serve.routes import adapters
from localspec.serve.routes.response_items import ResponseItems

PADDED = {"padding": "a" * LARGE}
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
ROUTES = {
    "/v1/chat/completions": HI,
    "/v1/completions": {"prompt": "Hi"},
    "/v1/messages": HI,
    "/v1/messages/count_tokens": HI,
    "/v1/responses": {"input": "Hi"},
    "/tokenize": {"content": "Hi"},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": HI,
}
MANY = 400_000
"""Of what would take minutes, were each read with all before it."""
PLACE = TokenLogprobs(TokenLogprob(1, "w ", -0.5), ())
STATS = Stats(1, 0, 0, 1, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, Speculation("on"))


@pytest.fixture
def readers(monkeypatch):
    """The threads in which bodies were read."""
    found = []

    def noted(raw):
        found.append(threading.current_thread())
        return parse(raw)

    monkeypatch.setattr(bodies, "parse", noted)
    return found


@pytest.mark.parametrize("path", ROUTES)
async def test_the_loop_reads_no_large_body(world, readers, path):
    for body in (ROUTES[path], ROUTES[path] | PADDED):
        assert (await world.client.post(path, json=body)).status_code == 200
    small, large = readers
    assert small is threading.current_thread()
    assert large is not small


@pytest.mark.parametrize("path", ["/localspec/reply", "/localspec/examine"])
async def test_nor_one_of_our_own_protocol(world, readers, path):
    await world.client.post(path, json=PADDED)
    assert readers[0] is not threading.current_thread()


async def test_nor_a_list_of_adapters(world, monkeypatch):
    found = []

    def noted(raw):
        found.append(threading.current_thread())
        return parse_value(raw)

    monkeypatch.setattr(adapters, "parse_value", noted)
    for raw in (b"[]", b"[]" + b" " * LARGE):
        assert (await world.client.post(adapters.PATH, content=raw)).status_code == 200
    small, large = found
    assert small is threading.current_thread()
    assert large is not small


async def test_others_are_served_while_a_large_body_is_read(world):
    go_on = threading.Event()
    reading = asyncio.create_task(elsewhere(Caller(), LARGE + 1, go_on.wait))
    assert (await world.client.post("/v1/chat/completions", json=HI)).status_code == 200
    assert not reading.done()
    go_on.set()
    assert await reading


async def test_what_is_wrong_in_a_large_body_is_refused_as_ever(world):
    body = HI | PADDED | {"temperature": "hot"}
    answer = await world.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "temperature" in answer.json()["error"]["message"]
    broken = json.dumps(HI | PADDED)[:-1]
    answer = await world.client.post("/v1/chat/completions", content=broken)
    assert "not valid JSON" in answer.json()["error"]["message"]


@pytest.mark.parametrize("depth", [MOST_DEPTH, 500, 100_000])
async def test_a_body_that_is_nested_deeper_than_templates_can_write_is_refused(world, depth):
    tool = {"type": "function", "function": {"name": "f", "hint": "HERE"}}
    body = json.dumps(HI | {"tools": [tool]})
    nested = body.replace('"HERE"', '{"a":' * depth + "0" + "}" * depth)
    answer = await world.client.post("/v1/chat/completions", content=nested)
    assert answer.status_code == 400
    assert f"nested too deep: {MOST_DEPTH} arrays" in answer.json()["error"]["message"]
    found = await world.client.post("/v1/chat/completions", content=body)
    assert found.status_code == 200


async def test_a_field_of_an_answer_has_no_endless_path(world):
    body = {"input_prefix": "a", "input_suffix": "b", "response_fields": ["/" * 1000]}
    answer = await world.client.post("/infill", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_fields[0]"


@pytest.mark.parametrize("name", ["hf.co/" + "a/" * MANY, "a" * 300 + "/b", "a/" * 2500])
async def test_a_name_that_no_model_can_have_is_not_looked_for(world, monkeypatch, name):
    monkeypatch.setattr(links, "_link", None)  # it takes seconds for megabytes
    answer = await world.client.post("/v1/chat/completions", json=HI | {"model": name})
    assert answer.status_code == 404
    assert len(answer.text) < 1000


async def test_the_arguments_of_calls_are_a_part_of_a_prompt(world):
    await world.client.post("/v1/chat/completions", json=HI)  # the context is known
    arguments = json.dumps({"a": "b" * 64 * 512})
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    turns = [{"role": "assistant", "content": None, "tool_calls": [call]}, *HI["messages"]]
    answer = await world.client.post("/v1/chat/completions", json={"messages": turns})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


LONG = "n" * 129
CALLED = {"id": "1", "function": {"name": LONG, "arguments": {}}}
USED = {"type": "tool_use", "id": "1", "name": LONG, "input": {}}
NAMED = {
    "/v1/chat/completions": [{"role": "assistant", "content": "", "tool_calls": [CALLED]}],
    "/v1/messages": [{"role": "assistant", "content": [USED]}],
    "/api/chat": [{"role": "assistant", "tool_calls": [CALLED]}],
}


@pytest.mark.parametrize("path", NAMED)
async def test_a_call_has_a_name_that_a_tool_may_have_and_no_endless_id(world, path):
    """Each result with the id of a call is given its name."""
    answer = await world.client.post(path, json=HI | {"messages": NAMED[path]})
    assert answer.status_code == 400
    assert "has 129 characters; 128 is the most" in answer.text
    turn = json.dumps(NAMED[path]).replace(LONG, "n").replace('"1"', f'"{"1" * 5000}"')
    answer = await world.client.post(path, json=HI | {"messages": json.loads(turn)})
    assert "has 5000 characters; 4096 is the most" in answer.text


async def test_nor_has_an_item_of_a_response(world):
    items = {
        "function_call": {"name": LONG},
        "function_call_output": {"output": "", "call_id": "1" * 5000},
    }
    for kind, fields in items.items():
        answer = await world.client.post("/v1/responses", json={"input": [{"type": kind} | fields]})
        assert answer.status_code == 400
        assert "is the most" in answer.text


def test_all_texts_of_a_request_count():
    calls = (MessageCall("i" * 1000, "n" * 100, '{"a": 1}'),)
    turns = (
        Message("assistant", "", calls=calls),
        Message("tool", "", call_id="i" * 1000, name="n" * 100),
    )
    request = ReplyRequest(turns)
    assert request.written == 2208
    assert ReplyRequest(turns, owner="o" * 50).size == 2258
    with pytest.raises(ApiError, match="2000 characters in ids of calls"):
        require_room(request, 2000 // 64)
    require_room(request, 1 + 2000 // 64)  # ids leave the room to texts
    named = Message("tool", "", name="n" * 208)
    with pytest.raises(ApiError, match="208 characters"):
        require_room(ReplyRequest((named,)), 207 // 64)


def test_what_a_request_consists_of_is_counted(monkeypatch):
    """Each part takes microseconds of the loop on its way to the engine."""
    calls = Message("assistant", "", calls=(MessageCall("", "a", "{}"),) * 9)
    require_room(ReplyRequest((calls,)), 9)  # a prompt that is too long may be cut
    shown = Message("tool", "", pictures=(Picture(b"a"),) * 1025)
    with pytest.raises(ApiError, match="at most 1024 pictures, and this one has 1025"):
        require_room(ReplyRequest((shown,)), 1 << 20)
    monkeypatch.setattr(answering, "_MOST_TURNS", 9)
    with pytest.raises(ApiError, match="at most 9 messages and calls, and this one has 10"):
        require_room(ReplyRequest((calls,)), 1 << 20)


async def test_so_are_tokens_against_the_context_or_what_is_split(world):
    await world.slots.load()
    for path, body, said in (
        ("/localspec/examine", {"request": {"prompt": "Hi"}, "tokens": [5] * 513}, "at most 512"),
        (
            "/localspec/examine",
            {"request": {"prompt_tokens": [5] * 513}, "tokens": [5]},
            "513 tokens, which exceeds the available context size: at most 512",
        ),
        ("/detokenize", {"tokens": [5] * 32769}, "what is split into tokens: at most 32768"),
    ):
        answer = await world.client.post(path, json=body)
        assert answer.status_code == 400
        assert said in answer.json()["error"]["message"]
        assert answer.json()["error"]["code"] == "context_length_exceeded"


async def test_a_salt_is_no_longer_than_a_digest_in_the_engine(world):
    for salt in ("a" * 1000, "b"):
        await world.client.post("/v1/chat/completions", json=HI | {"cache_salt": salt})
    raw = codec.encode(ReplyRequest(prompt="Hi", owner="c" * 5000), sparse=True)
    assert (await world.client.post("/localspec/reply", json=raw)).status_code == 200
    owners = {request.owner for request in world.requests}
    assert len(owners) == 3
    assert max(map(len, owners)) < 200
    answer = await world.client.post("/v1/chat/completions", json=HI | {"cache_salt": "a" * 1025})
    assert answer.json()["error"]["param"] == "cache_salt"


async def test_countless_unknown_fields_are_told_of_as_few_are(world):
    world.service.tell_unknown("/v1/completions", [f"u{i}" for i in range(4 * MANY)])
    (told,) = world.notices
    assert told.endswith(f"'u7' and {4 * MANY - 8} more in /v1/completions have no effect")


COSTLY = {
    "names": ("{" + ",".join(f'"{i}":""' for i in range(150_000)) + "}", 413, "with a name"),
    "fractions": ("[" + "1e-300," * 70_000 + "0]", 413, "not whole"),
    "a long whole number": ("9" * 401, 400, "a number in the body has 401 characters"),
    "beyond floating point": ("[1.5, -1e400]", 400, "beyond floating point: -1e400"),
    "a long fraction": ("0." + "7" * 700, 400, "a number in the body has 702 characters"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_what_takes_long_in_one_step_is_refused(kind):
    """The interpreter reads a body in one call, in which no other thread has its turn."""
    value, status, said = COSTLY[kind]
    with pytest.raises(ApiError, match=said) as refused:
        parse(f'{{"x": {value}}}'.encode())
    assert refused.value.status == status


def test_what_looks_alike_is_read():
    text = "12:30, {[\\n" * MANY
    numbers = [1] * MANY + [0.25] * 60_000 + [10**399]
    assert parse(json.dumps({"text": text, "x": numbers}).encode()) == {"text": text, "x": numbers}


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00\\ud83d", "\\ud83d\\ud83d\\ude00", "\\uDE00"])
def test_half_a_character_is_refused(half):
    whole = rb'{"x": "\ud83d\uDE00 \\ud83d \n\ufffd"}'
    assert parse(whole) == {"x": "\N{GRINNING FACE} \\ud83d \n\ufffd"}
    with pytest.raises(ApiError, match="not valid Unicode"):
        parse(whole.replace(b"ufffd", b"n" + half.encode()))


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/localspec/reply"])
async def test_no_reply_is_made_for_what_its_answer_cannot_repeat(world, path):
    body = json.dumps(ROUTES.get(path, {"prompt": "Hi"}) | {"metadata": {"a": 5}})
    answer = await world.client.post(path, content=body.replace("5", "1e400"))
    assert answer.status_code == 400
    assert "beyond floating point" in answer.json()["error"]["message"]
    assert world.requests == []


MANY_TOKENS = 100_000
LONG_REPLY = [
    *[Token(1, "w ", Origin.PLAIN, None, PLACE)] * MANY_TOKENS,
    Finished(Reply("w " * MANY_TOKENS, (), (), "stop", STATS, 1)),
]


def test_a_long_reply_is_put_together_once():
    assert WholeReply.of(ReplyReader(()).parts(LONG_REPLY)).content == "w " * MANY_TOKENS
    items = ResponseItems(ReplyReader(()), logprobs=True)
    (*_, delta) = items.feed(LONG_REPLY)
    items.finish(complete=True)
    assert delta["delta"] == "w " * MANY_TOKENS
    assert len(delta["logprobs"]) == MANY_TOKENS
    assert items.items[0].text == "w " * MANY_TOKENS


async def test_of_many_choices_one_is_checked_and_others_are_served_between_them(
    world, monkeypatch
):
    checked, turns, begun = [], [0], []

    async def other_client():
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(service, "require_room", lambda request, _: checked.append(request))
    sizes = ReplyRequest.size
    measured = []
    monkeypatch.setattr(
        ReplyRequest, "size", property(lambda one: measured.append(one) or sizes.fget(one))
    )
    await world.slots.load()
    reply = world.engines[0].reply
    monkeypatch.setattr(world.engines[0], "reply", lambda r: begun.append(turns[0]) or reply(r))
    other = asyncio.create_task(other_client())
    for path, count in (("/v1/chat/completions", 1), ("/v1/completions", 2)):
        asked = {"prompt": ["Hi", "Ho"], "max_tokens": 9} if count == 2 else HI
        answer = await world.client.post(path, json=asked | {"n": 8, "seed": 5})
        assert len(answer.json()["choices"]) == 8 * count
        assert len(checked) == count
        assert len(measured) <= 2 * count
        assert len(set(begun)) == len(begun) == 8 * count
        assert sorted(request.seed for request in world.requests) == sorted([*range(5, 13)] * count)
        for found in (checked, measured, begun, world.requests):
            found.clear()
    other.cancel()


class Looked:
    """A pattern, or the module of them, that notes how much text it is asked about."""

    def __init__(self, patterns, seen):
        self._patterns, self._seen = patterns, seen

    def fullmatch(self, *asked):
        text, begin = (asked[1], 0) if isinstance(asked[1], str) else asked
        self._seen.append(len(text) - begin)
        return self._patterns.fullmatch(*asked)

    def __getattr__(self, name):
        return getattr(self._patterns, name)


def test_of_an_endless_wrong_value_the_beginning_is_looked_at(monkeypatch):
    seen = []
    for name in ("re", "_AT"):
        monkeypatch.setattr(wording, name, Looked(getattr(wording, name), seen))
    said = {"role": "x` - at `$.content`" * MANY, "content": "Hi"}
    with pytest.raises(ApiError, match=r"messages\[0\].role must be one of system") as refused:
        read(ConversationBody, {"messages": [said]})
    assert len(str(refused.value)) < 200
    assert seen
    assert max(seen) <= 201


def test_lines_that_change_are_left_out_of_a_prompt_whatever_their_number():
    text = "\n x-anthropic-billing: 1;\nx-anthropic-b" * MANY + "\n\n  You are\nx-anthropic-c"
    assert anthropic._steady(text) == "\n  You are\nx-anthropic-c"
    assert anthropic._steady("  You are") == "  You are"
    assert anthropic._steady("x-anthropic-only") == ""


def test_turns_of_countless_messages_are_put_together_once():
    said = [{"role": "user", "content": "a" * 100}] * MANY
    said += [{"role": "assistant", "content": "b"}, {"role": "assistant", "content": ""}]
    user, assistant = read(CountBody, {"messages": said}).prompt_fields(OfferedTools())["messages"]
    assert user.content == "\n".join(["a" * 100] * MANY)
    assert assistant.content == "b"


@pytest.mark.slow
def test_items_of_a_turn_are_put_together_once():
    items = [{"type": "reasoning", "summary": [{"text": "a" * 100}]}] * MANY
    items += [{"role": "assistant", "content": text} for text in ("b", "", "c")]
    items += [{"type": "function_call", "name": "f", "arguments": "{}"}] * 2
    items += [{"type": "function_call_output", "output": "d"}]
    first, second, result = (
        read(ResponsesBody, ResponsesBody.completed({"input": items}))
        .reply(OfferedTools(), ServeSettings())
        .messages
    )
    assert (len(first.reasoning), first.content, first.calls) == (100 * MANY, "b", ())
    assert (second.content, len(second.calls)) == ("c", 2)
    assert (result.role, result.content) == ("tool", "d")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/localspec/reply", {"sampling": {"logit_bias": [[5, 0.5]] * 8193}}, "8193 tokens"),
        ("/localspec/reply", {"stop": ["a"] * 65}, "65 stop texts"),
        ("/v1/messages", {"stop": ["a"] * 64, "stop_sequences": ["b"] * 64}, "128 stop texts"),
    ],
)
async def test_what_costs_others_time_has_the_same_limits_at_all_paths(world, path, body, said):
    answer = await world.client.post(path, json=HI | {"max_tokens": 4} | body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert not world.requests
