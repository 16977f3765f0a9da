"""The client of OpenAI-compatible servers against a server that plays answers and faults."""

import asyncio
import base64
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for played_server

from played_server import (
    DONE,
    HANG,
    RESET,
    STREAM,
    PlayedServer,
    ended,
    event,
    http,
    models,
    said,
)
from replies import STATS
from waiting import turn, until_so

from localspec.core.emitted import Origin
from localspec.core.errors import (
    AccessError,
    Interrupted,
    MediaError,
    ModelNotFoundError,
    RemoteError,
    UsageError,
)
from localspec.core.events import Finished, Message, Notice, Reply, Round, Token
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.remote import keys, openai_reply, scores
from localspec.remote.address import parse
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient
from localspec.remote.connection import Patience
from localspec.remote.keys import Key
from localspec.remote.reply import RemoteReply

CHAT = "/v1/chat/completions"
HURRIED = Patience(connect=5, question=5, first=20, later=20, attempts=3, pause=0.001)
HI = ReplyRequest(messages=(Message("user", "Hi"),), seed=1)
PNG = b"\x89PNG\r\n\x1a\n"
PNG64 = base64.b64encode(PNG).decode()
HELLO = [STREAM, said("Hel"), said("lo"), ended(), DONE]


def client(server, key=None, model=None, patience=HURRIED):
    return RemoteClient(parse(server.url), Key(key), model=model, patience=patience)


async def collect(reply):
    return [one async for one in reply]


async def answered(routes, request=HI, **more):
    """The events of a reply, and the server."""
    async with PlayedServer({"/v1/models": models("m")} | routes) as server:
        engine = client(server, **more)
        await engine.open()
        try:
            return await collect(engine.reply(request)), server
        finally:
            await engine.close()


async def failed(routes, kind=RemoteError, **more):
    """The events before a reply failed, its error, and the server."""
    got = []
    async with PlayedServer({"/v1/models": models("m")} | routes) as server:
        engine = client(server, **more)
        with pytest.raises(kind) as failure:
            await _ask(engine, got)
        await engine.close()
        assert "\n" not in str(failure.value)
        assert len(str(failure.value)) < 500
        return got, str(failure.value), server


async def _ask(engine, got):
    await engine.open()
    async for one in engine.reply(HI):
        got.append(one)


def text_of(events):
    return "".join(one.text for one in events if isinstance(one, Token))


async def test_a_reply_is_streamed_and_finished():
    events, server = await answered({CHAT: HELLO})
    assert text_of(events) == "Hello"
    assert isinstance(events[-1], Finished)
    assert events[-1].reply.text == "Hello"
    assert events[-1].reply.finish_reason == "stop"
    body = server.asked_for(CHAT)[0].json
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert (body["stream"], body["seed"], body["model"]) == (True, 1, "m")


def sent(*pictures, text="", role="user"):
    """The parts of a message with pictures."""
    (found,) = openai_reply.message_parts((Message(role, text, pictures=pictures),))
    return [
        one.get("text") or one.get("image_url", one.get("input_audio")) for one in found["content"]
    ]


async def test_pictures_are_sent_in_the_order_of_the_text(tmp_path):
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8\xffb")
    one, two = Picture(PNG, at=7), Picture(path=str(tmp_path / "b.jpg"), at=12)
    asked = Message("user", "before\n\nand \nafter", pictures=(one, two))
    request = ReplyRequest(messages=(Message("system", "S"), asked), seed=1)
    _, server = await answered({CHAT: HELLO}, request)
    system, user = server.asked_for(CHAT)[0].json["messages"]
    assert system == {"role": "system", "content": "S"}
    jpeg = base64.b64encode(b"\xff\xd8\xffb").decode()
    assert user["content"] == [
        {"type": "text", "text": "before"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}"}},
        {"type": "text", "text": "and "},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}},
        {"type": "text", "text": "after"},
    ]


def test_every_kind_of_picture_and_sound_is_named():
    wave = b"RIFF\0\0\0\0WAVE"
    for begins, kind in ((b"GIF89a", "gif"), (b"BM", "bmp"), (b"RIFF\0\0\0\0WEBP", "webp")):
        (found,) = sent(Picture(begins))
        assert found["url"].startswith(f"data:image/{kind};base64,")
    for begins, kind in ((wave, "wav"), (b"fLaC", "flac"), (b"ID3", "mp3"), (b"OggS", "ogg")):
        assert sent(Picture(begins)) == [
            {"data": base64.b64encode(begins).decode(), "format": kind}
        ]


