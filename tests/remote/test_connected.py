"""The chat over HTTP with `localspec serve`: everything that the engine tells arrives."""

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

sys.path.append(str(Path(__file__).parent))

from fake_serving import FakeEngine, World
from played_server import HANG, PlayedServer, http

from localspec.config import running_servers
from localspec.config.running_servers import RunningServer
from localspec.core import codec
from localspec.core.emitted import Origin
from localspec.core.errors import (
    AccessError,
    DecodeError,
    MediaError,
    RemoteError,
    ThinkingSwitchError,
    UsageError,
)
from localspec.core.events import (
    Candidate,
    Examination,
    Finished,
    Message,
    Round,
    Speculation,
    Token,
)
from localspec.core.picture import Picture
from localspec.core.processes import place, starts
from localspec.core.reply_request import ReplyRequest
from localspec.engine import protocol
from localspec.engine.messages import FailedEvent, ReplyEvents
from localspec.remote.address import parse
from localspec.remote.connected import ConnectedClient
from localspec.remote.connection import Patience
from localspec.remote.keys import Key
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.http.errors import of_engine
from localspec.serve.http.settings import ApiKeys

HI = ReplyRequest(messages=(Message("user", "Hi"),), seed=5)
KEY = "a-key-of-nine"


@contextlib.asynccontextmanager
async def connected(key=None, **settings):
    """A client of a server on a fake engine, and the server."""
    world = World(**settings)
    engine = ConnectedClient(
        parse("http://127.0.0.1:8080", path=""), Key(key), patience=Patience(attempts=1)
    )
    transport = httpx2.ASGITransport(app=world.app)
    engine.connection._client = httpx2.AsyncClient(transport=transport)
    engine.close = engine.connection.close  # what is open stays open until the end of the test
    try:
        yield engine, world
    finally:
        await engine.connection.close()
        await world.slot.close()


async def answered(engine):
    """The events of a reply."""
    return [event async for event in engine.reply(HI)]


async def opened(engine):
    """Connect without closing what the test has put in."""
    engine.info = await engine._connect(None)
    return engine.info


async def test_all_figures_and_origins_arrive():
    async with connected() as (engine, world):
        info = await opened(engine)
        assert (info.name, info.backend, info.target) == ("fake", "cpu", "fake.gguf")
        events = [event async for event in engine.reply(HI)]
        tokens = [event for event in events if isinstance(event, Token)]
        assert "".join(token.text for token in tokens) == "Hello from the fake engine."
        assert {token.origin for token in tokens} == {Origin.ACCEPTED, Origin.CORRECTED}
        assert {token.source for token in tokens} == {"model", None}
        assert len([event for event in events if isinstance(event, Round)]) == 3
        assert isinstance(events[-1], Finished)
        assert events[-1].reply.seed == 5
        assert world.requests[0].messages == HI.messages


async def test_a_key_is_wanted_and_separates_owners():
    async with connected(keys=ApiKeys((KEY,))) as (engine, _):
        with pytest.raises(AccessError, match="requires a key"):
            await opened(engine)
    async with connected(KEY, keys=ApiKeys((KEY,))) as (engine, world):
        await opened(engine)
        async for _ in engine.reply(HI):
            pass
        assert world.requests[0].owner
        assert KEY not in world.requests[0].owner


async def test_a_failure_of_the_engine_is_one_sentence():
    async with connected() as (engine, world):
        await opened(engine)
        world.error = DecodeError("llama.cpp failed in /home/me/x.gguf")
        with pytest.raises(RemoteError) as failed:
            async for _ in engine.reply(HI):
                pass
        assert "/home/me" not in str(failed.value)


async def test_the_candidates_of_a_token_are_told():
    async with connected() as (engine, world):
        await opened(engine)
        one = Candidate(3, "x", 0.5, None, 0.5)

        async def examine(request, tokens, rival=None):
            return Examination(one, (one,), None if rival is None else 0.25)

        world.engines[0].examine = examine
        found = await engine.examine(HI, (1, 3), 4)
        assert found == Examination(one, (one,), 0.25)