def test_what_cannot_be_sent_is_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(MediaError, match=r"a\.svg is of no known kind"):
        sent(Picture(b"<svg>", name="a.svg"))
    with pytest.raises(MediaError, match=r"gone\.png cannot be read"):
        sent(Picture(path=str(tmp_path / "gone.png")))
    monkeypatch.setattr(openai_reply, "MOST_BYTES", 2 * len(PNG))
    assert len(sent(*[Picture(PNG)] * 2)) == 2
    with pytest.raises(MediaError, match="together, which is the most"):
        sent(*[Picture(PNG)] * 3)


async def test_a_server_that_sees_nothing_says_so():
    said = {"error": {"message": "m is not a multimodal model"}}
    request = ReplyRequest(messages=(Message("user", "", pictures=(Picture(PNG),)),))
    with pytest.raises(UsageError, match="m is not a multimodal model"):
        await answered({CHAT: http(400, said)}, request)


async def test_a_server_that_tells_nothing_has_unknown_origins_and_speculation():
    events, _ = await answered({CHAT: HELLO})
    assert {one.origin for one in events if isinstance(one, Token)} == {Origin.UNKNOWN}
    stats = events[-1].reply.stats
    assert stats.speculation.state == "unknown"
    assert (stats.rounds, stats.drafted, stats.emitted) == (0, 0, 2)


def timed(text, n, drafted=0, accepted=0):
    """An event of llama-server with timings_per_token."""
    timings = {"cache_n": 3, "prompt_n": 2, "prompt_ms": 4.0, "predicted_n": n}
    timings |= {"predicted_ms": 10.0 * n}
    if drafted:
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    return said(text, timings=timings)


async def test_llama_servers_counts_colour_each_token():
    """A plain token, a round of three that fails at its third, and one that is accepted whole."""
    stream = [
        *(STREAM, timed("a", 1)),
        *(timed("b", 2, 3, 2), timed("c", 3, 3, 2), timed("d", 4, 3, 2)),
        *(timed("e", 5, 5, 4), timed("f", 6, 5, 4), timed("g", 7, 5, 4)),
        *(ended(), DONE),
    ]
    routes = {CHAT: stream, "/v1/models": models("m", owner="llamacpp")}
    events, server = await answered(routes)
    origins = [one.origin.value for one in events if isinstance(one, Token)]
    accepted, bonus, corrected = "accepted", "bonus", "corrected"
    assert origins == ["plain", *[accepted] * 2, corrected, *[accepted] * 2, bonus]
    rounds = [(r.drafted, r.accepted, r.emitted) for r in events if isinstance(r, Round)]
    assert rounds == [(0, 0, 1), (3, 2, 3), (2, 2, 3)]
    stats = events[-1].reply.stats
    assert (stats.rounds, stats.drafted, stats.verified, stats.accepted) == (3, 5, 5, 4)
    assert (stats.prompt_tokens, stats.cached_tokens, stats.emitted) == (5, 3, 7)
    assert stats.speculation.state == "on"
    assert server.asked_for(CHAT)[0].json["timings_per_token"] is True


async def test_vllms_figures_of_the_reply_are_those_of_its_last_event():
    """The shape of vLLM's documentation; drafts of one length tell which tokens were verified."""
    metrics = {
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": {"0": 1, "1": 0, "2": 0, "3": 1},
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 3,
        "num_draft_tokens": 6,
        "num_spec_tokens": 3,
    }
    figures = {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 6},
        "metrics": {"speculative_decoding": metrics},
    }
    token = {"index": 0, "delta": {"content": "ab"}, "finish_reason": None, "token_ids": [5, 6]}
    stream = [STREAM, event({"choices": [token]}), ended("length"), event(figures), DONE]
    routes = {CHAT: stream, "/v1/models": models("m", owner="vllm", max_model_len=4096)}
    events, _ = await answered(routes)
    reply = events[-1].reply
    assert reply.tokens == (5, 6)
    assert reply.finish_reason == "length"
    stats = reply.stats
    assert (stats.drafted, stats.accepted, stats.verified, stats.rounds) == (6, 3, 4, 3)
    assert stats.per_position == (0.5, 1.0, 1.0)


def vllm_counters(requests, drafts, drafted, accepted, running=0):
    text = (
        "# HELP vllm:spec_decode_num_drafts_total x\n"
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}.0\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}.0\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}.0\n'
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0\n'
        f'vllm:request_success_total{{finished_reason="stop",model_name="m"}} {requests}.0\n'
    )
    return http(200, text.encode(), "text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (vllm_counters(8, 24, 100, 60), (20, 12)),
        (vllm_counters(9, 24, 100, 60), (0, 0)),
        (vllm_counters(8, 24, 100, 60, running=1), (0, 0)),
    ],
    ids=["alone", "another request ended", "another one runs"],
)
async def test_vllms_counters_tell_of_a_reply_only_if_no_other_was_made(after, expected):
    before = vllm_counters(7, 20, 80, 48)
    routes = {
        "/v1/models": models("m", owner="vllm"),
        "/metrics": (before, before, after),
        CHAT: [*HELLO[:-1], event({"choices": [], "usage": {"completion_tokens": 30}}), DONE],
    }
    events, _ = await answered(routes)
    stats = events[-1].reply.stats
    assert (stats.drafted, stats.accepted) == expected
    assert stats.speculation.state == ("on" if stats.drafted else "unknown")


async def test_sglangs_meta_info_is_read():
    meta = {"spec_verify_ct": 4, "spec_accept_token_num": 6, "spec_draft_token_num": 12}
    stream = [STREAM, said("x"), ended(meta_info=meta), DONE]
    info = http(200, {"speculative_algorithm": "EAGLE", "tp_size": 1})
    usage = event({"choices": [], "usage": {"completion_tokens": 10, "prompt_tokens": 4}})
    stream.insert(-1, usage)
    routes = {CHAT: stream, "/v1/models": models("m", owner="sglang"), "/server_info": info}
    events, _ = await answered(routes)
    stats = events[-1].reply.stats
    assert (stats.drafted, stats.accepted, stats.verified) == (12, 6, 0)


async def test_thinking_that_comes_apart_is_put_in_its_marks():
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    events, _ = await answered({CHAT: [STREAM, event(thought), said("Yes"), ended(), DONE]})
    assert events[-1].reply.text == "<think>\nhm\n</think>\n\nYes"


async def test_a_reply_without_a_stream_is_taken_whole():
    whole = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    events, _ = await answered({CHAT: http(200, whole)})
    assert events[-1].reply.text == "Hello"


async def test_comments_and_other_fields_are_no_text():
    stream = [STREAM, b": keep-alive\n\n", b"event: x\nid: 7\n", *HELLO[1:]]
    events, _ = await answered({CHAT: stream})
    assert events[-1].reply.text == "Hello"


async def test_an_interrupted_reply_keeps_its_text_and_leaves_the_server():
    async with PlayedServer({"/v1/models": models("m"), CHAT: [STREAM, said("Hel"), HANG]}) as s:
        engine = client(s)
        await engine.open()
        reply = engine.reply(HI)
        got = [await anext(reply)]
        reply.interrupt()
        got += await collect(reply)
        assert got[-1].reply.text == "Hel"
        assert got[-1].reply.finish_reason == "interrupt"
        await s.left.wait()
        await engine.close()


async def test_a_reply_interrupted_before_it_was_sent_ends_too():
    async with PlayedServer({"/v1/models": models("m"), CHAT: [HANG]}) as server:
        engine = client(server)
        await engine.open()
        reply = engine.reply(HI)
        reply.interrupt()
        (last,) = await collect(reply)
        assert last.reply.finish_reason == "interrupt"
        await engine.close()


async def test_a_whole_reply_stays_one_when_it_is_interrupted_while_its_connection_closes():
    closing = asyncio.Event()

    class Whole:
        async def events(self, waiting):
            yield Finished(Reply("all", (), (), "stop", STATS, 1))
            await closing.wait()

        def interrupted(self):
            return Finished(Reply("all", (), (), "interrupt", STATS, 1))

    reply = RemoteReply(Whole())
    await until_so(lambda: reply._events, pause=turn)
    reply.interrupt()
    await asyncio.wait([reply._task])
    await turn(0)
    assert [one.reply.finish_reason for one in await collect(reply)] == ["stop"]