async def test_a_chat_stays_with_the_model_that_it_found(monkeypatch):
    """Another client had another model loaded: that one answered, and examined earlier replies."""
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("more", ""),))
    one, by = Candidate(3, "x", 0.5, None, 0.5), []

    async def examine(engine, _request, _tokens, _rival):
        by.append(engine.options.model)
        return Examination(one, (one,), None)

    monkeypatch.setattr(FakeEngine, "examine", examine, raising=False)
    async with connected() as (engine, world):
        await opened(engine)
        http_client, address = engine.connection._client, "http://127.0.0.1/v1/completions"
        other = {"model": "more", "prompt": "a"}
        assert (await http_client.post(address, json=other)).status_code == 200
        await engine.examine(HI, (1, 3))
        assert by == ["fake"]
        assert (await http_client.post(address, json=other)).status_code == 200
        assert [event async for event in engine.reply(HI)]
        assert world.slots.options.model == "fake"
        engine.model.name = ""  # a server that is older tells none, and takes none
        assert (await http_client.post(address, json=other)).status_code == 200
        assert [event async for event in engine.reply(HI)]
        assert world.slots.options.model == "more"


async def test_a_chat_goes_on_where_its_server_has_another_model_now():
    async with connected() as (engine, world):
        await opened(engine)
        engine.model.name = "gone"
        for ask in (lambda: engine.examine(HI, (1, 3)), lambda: answered(engine)):
            engine.model.name = "gone"
            with pytest.raises(RemoteError, match="What is asked next is for the model that it"):
                await ask()
            assert await answered(engine)
        assert world.slots.options.model == "fake"


@pytest.mark.parametrize("model", ["user/repo:file.gguf", "user/repo:Q4/file.gguf"])
async def test_it_stays_with_a_file_of_the_hub(model, monkeypatch):
    monkeypatch.setattr("localspec.models.catalog.resolve.cached", lambda ref: ref)
    async with connected() as (engine, world):
        http_client, address = engine.connection._client, "http://127.0.0.1/v1/completions"
        other = {"model": model, "prompt": "a"}
        assert (await http_client.post(address, json=other)).status_code == 200
        assert world.slots.options.model == model
        await opened(engine)
        other = {"model": "fake", "prompt": "a"}
        assert (await http_client.post(address, json=other)).status_code == 200
        assert world.slots.options.model == "fake"
        assert await answered(engine)
        assert world.slots.options.model == model


async def test_a_model_of_texts_with_the_same_name_takes_no_replies():
    async with connected() as (engine, world):
        world.service.embeddings = Embeddings(SimpleNamespace(model="/embed/fake.gguf", info=None))
        await opened(engine)
        assert await answered(engine)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"message": 1}', b'{"seed": "x"}', b'{"sampling": {"temperature": -1}}'],
)
@pytest.mark.parametrize("path", ["reply", "examine"])
async def test_a_body_that_is_no_request_is_refused(body, path):
    async with connected() as (engine, _):
        answer = await engine.connection._client.post(
            f"http://127.0.0.1/localspec/{path}", content=body
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["reply", "examine"])
async def test_no_file_that_a_client_names_is_opened(path, tmp_path):
    picture = tmp_path / "a.png"
    picture.write_bytes(b"private")
    message = {"role": "user", "content": "?", "pictures": [{"path": str(picture)}]}
    request = {"messages": [message]}
    body = request if path == "reply" else {"request": request, "tokens": [1]}
    async with connected() as (engine, world):
        answer = await engine.connection._client.post(
            f"http://127.0.0.1/localspec/{path}", content=json.dumps(body)
        )
        assert answer.status_code == 400
        assert "opens no file" in answer.json()["error"]["message"]
        assert not world.requests


async def test_the_bytes_of_a_picture_are_sent_and_not_where_it_is(tmp_path):
    (tmp_path / "a.png").write_bytes(b"its bytes")
    picture = Picture(path=str(tmp_path / "a.png"), at=1, name="a.png")
    seeing = ReplyRequest((Message("user", "Hi", pictures=(picture,)),), seed=5)
    async with connected() as (engine, world):
        await opened(engine)
        assert [event async for event in engine.reply(seeing)]
        (sent,) = world.requests[0].messages[0].pictures
        assert sent == Picture(data=b"its bytes", at=1, name="a.png")
        (tmp_path / "a.png").unlink()
        with pytest.raises(MediaError, match="cannot be read"):
            [event async for event in engine.reply(seeing)]


@pytest.mark.parametrize(("asked", "given"), [(None, 7), (5, 5), (1000, 7)])
async def test_the_most_tokens_of_a_server_hold(asked, given):
    async with connected(max_tokens=7) as (engine, world):
        await opened(engine)
        request = dataclasses.replace(HI, max_tokens=asked)
        assert [event async for event in engine.reply(request)]
        assert world.requests[0].max_tokens == given


INFO = {"version": protocol.VERSION, "info": {}}


def played(*parts, kind="application/x-ndjson"):
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    return [head.encode(), *parts]