BROKEN = [
    ([STREAM, said("Hel")], "broke the reply off in the middle; what had arrived is kept"),
    ([STREAM, said("Hel"), RESET], "broke"),
    ([STREAM, said("Hel"), event(b"{oops")], "sent something that is not part of a reply: '{oops'"),
    ([STREAM, said("Hel"), event(b"[1]")], "that is not part of a reply"),
    ([STREAM, said("Hel"), event(b'{"choices": [7]}')], "that is not part of a reply"),
    (
        [STREAM, said("Hel"), event({"error": {"message": "no\x1b[2J memory"}})],
        "no\ufffd[2J memory",
    ),
    ([STREAM, said("Hel"), b'error: {"message": "gone"}\n\n'], "gone"),
]


@pytest.mark.parametrize(("stream", "reason"), BROKEN, ids=range(len(BROKEN)))
async def test_a_reply_that_breaks_off_keeps_its_text_and_is_not_asked_for_again(stream, reason):
    got, error, server = await failed({CHAT: (stream, HELLO)})
    assert text_of(got) == "Hel"
    assert reason in error
    assert len(server.asked_for(CHAT)) == 1


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_a_reply_that_the_server_ended_is_not_whole(reason):
    """The ends that vLLM and SGLang tell of, in a stream and in one piece."""
    piece = {"message": {"content": "Hel"}, "finish_reason": reason}
    for answer in ([STREAM, said("Hel"), ended(reason), DONE], http(200, {"choices": [piece]})):
        got, error, _ = await failed({CHAT: answer})
        assert text_of(got) == "Hel"
        assert "broke the reply off in the middle; what had arrived is kept" in error


async def test_a_reply_that_a_filter_ended_is_told():
    events, _ = await answered({CHAT: [STREAM, said("Hel"), ended("content_filter"), DONE]})
    told = [event.text for event in events if isinstance(event, Notice)]
    assert told == ["a filter of the server ended this reply: it may not be whole"]
    assert events[-1].reply.finish_reason == "stop"


async def test_a_stream_may_begin_with_a_byte_order_mark():
    first = b"\xef\xbb\xbf" + said("Hel")
    events, _ = await answered({CHAT: [STREAM, first, said("lo"), ended(), DONE]})
    assert text_of(events) == "Hello"


async def test_a_line_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr("localspec.remote.lines.MAX_LINE", 1 << 16)
    got, error, _ = await failed({CHAT: [STREAM, said("Hel"), b"data: " + b"x" * (1 << 17), HANG]})
    assert text_of(got) == "Hel"
    assert "a line of more than" in error


REFUSED = [
    (
        http(401, {"error": {"message": "who"}}),
        AccessError,
        "requires a key (set LOCALSPEC_API_KEY",
    ),
    (http(403, {"detail": "not you"}), AccessError, "forbids this request (403): not you"),
    (http(404, {"detail": "Not Found"}), RemoteError, "it usually ends in /v1"),
    (http(404, {"error": {"message": "model m?"}}), ModelNotFoundError, "not have this model"),
    (http(400, {"error": {"message": "too long"}}), UsageError, "refuses this request (400): too"),
    (http(422, {"detail": [{"msg": "bad seed"}]}), UsageError, "bad seed"),
    (http(500, b"<html>x</html>", "text/html"), RemoteError, "failed (500)"),
    (http(307, Location="http://evil/v1"), RemoteError, "sends requests on to http://evil/v1"),
    (http(200, b"<html></html>", "text/html"), RemoteError, "answers with text/html, not with a"),
    (http(200, b"x", "text/event-stream", Content_Encoding="gzip"), RemoteError, "compressed"),
    (b"SSH-2.0-OpenSSH_9\r\n\r\n", RemoteError, "the connection to"),
]


@pytest.mark.parametrize(("answer", "kind", "reason"), REFUSED, ids=range(len(REFUSED)))
async def test_a_refusal_is_one_sentence(answer, kind, reason):
    got, error, server = await failed({CHAT: answer}, kind)
    assert reason in error
    assert not got
    assert len(server.asked_for(CHAT)) == 1


@pytest.mark.parametrize(
    "first",
    [http(429, {"error": "busy"}, Retry_After="0"), http(503, b"loading"), http(502, b""), None],
    ids=["429", "503", "502", "closed without an answer"],
)
async def test_a_request_that_was_not_answered_is_sent_again(first):
    events, server = await answered({CHAT: (first, HELLO)})
    assert events[-1].reply.text == "Hello"
    assert [one for one in events if isinstance(one, Notice)]
    assert len(server.asked_for(CHAT)) == 2


async def test_a_busy_server_is_given_up_in_the_end():
    got, error, server = await failed({CHAT: http(503, {"error": {"message": "full"}})})
    assert "cannot answer now (503): full" in error
    assert len(server.asked_for(CHAT)) == HURRIED.attempts
    assert all(isinstance(one, Notice) for one in got)


async def test_why_a_server_is_asked_again_is_said_once_for_each_cause():
    full, wait = http(503, {"error": {"message": "full"}}), http(429, b"", Retry_After="0")
    patience = Patience(connect=5, question=5, first=20, later=20, attempts=6, pause=0.001)
    events, _ = await answered({CHAT: (full, full, wait, wait, full, HELLO)}, patience=patience)
    said = [one.text.rpartition("; ")[2] for one in events if isinstance(one, Notice)]
    assert said == ["asking again for up to 1 s", "asking again in 0.0 s", "asking again in 0.0 s"]


async def test_nobody_waits_for_an_hour():
    _, error, server = await failed({CHAT: http(429, b"", Retry_After="3600")})
    assert "cannot answer now (429)" in error
    assert len(server.asked_for(CHAT)) == 1


async def test_a_server_that_never_answers_is_given_up():
    patience = Patience(first=0.05, later=0.05, attempts=1)
    for stream in ([HANG], [STREAM, HANG]):
        _, error, _ = await failed({CHAT: stream}, patience=patience)
        assert "is it still running?" in error
    _, error, _ = await failed({"/v1/models": [HANG]}, patience=Patience(question=0.05))
    assert "does not answer within" in error


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", *[b"x" * 999 + b"\n"] * 99],
        [STREAM, *[b"data:\n" * 1000] * 100],
    ],
    ids=["lines of JSON", "empty lines of an event"],
)
async def test_an_answer_without_end_is_given_up(monkeypatch, answer):
    monkeypatch.setattr("localspec.remote.lines.MAX_LINE", 1 << 16)
    got, error, _ = await failed({CHAT: [*answer, HANG]})
    assert got == []
    assert "of more than" in error


SECRET = "sk-very-secret-0123456789"
REPEATED = [
    http(200, f"key {SECRET} has expired".encode(), "text/plain"),
    http(200, b" " * 50 + f"key {SECRET} has expired".encode(), "text/plain"),  # cut in the key
    http(302, Location=f"https://login.example/?key={SECRET}"),
    http(200, b"{}", f"text/{SECRET}"),
    http(200, b"{}", "text/event-stream", Content_Encoding=SECRET),
    [STREAM, event(b"x" * 70 + SECRET.encode())],
    f"HTTP/1.1 {SECRET}\r\n\r\n".encode(),
]


@pytest.mark.parametrize("path", ["/v1/models", CHAT])
@pytest.mark.parametrize("answer", REPEATED, ids=range(len(REPEATED)))
async def test_a_key_that_a_server_repeats_is_not_shown(answer, path):
    _, error, _ = await failed({path: answer}, key=SECRET)
    assert SECRET[:8].lower() not in error.lower()


def test_an_answer_that_is_no_reply_does_not_show_the_key():
    engine = RemoteClient(parse("http://h.example"), Key(SECRET))
    error = scores._malformed(engine, {"x" * 60: SECRET})
    assert SECRET[:8] not in str(error)
    assert scores._logprob(-(10**400)) == scores._LOWEST


async def test_where_the_first_question_is_sent_on_to_is_told():
    moved = http(301, Location="https://h.example/v1/models")
    _, error, _ = await failed({"/v1/models": moved})
    assert "sends requests on to https://h.example/v1/models" in error
    _, error, _ = await failed({"/v1/models": http(301)})
    assert "does not say where to" in error