TOKENS = protocol.encode(ReplyEvents(0, (Token(1, "Hel", Origin.PLAIN, None),)))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (played(TOKENS), "broke the reply off in the middle; what had arrived is kept"),
        (played(b"\n\n", TOKENS, b"{oops\n"), "sent something that is not part of a reply"),
        (played(TOKENS, b'{"type":"close"}\n'), "sent something that is not part of a reply"),
        (played(TOKENS, b'{"type":"hello","version":1,"pid":2}\n'), "a message hello in a reply"),
        (played(kind="text/html"), "answers with text/html"),
    ],
)
async def test_a_broken_stream_is_one_sentence(answer, reason):
    async with PlayedServer({"/localspec/reply": answer}) as server:
        address = parse(f"http://127.0.0.1:{server.port}", path="")
        engine = ConnectedClient(address, Key(), patience=Patience(attempts=1))
        got = []
        with pytest.raises(RemoteError, match=reason):
            await _read(engine.reply(HI), got)
        assert [one.text for one in got] == ["Hel"] * (TOKENS in answer)
        await engine.close()


@pytest.mark.parametrize("name", ["MAX_LINE", "_MOST_EVENTS"])
async def test_a_reply_without_end_is_given_up(monkeypatch, name):
    monkeypatch.setattr(f"localspec.remote.connected.{name}", 10)
    async with PlayedServer({"/localspec/reply": played(*[TOKENS] * 20, HANG)}) as server:
        address = parse(f"http://127.0.0.1:{server.port}", path="")
        engine = ConnectedClient(address, Key(), patience=Patience(attempts=1))
        got = []
        with pytest.raises(RemoteError, match="longer than any context"):
            await _read(engine.reply(HI), got)
        assert 3 <= len(got) <= 10
        await engine.close()


@pytest.mark.parametrize(
    "said",
    [
        f'{{"{KEY}": 1}}\n'.encode(),
        b"x" * 70 + KEY.encode() + b"\n",
        protocol.encode(FailedEvent(0, "RemoteError", f"no {KEY}", 1)),
    ],
)
async def test_a_key_that_a_server_repeats_is_not_shown(said):
    async with PlayedServer({"/localspec/reply": played(said)}) as server:
        address = parse(f"http://127.0.0.1:{server.port}", path="")
        engine = ConnectedClient(address, Key(KEY), patience=Patience(attempts=1))
        with pytest.raises(RemoteError) as failed:
            await _read(engine.reply(HI), [])
        assert KEY[:6] not in str(failed.value)
        await engine.close()


async def test_a_template_without_a_switch_for_thinking_is_told_by_its_class_from_there_too():
    told = of_engine(ThinkingSwitchError("not this template"))
    said = http(told.status, {"error": {"message": told.message, "code": told.code}})
    async with PlayedServer({"/localspec/reply": said}) as server:
        engine = ConnectedClient(parse(f"http://127.0.0.1:{server.port}", path=""), Key())
        with pytest.raises(ThinkingSwitchError, match="not this template"):
            await _read(engine.reply(HI), [])
        await engine.close()


async def _read(reply, got):
    async for event in reply:
        got.append(event)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(404, {"error": {"message": "nothing"}}), "is not a `localspec serve`"),
        (http(410, {"error": {"message": "no such model"}}), "is not a `localspec serve`"),
        (http(500, {"error": "I do not (404)"}), "failed"),
        (http(500, {"error": "it does not have room"}), "failed"),
        (http(200, {"version": 1, "info": {}}), "speaks protocol version 1"),
        (http(200, INFO), "does not say what it has loaded"),
        (http(200, b"<html>", "text/html"), "not with"),
    ],
)
async def test_what_is_no_server_of_ours_is_named(answer, reason):
    async with PlayedServer({"/localspec/info": answer}) as server:
        address = parse(f"http://127.0.0.1:{server.port}", path="")
        with pytest.raises(RemoteError, match=reason):
            await ConnectedClient(address, Key()).open()


# -- servers of this user -----------------------------------------------------------------------


def running(pid, model="demo"):
    began = starts.began(os.getpid())
    return RunningServer("http://127.0.0.1:8080", model, None, "/m/demo.gguf", False, pid, began)


def test_running_servers_are_found_and_ended_ones_forgotten():
    file = running_servers.announce(running(os.getpid()))
    assert file.stat().st_mode & 0o077 == 0
    running_servers.announce(running((1 << 22) + 1, "gone"))
    numbered(file, 7).write_text("{oops")
    numbered(file, 8).write_text(json.dumps(codec.encode(running(-1))))
    numbered(file, 9).write_text("[" * 100_000)
    assert [server.model for server in running_servers.running()] == ["demo"]
    assert [found.name for found in file.parent.iterdir()] == [file.name]
    running_servers.withdraw(file)
    assert running_servers.running() == []