@pytest.mark.parametrize("password", ["se/cret", "se#cret", "se?cret", "se@cret", "secret"])
def test_a_password_in_an_address_is_refused_and_not_repeated(password):
    with pytest.raises(UsageError) as refused:
        parse(f"http://bob:{password}@host:8080/v1")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("[::1]", True),
        ("localhost", True),
        ("a.localhost", True),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.example", False),
        ("[::2]", False),
    ],
)
def test_only_this_machine_is_this_machine(monkeypatch, host, here):
    address = parse(f"http://{host}:80/v1")
    assert (address.loopback, address.encrypted) == (here, here)
    monkeypatch.delenv("LOCALSPEC_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert bool(keys.find(address)) is here


async def test_a_key_is_sent_and_never_shown():
    secret = "sk-very-secret-0123456789"
    echo = http(401, {"error": {"message": f"Incorrect API key provided: {secret}"}})
    _, error, server = await failed({CHAT: echo}, AccessError, key=secret)
    assert server.asked_for(CHAT)[0].headers["authorization"] == f"Bearer {secret}"
    assert secret not in error
    assert "the key is refused" in error
    assert secret not in repr(Key(secret))


async def test_the_one_model_is_used_and_others_are_offered():
    async with PlayedServer({"/v1/models": models("alpha", "beta")}) as server:
        with pytest.raises(UsageError, match="choose one with -m: alpha, beta"):
            await client(server).open()
        with pytest.raises(ModelNotFoundError, match="it has alpha"):
            await client(server, model="alpah").open()
        engine = client(server, model="beta")
        assert (await engine.open()).name == "beta"
        await engine.close()


async def test_of_several_models_of_localspec_serve_the_one_that_is_loaded_or_will_be_is_used():
    def listed(*loaded):
        own = {
            "on disk": {"loaded": False},
            "adapted": {"loaded": True},
            "embedder": {"loaded": True, "task": "embedding"},
            **{name: {"loaded": True} for name in loaded},
        }
        parent = {"adapted": "demo"}
        entries = [
            {"id": name, "owned_by": "localspec", "localspec": facts, "parent": parent.get(name)}
            for name, facts in own.items()
        ]
        return {"/v1/models": http(200, {"object": "list", "data": entries})}

    for loaded, used in ((("demo",), "demo"), ((), "on disk")):
        async with PlayedServer(listed(*loaded)) as server:
            engine = client(server)
            assert (await engine.open()).name == used
            await engine.close()
    async with PlayedServer(listed("demo", "other")) as server:
        engine = client(server)
        with pytest.raises(UsageError, match="choose one with -m: on disk, adapted"):
            await engine.open()
        await engine.close()


@pytest.mark.parametrize(
    "answer",
    [
        http(200, b"<html>", "text/html"),
        http(200, {"hello": 1}),
        http(200, b"[" * 100_000),
        http(200, b'{"data": NaN}'),
        http(200, b"x" * (5 << 20)),
    ],
    ids=["page", "other object", "deep", "NaN", "huge"],
)
async def test_what_is_no_such_server_is_named(answer):
    async with PlayedServer({"/v1/models": answer}) as server:
        with pytest.raises(RemoteError, match="http://127"):
            await client(server).open()


async def test_names_of_models_with_control_characters_are_left_out():
    async with PlayedServer({"/v1/models": models("a\x1b]0;x\x07", "good")}) as server:
        engine = client(server)
        assert (await engine.open()).name == "good"
        await engine.close()


async def test_connecting_waits_while_the_model_is_loaded_and_can_be_stopped(monkeypatch):
    monkeypatch.setattr("localspec.remote.client._LOADING_SECONDS", 0)
    loading = http(503, {"error": {"message": "Loading model"}})
    async with PlayedServer({"/v1/models": (loading, loading, models("m"))}) as server:
        seen = []
        engine = client(server)
        info = await engine.open(seen.append)
        await engine.close()
        assert info.name == "m"
        assert len(seen) == 2
    async with PlayedServer({"/v1/models": loading}) as server:
        engine = client(server)
        with pytest.raises(Interrupted):
            await engine.open(lambda _: engine._opening.cancel())


@pytest.mark.parametrize(
    "loading",
    [
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        {"error": {"message": "the model is being prepared", "code": "loading"}},
        {"error": "Model m is currently loading"},
    ],
)
async def test_a_server_that_says_that_it_loads_is_waited_for(monkeypatch, loading):
    monkeypatch.setattr("localspec.remote.client._LOADING_SECONDS", 0)
    more = [http(503, loading)] * (HURRIED.attempts + 1)
    async with PlayedServer({"/v1/models": (*more, models("m"))}) as server:
        engine = client(server)
        assert (await engine.open()).name == "m"
        await engine.close()


@pytest.mark.parametrize(
    "other",
    [
        http(503, b"<html><h1>503 Service Temporarily Unavailable, loading</h1>nginx</html>"),
        http(503, {"error": {"message": "no backend", "code": 503}}),
        http(503, b""),
        http(502, b"loading"),
    ],
    ids=["a web page", "another error", "nothing", "another status"],
)
async def test_a_proxy_without_its_server_is_given_up_after_some_attempts(other):
    async with PlayedServer({"/v1/models": other}) as server:
        engine = client(server)
        async with asyncio.timeout(60):
            with pytest.raises(RemoteError, match="cannot answer now"):
                await engine.open()
        assert len(server.asked_for("/v1/models")) == HURRIED.attempts
    async with PlayedServer({"/v1/models": (other, models("m"))}) as server:
        engine = client(server)
        assert (await engine.open()).name == "m"
        await engine.close()


async def test_what_the_engine_cannot_do_is_said():
    async with PlayedServer({"/v1/models": models("m", owner="vllm")}) as server:
        engine = client(server)
        await engine.open()
        with pytest.raises(UsageError, match="cannot switch its speculation off"):
            engine.reply(ReplyRequest(messages=HI.messages, draft=False))
        with pytest.raises(UsageError, match="does not tell the candidates"):
            await engine.examine(HI, (1,))
        with pytest.raises(UsageError, match="seeds from 0"):
            engine.reply(ReplyRequest(messages=HI.messages, seed=-1))
        await engine.close()


async def test_an_engine_without_a_known_switch_for_thinking_is_told_as_one_without():
    for owner, switch in (("vllm", None), ("localspec", None), ("", False)):
        async with PlayedServer({"/v1/models": models("m", owner=owner)}) as server:
            engine = client(server)
            assert (await engine.open()).switches_thinking is switch
            await engine.close()


async def test_settings_are_translated_into_the_words_of_the_engine():
    for owner, expected in (
        ("vllm", {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.0}),
        ("llamacpp", {"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.0, "repeat_last_n": 64}),
        ("", {}),
    ):
        routes = {CHAT: HELLO, "/v1/models": models("m", owner=owner)}
        _, server = await answered(routes)
        body = server.asked_for(CHAT)[0].json
        names = {"top_k", "min_p", "repetition_penalty", "repeat_penalty", "repeat_last_n"}
        assert {name: body[name] for name in names & body.keys()} == expected
        assert json.dumps(body)


async def test_further_samplers_are_sent_where_they_are_known_and_refused_elsewhere():
    sampling = Sampling(xtc_probability=0.5, samplers="top_k,xtc")
    asked = ReplyRequest(messages=HI.messages, sampling=sampling)
    for owner in ("llamacpp", "localspec"):
        routes = {CHAT: HELLO, "/v1/models": models("m", owner=owner)}
        _, server = await answered(routes, asked)
        body = server.asked_for(CHAT)[0].json
        assert body["xtc_probability"] == 0.5
        assert body["samplers"] == ["top_k", "xtc"]
        assert not {"dry_base", "mirostat", "dry_sequence_breakers"} & body.keys()
    async with PlayedServer({"/v1/models": models("m", owner="vllm")}) as server:
        engine = client(server)
        await engine.open()
        with pytest.raises(UsageError, match="vLLM takes no xtc_probability, samplers"):
            engine.reply(asked)
        await engine.close()


async def test_localspec_serve_tells_the_origin_of_every_token_here_too():
    own = {"origins": ["accepted", "corrected"], "sources": ["suffix", None]}
    token = {"index": 0, "delta": {"content": "ab"}, "token_ids": [5, 6], "localspec": own}
    speculative = {"num_draft_tokens": 4, "num_accepted_draft_tokens": 1, "num_verified_tokens": 2}
    figures = {"metrics": {"speculative_decoding": speculative | {"num_spec_steps": 1}}}
    stream = [STREAM, event({"choices": [token]}), ended(**figures), DONE]
    routes = {CHAT: stream, "/v1/models": models("m", owner="localspec")}
    events, server = await answered(routes, ReplyRequest(messages=HI.messages, draft=False))
    tokens = [(t.token, t.origin, t.source) for t in events if isinstance(t, Token)]
    assert tokens == [(5, Origin.ACCEPTED, "suffix"), (6, Origin.CORRECTED, None)]
    stats = events[-1].reply.stats
    assert (stats.drafted, stats.verified, stats.accepted, stats.rounds) == (4, 2, 1, 1)
    asked = server.asked_for(CHAT)[0].json["localspec"]
    assert asked == {"origins": True, "drafter": "off", "draft_memory": False}


def named(text, *origins):
    """A part of a reply whose tokens have these origins, as `localspec serve` sends it."""
    own = {"origins": list(origins), "sources": [None] * len(origins)}
    ids = list(range(len(origins)))
    return event(
        {"choices": [{"delta": {"content": text}, "token_ids": ids, "localspec": own}]},
    )


async def test_named_origins_tell_the_rounds_wherever_the_stream_is_cut():
    """Two tokens accepted and one corrected, a whole draft, none, and one that the end cuts."""
    stream = [
        *(STREAM, event({"choices": [], "prompt_progress": {"total": 85, "processed": 85}})),
        *(named("a", "accepted"), named("bc", "accepted", "corrected")),
        *(named("de", "accepted", "bonus"), named("fg", "plain", "accepted")),
        *(ended(usage={"prompt_tokens": 85, "completion_tokens": 7}), DONE),
    ]
    routes = {CHAT: stream, "/v1/models": models("m", owner="localspec")}
    events, server = await answered(routes)
    rounds = [r for r in events if isinstance(r, Round)]
    figures = [(r.drafted, r.verified, r.accepted, r.emitted) for r in rounds]
    assert figures == [(3, 3, 2, 3), (1, 1, 1, 2), (0, 0, 0, 1), (1, 1, 1, 1)]
    assert [r.speculation.state for r in rounds] == ["on"] * 4
    assert [r.context_used for r in rounds] == [88, 90, 91, 92]
    assert server.asked_for(CHAT)[0].json["return_progress"] is True


async def test_a_round_whose_origins_are_all_plain_is_known_to_have_no_draft():
    routes = {"/v1/models": models("m", owner="localspec")}
    stream = [STREAM, named("a", "plain"), named("bc", "accepted", "bonus"), ended(), DONE]
    events, _ = await answered(routes | {CHAT: stream})
    states = [r.speculation.state for r in events if isinstance(r, Round)]
    assert states == ["off", "on"]


async def test_the_use_of_the_context_is_not_told_before_the_tokens_of_the_prompt_are():
    events, _ = await answered({CHAT: HELLO})
    assert {r.context_used for r in events if isinstance(r, Round)} == {0}


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks9://x:1"), ("HTTPS_PROXY", "http://[::1"), ("SSL_CERT_FILE", "/no/such")],
)
async def test_settings_of_the_environment_that_cannot_be_are_one_sentence(
    monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    engine = RemoteClient(parse("https://192.0.2.1/v1"), Key(), patience=Patience(connect=0.05))
    with pytest.raises(RemoteError) as failed:
        await engine.open()
    assert "\n" not in str(failed.value)


async def test_a_proxy_is_not_asked_about_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:9")
    events, _ = await answered({CHAT: HELLO})
    assert text_of(events) == "Hello"


class Late:
    """A future that is done just when a wait for it has ended."""

    def done(self):
        return True

    def result(self, timeout=None):
        if timeout is not None:
            raise TimeoutError
        return 7


async def _nothing():
    return None


def test_an_answer_that_comes_as_a_wait_ends_is_an_answer(monkeypatch):
    class Here:
        open = close = staticmethod(_nothing)

    with BlockingClient(Here()) as engine, monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", lambda *_: Late())
        assert engine.call(None) == 7