def numbered(file, pid):
    """The file of another process of this place."""
    return file.with_name(file.name.replace(f"{os.getpid()}.json", f"{pid}.json"))


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Says where this process runs from now on: a boot, and numbers of processes."""

    def run_in(boot, numbers):
        for name, kept in (("boot_id", "_BOOT"), ("pid", "_NUMBERS")):
            (tmp_path / name).unlink(missing_ok=True)
            monkeypatch.setattr(place, kept, tmp_path / name)
        (tmp_path / "boot_id").write_text(f"{boot}\n")
        (tmp_path / "pid").symlink_to(f"pid:[{numbers}]")

    return run_in


@pytest.mark.parametrize("elsewhere", [("b0-1", 2), ("b0-2", 1)], ids=["container", "machine"])
def test_a_server_in_another_container_or_machine_with_the_same_home_stays_announced(
    places, elsewhere
):
    places("b0-1", 1)
    there = running((1 << 22) + 1, "there")  # no such process here
    file = running_servers.announce(there)
    same_number = running_servers.announce(running(os.getpid(), "there too"))
    places(*elsewhere)
    here = running_servers.announce(running(os.getpid(), "here"))
    assert len({file, same_number, here}) == 3
    assert [server.model for server in running_servers.running()] == ["here"]
    assert file.exists()
    assert same_number.exists()
    os.utime(file, (0, 0))  # nobody comes back to remove it
    assert [server.model for server in running_servers.running()] == ["here"]
    assert not file.exists()
    assert same_number.exists()
    places("b0-1", 1)
    assert [server.model for server in running_servers.running()] == ["there too"]


def test_where_the_system_names_no_boot_there_is_one_place(monkeypatch, tmp_path):
    monkeypatch.setattr(place, "_BOOT", tmp_path / "none")
    monkeypatch.setattr(place, "_NUMBERS", tmp_path / "none")
    one = running(os.getpid())
    running_servers.announce(one)
    assert running_servers.running() == [one]


def test_what_a_newer_version_announces_is_passed_over_and_stays():
    file = running_servers.announce(running(os.getpid()))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "9"}))
    assert running_servers.running() == []
    assert file.exists()


def test_a_file_that_vanishes_meanwhile_hides_no_other(monkeypatch):
    file = running_servers.announce(running(os.getpid()))
    numbered(file, 7).symlink_to(file.parent / "gone")  # as one that is removed while it is read
    assert [server.model for server in running_servers.running()] == ["demo"]


def test_a_process_that_has_the_number_of_an_ended_server_is_none():
    one = running(os.getpid())
    file = running_servers.announce(dataclasses.replace(one, began=one.began - 60))
    assert running_servers.running() == []
    assert not file.exists()


@pytest.mark.parametrize(
    "text",
    ["", "ftp://x", "http://", "http://u:p@h/v1", "http://h/v1?k=1", "http://h:99999", "unix:x"],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert "u:p" not in str(refused.value)


def test_an_address_may_leave_out_what_is_usual():
    assert parse("127.0.0.1:8080").base == "http://127.0.0.1:8080/v1"
    assert parse("https://h/api/v1/").base == "https://h/api/v1"
    assert parse("http://[::1]:1").root == "http://[::1]:1"
    assert parse("http://[::1]:1").loopback
    assert not parse("http://10.0.0.1").loopback
    assert parse("unix:/run/x.sock", path="").socket == "/run/x.sock"


async def test_a_stopped_reply_keeps_its_text_and_figures():
    done = Round(2, 2, 1, 1, 0.1, 0.2, 0.5, "model", 9, Speculation("on"))
    first = protocol.encode(ReplyEvents(0, (Token(1, "Hel", Origin.ACCEPTED, "model"), done)))
    async with PlayedServer({"/localspec/reply": played(first, HANG)}) as server:
        address = parse(f"http://127.0.0.1:{server.port}", path="")
        engine = ConnectedClient(address, Key())
        reply = engine.reply(ReplyRequest(messages=HI.messages))
        await anext(reply)
        await anext(reply)
        reply.interrupt()
        (last,) = [event async for event in reply]
        await server.left.wait()
        await engine.close()
    stats = last.reply.stats
    assert (last.reply.text, last.reply.tokens) == ("Hel", (1,))
    assert (stats.drafted, stats.verified, stats.accepted, stats.rounds) == (2, 2, 1, 1)
    assert last.reply.seed == server.asked[0].json["seed"]
