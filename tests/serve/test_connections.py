"""A listening server on a fake engine: clients that leave, dawdle, flood or do not read."""

import asyncio
import contextlib
import errno
import json
import os
import random
import signal
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import h11
import pytest
from fake_serving import World
from starlette.responses import Response
from uvicorn.protocols.http import h11_impl
from waiting import until_so

from localspec.config import running_servers
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.processes import place
from localspec.serve.http.body_budget import FREE
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import Limits, ServeSettings
from localspec.serve.server import bind, listener, with_descriptors
from localspec.serve.serving import Serving

CHAT = "/v1/chat/completions"
END = b"0\r\n\r\n"
"""The last chunk of an answer."""
HI = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def make_listening():
    """Worlds whose application listens on a free port."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(tls=None, **limits):
            world = World(port=0, limits=Limits(**limits), tls=tls)
            await world.slots.load()
            listening = bind(world.settings)
            server = listener(world.app, world.settings, grace=0)
            serving = asyncio.create_task(server.serve([listening]))
            await server.listening.wait()
            world.peers = []
            world.port = listening.getsockname()[1]
            world.connections = server.server_state.connections

            async def stop():
                for peer in world.peers:
                    peer.leave()
                    with contextlib.suppress(ConnectionError):
                        await peer.writer.wait_closed()
                if world.hold is not None:
                    world.hold.set()
                server.stop_now()
                await serving
                await world.slot.close()
                listening.close()

            stack.push_async_callback(stop)
            return world

        yield make


class Peer:
    """A client that does as it likes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, world, source="127.0.0.1", ssl=None):
        place = {"local_addr": (source, 0), "ssl": ssl}
        peer = cls(*await asyncio.open_connection("127.0.0.1", world.port, **place))
        world.peers.append(peer)
        return peer

    def send(self, raw):
        self.writer.write(raw)

    def post(self, body, path=CHAT):
        self.post_raw(json.dumps(body).encode(), path)

    def post_raw(self, raw, path):
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(raw)}\r\n\r\n"
        self.send(head.encode() + raw)

    def half_close(self):
        self.writer.write_eof()

    async def status(self):
        line = await self.reader.readline()
        return int(line.split()[1]) if line else None

    async def ended(self):
        """Wait for the end of the connection; what was read until then."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def until(self, end):
        """What is read until something that ends with ``end``, of any size."""
        said = bytearray()
        while not said.endswith(end):
            said += await self.reader.read(1 << 20)
        return bytes(said)

    def leave(self):
        self.writer.transport.abort()


async def health(world, **place):
    """Ask for it over a new connection."""
    peer = await Peer.at(world, **place)
    peer.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        return await peer.status()
    return None


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("hold_at", [0, 2])
async def test_a_client_that_leaves_frees_its_place(make_listening, stream, hold_at):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), hold_at
    peer = await Peer.at(world)
    peer.post(HI | {"stream": stream})
    await until_so(lambda: world.requests)
    if stream and hold_at:
        await peer.reader.readuntil(b"Hello")
    peer.leave()
    await until_so(lambda: world.service.queue.size == 0)
    assert world.engines[0].interrupted == [1]
    assert world.engines[0].running == 0
    assert world.slot.users == 0
    assert "the client left" in world.lines[0]
    assert not world.defects


@pytest.mark.parametrize("way", ["leave", "half_close"])
async def test_so_does_one_that_has_sent_its_next_request(make_listening, way):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), 0
    peer = await Peer.at(world)
    peer.post(HI)
    await until_so(lambda: world.requests)
    for _ in range(2):
        peer.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asyncio.sleep(0.01)
    getattr(peer, way)()
    if way == "leave":
        await until_so(lambda: world.service.queue.size == 0)
        assert world.engines[0].interrupted == [1]
    else:
        assert b"102 Processing" in await peer.reader.readline()  # asked whether it still reads
        world.hold.set()
        assert (await peer.ended()).count(b"HTTP/1.1 200") == 3
    assert not world.defects


async def test_requests_behind_one_that_is_answered_are_not_read_without_end(make_listening):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), 0
    peer = await Peer.at(world)
    peer.post(HI)
    await until_so(lambda: world.requests)
    many = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 200
    for _ in range(40):
        peer.send(many)
        await asyncio.sleep(0)
    (connection,) = world.connections
    await until_so(lambda: connection.flow.read_paused)
    assert len(connection.conn.trailing_data[0]) <= 1 << 17


async def test_a_client_that_leaves_the_queue_gives_up_its_place_there(make_listening):
    world = await make_listening()
    await world.slot.close()
    world.slot.closed = False
    world.loading = asyncio.Event()
    peer = await Peer.at(world)
    peer.post(HI)
    await until_so(lambda: world.service.queue.size == 1)
    peer.leave()
    await until_so(lambda: world.service.queue.size == 0)
    world.loading.set()
    assert not world.requests


async def test_comments_keep_a_waiting_stream_open(make_listening):
    world = await make_listening(keep_alive_seconds=0.01)
    world.hold, world.hold_at = asyncio.Event(), 0
    peer = await Peer.at(world)
    peer.post(HI | {"stream": True})
    await peer.reader.readuntil(b": keep-alive\n\n")
    world.hold.set()
    await peer.reader.readuntil(b"[DONE]")
    peer.leave()


async def test_a_connection_without_a_request_is_closed(make_listening):
    world = await make_listening(header_seconds=0.05)
    silent, slow = await Peer.at(world), await Peer.at(world)

    async def trickle():
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /health HTTP/1.1\r\nx-long: " + b"a" * 100_000:
                slow.send(bytes([byte]))
                await asyncio.sleep(0.005)

    trickling = asyncio.create_task(trickle())
    assert await silent.ended() == b""
    assert await slow.ended() == b""
    trickling.cancel()


async def test_a_body_that_does_not_arrive_is_given_up(make_listening):
    world = await make_listening(body_seconds=0.05)
    peer = await Peer.at(world)
    peer.send(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    assert await peer.status() == 408


@pytest.mark.parametrize("head", [b"content-length: 9999", b"transfer-encoding: chunked"])
async def test_a_body_that_is_too_large_is_not_read(make_listening, head):
    world = await make_listening(body_bytes=100)
    peer = await Peer.at(world)
    peer.send(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n" + head + b"\r\n\r\n")
    peer.send(b"ff\r\n" + b"a" * 255 + b"\r\n" if b"chunked" in head else b"a" * 200)
    assert await peer.status() == 413


POST = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"


async def test_a_body_with_two_lengths_is_refused_and_ends_the_connection(make_listening):
    world = await make_listening()
    for lengths in (
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    ):
        peer = await Peer.at(world)
        peer.send(POST + lengths + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await peer.ended()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"both Content-Length and Transfer-Encoding" in answer


async def test_a_target_with_scheme_and_host_is_one_of_ours(make_listening):
    world = await make_listening()
    for target, host, status in (
        (b"http://localhost:9/v1/models", b"localhost", 200),
        (b"HTTP://127.0.0.1/v1//models/", b"localhost", 200),
        (b"http://evil.example/v1/models", b"localhost", 403),  # it counts, not the header
        (b"http://localhost/v1/models", b"evil.example", 200),
        (b"http://localhost/nothing", b"localhost", 404),
    ):
        peer = await Peer.at(world)
        peer.send(b"GET " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
        assert await peer.status() == status


def large(n):
    return json.dumps({"prompt": "a" * n, "max_tokens": 1}).encode()


async def test_all_bodies_together_have_a_budget(make_listening):
    world = await make_listening(bodies_bytes=300_000)
    held = [await Peer.at(world) for _ in range(2)]
    for peer in held:  # each but for its last byte
        raw = large(200_000)
        peer.send(POST + b"content-length: %d\r\n\r\n" % len(raw) + raw[:-1])
    budget = world.app._app._app._app
    await until_so(lambda: budget.held > 250_000)
    more, small = await Peer.at(world), await Peer.at(world)
    more.send(POST + b"content-length: 200021\r\n\r\n" + large(200_000)[:-1])
    head = (await more.reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 503 ")
    assert b"retry-after: " in head
    small.send(POST + b"content-length: %d\r\n\r\n" % len(large(10)) + large(10))
    assert await small.status() == 200
    held[0].send(b"}")
    assert await held[0].status() == 400  # longer than the context
    held[1].leave()
    await until_so(lambda: budget.held == 0)


async def test_a_body_counts_until_its_answer_has_ended(make_listening):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), 0
    peer = await Peer.at(world)
    raw = json.dumps(HI | {"metadata": {"note": "a" * 100_000}}).encode()
    peer.send(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: localhost\r\n")
    peer.send(b"content-length: %d\r\n\r\n" % len(raw) + raw)
    await until_so(lambda: world.requests)
    budget = world.app._app._app._app
    assert budget.held == len(raw) - FREE
    world.hold.set()
    assert await peer.status() == 200
    await until_so(lambda: budget.held == 0)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a" * 25_000, "n": 16},
        {"prompt": ["a"] * 100, "prediction": "b" * 20_000},
        {"prompt": ["a"] * 100, "guided_choice": ["c" * 20_000, "d"]},
        {"prompt": ["a"] * 100, "logit_bias": {str(i): 1 for i in range(4000)}},
        {"prompt": ["a"] * 100, "stop": ["e" * 8000]},
    ],
    ids=["choices", "prediction", "grammar", "bias", "stop"],
)
async def test_what_is_made_of_a_body_counts_as_often_as_it_is_made(make_listening, body):
    world = await make_listening(bodies_bytes=300_000)
    world.hold, world.hold_at = asyncio.Event(), 0
    one, all_of_it = await Peer.at(world), await Peer.at(world)
    prompt = body["prompt"]
    alone = body | {"n": 1, "prompt": prompt if isinstance(prompt, str) else prompt[0]}
    budget = world.app._app._app._app
    for peer, asked in ((one, alone), (all_of_it, body)):
        raw = json.dumps(asked).encode()
        peer.send(POST + b"content-length: %d\r\n\r\n" % len(raw) + raw)
    head = (await all_of_it.reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 413 ")
    world.hold.set()
    assert await one.status() == 200
    await until_so(lambda: budget.held == 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"a": [' + "[]," * 600_000 + "1]}", 413),
        ('{"a": [' + '"",' * 600_000 + '""]}', 413),
        ('{"a": {' + '"b":{},' * 600_000 + '"c":1}}', 413),
        ('{"prompt": "' + "[," * 1_000_000 + '"}', 400),  # text; too long for the context
        ('{"prompt": "' + '\\",' * 1_000_000, 400),  # no JSON
        ('{"prompt": "' + ",," * 1_000_000 + "\\", 400),
    ],
)
async def test_a_body_of_countless_values_is_refused(make_listening, body, status):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.post_raw(body.encode(), "/v1/completions")
    assert await peer.status() == status


async def test_connections_without_a_request_make_room_for_those_with_one(make_listening):
    world = await make_listening(connections=4, connections_of_one=4)
    idle = [await Peer.at(world) for _ in range(4)]
    for peer in idle:
        peer.send(b"GET /he")  # and no more
    assert await health(world) == 200
    assert await idle[0].ended() == b""  # the oldest


async def test_an_address_keeps_no_other_out(make_listening):
    world = await make_listening(connections=4, connections_of_one=3)
    world.hold, world.hold_at = asyncio.Event(), 0
    for _ in range(3):
        (await Peer.at(world)).post(HI)
    await until_so(lambda: len(world.requests) == 2 + 1)
    assert await health(world) == 503
    other = await Peer.at(world, source="127.0.0.2")
    other.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert await other.status() == 200


@pytest.mark.parametrize(
    ("addresses", "others"),
    [
        (("2001:db8::1", "2001:db8::2:3", "2001:db8::ffff:0:0:1"), "2001:db8:0:1::1"),
        (("fe80::1%eth0", "fe80::2%eth0", "fe80::3"), "::1"),
        (("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"), "::ffff:192.0.2.2"),
    ],
)
async def test_a_machine_has_one_share_for_all_of_its_addresses(
    make_listening, monkeypatch, addresses, others
):
    """A network of IPv6 gives one machine 2**64 of them."""
    come = iter([*addresses, others])
    monkeypatch.setattr(h11_impl, "get_remote_addr", lambda _: (next(come), 1))
    world = await make_listening(connections=9, connections_of_one=2)
    world.hold, world.hold_at = asyncio.Event(), 0
    for number in (1, 2):
        (await Peer.at(world)).post(HI)
        await until_so(lambda number=number: len(world.requests) == number)
    assert await (await Peer.at(world)).status() == 503
    assert await health(world) == 200


async def test_compressed_bodies_are_refused(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.send(
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-encoding: gzip\r\n"
        b"content-length: 1\r\n\r\nx"
    )
    assert await peer.status() == 415


@pytest.mark.parametrize(
    "raw",
    [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 9],
)
async def test_what_is_no_http_does_no_harm(make_listening, raw):
    world = await make_listening(header_seconds=0.05)
    peer = await Peer.at(world)
    peer.send(raw)
    await peer.reader.readline()
    while (status := await health(world)) is None:  # the request came too late
        pass
    assert status == 200
    assert not world.defects


async def test_more_connections_than_allowed_are_told_so(make_listening):
    world = await make_listening(connections=3)
    world.hold, world.hold_at = asyncio.Event(), 0
    peers = [await Peer.at(world) for _ in range(3)]
    for peer in peers:
        peer.post(HI)
    await until_so(lambda: len(world.requests) == 3)
    refused = await Peer.at(world)
    assert await refused.status() == 503
    peers[0].leave()
    while await health(world) != 200:
        pass


async def test_a_client_that_does_not_read_is_disconnected(make_listening):
    world = await make_listening(write_seconds=0.3)
    world.words = ("x" * 100_000,) * 400
    budget = world.app._app._app._app
    peer = await Peer.at(world)
    peer.writer.transport.pause_reading()
    peer.post(HI | {"stream": True})
    await until_so(lambda: budget.answering > 0)
    await until_so(lambda: budget.answering == 0)
    await until_so(lambda: (world.service.queue.size, world.slot.users) == (0, 0))
    assert not world.defects
    peer.leave()


@pytest.mark.parametrize("way", ["last request", "own end", "HTTP/1.0", "no request", "large"])
async def test_what_is_left_of_a_closed_connection_waits_no_longer(
    make_listening, monkeypatch, way
):
    """With so little left that its buffer is not full: nothing says so again."""
    world = await make_listening(connections=1, connections_of_one=1)
    world.words = ("x" * 50_000,)
    if way == "large":
        monkeypatch.setattr(world.app, "_app", Response("x" * 100_000))
    last = b"connection: close\r\n" if way in {"last request", "large"} else b""
    version, raw = b"1.0" if way == "HTTP/1.0" else b"1.1", json.dumps(HI).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        client.connect(("127.0.0.1", world.port))
        await until_so(lambda: world.connections)
        (connection,) = world.connections
        if way != "large":
            connection.limits = Limits(write_seconds=0.1)
        system = connection.transport.get_extra_info("socket")
        system.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        client.sendall(b"POST %s HTTP/%s\r\nhost: localhost\r\n" % (CHAT.encode(), version))
        client.sendall(b"%scontent-length: %d\r\n\r\n" % (last, len(raw)) + raw)
        await until_so(lambda: connection.cycle and connection.cycle.response_complete)
        left = connection.transport.get_write_buffer_size
        if way == "own end":
            client.shutdown(socket.SHUT_WR)
        elif way == "no request":
            client.sendall(b"nonsense\r\n\r\n")
        elif way == "large":
            connection.limits = Limits(write_seconds=0.1)
            await until_so(lambda: client.recv(1 << 14) and left() < FREE >> 2)
        await until_so(connection.transport.is_closing)
        assert 0 < left() < FREE, left()
        async with asyncio.timeout(5):
            await until_so(lambda: not world.connections)
        assert await health(world) == 200


async def test_a_client_that_reads_slowly_keeps_no_model_from_others(make_listening, monkeypatch):
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("other", ""),))
    world = await make_listening()
    world.words = ("x" * 100_000,) * 200
    budget = world.app._app._app._app
    slow, other = await Peer.at(world), await Peer.at(world)
    slow.writer.transport.pause_reading()
    slow.post(HI | {"stream": True, "n": 2})
    await until_so(lambda: len(world.requests) == 2 and world.service.queue.size == 0)
    assert budget.answering > 10_000_000  # what the buffers between them do not hold
    world.words = ("Hi",)
    other.post(HI | {"model": "other"})
    assert await other.status() == 200
    assert [engine.options.model for engine in world.engines] == ["fake", "other"]
    slow.writer.transport.resume_reading()
    said = await slow.until(END)
    assert b"data: [DONE]" in said[-100:]
    assert len(said) > 40_000_000
    await until_so(lambda: budget.answering == 0)
    assert "error" not in world.lines[0]


async def test_a_stream_that_is_read_too_slowly_for_the_memory_ends_with_an_error(make_listening):
    world = await make_listening(answers_bytes=1 << 20)
    world.words = ("x" * 100_000,) * 400
    budget = world.app._app._app._app
    slow = await Peer.at(world)
    slow.writer.transport.pause_reading()
    slow.post(HI | {"stream": True})
    await until_so(lambda: world.requests and world.service.queue.size == 0)
    assert world.engines[0].interrupted == [1]
    assert 0 < budget.answering <= 1 << 20
    assert "read too slowly" in world.lines[0]
    slow.writer.transport.resume_reading()
    said = await slow.until(END)
    assert b'"code":"read_too_slowly"' in said[-300:]
    assert b"[DONE]" not in said
    await until_so(lambda: budget.answering == 0)
    assert not world.defects


async def test_the_last_part_of_a_client_that_has_read_all_is_sent_however_large(make_listening):
    """The last part of /v1/responses repeats the whole text."""
    world = await make_listening(answers_bytes=1 << 20)
    world.words = ("x" * 5_000,) * 20
    budget = world.app._app._app._app
    budget.answering = (1 << 20) - 1  # of others
    peer = await Peer.at(world)
    peer.post({"input": "Hi", "stream": True}, "/v1/responses")
    said = await peer.until(END)
    assert b"response.completed" in said
    assert b"read_too_slowly" not in said
    await until_so(lambda: budget.answering == (1 << 20) - 1)


async def test_connections_dropped_at_random_leave_nothing_behind(make_listening):
    world = await make_listening()
    chance = random.Random(20261122)
    whole = json.dumps(HI | {"stream": True, "n": 2}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(whole)}\r\n\r\n"
    raw = head.encode() + whole

    async def client():
        peer = await Peer.at(world)
        peer.send(raw[: chance.randrange(len(raw) + 200)])
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(peer.reader.read(chance.randrange(1, 999)), 0.05)
        peer.leave()

    for _ in range(20):
        await asyncio.gather(*(client() for _ in range(25)))
    await until_so(lambda: world.service.queue.size == 0)
    assert world.slot.users == 0
    assert world.engines[0].running == 0
    assert not world.defects
    peer = await Peer.at(world)
    peer.post(HI)
    assert await peer.status() == 200


needs_unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")


@needs_unix
def test_a_unix_socket_is_its_owners_alone_and_replaces_a_stale_one(tmp_path):
    path = tmp_path / "s.sock"
    for _ in range(2):  # the second finds the file of the first
        with bind(ServeSettings(unix=path)):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_ISSOCK(path.stat().st_mode)
            with pytest.raises(LocalspecError, match="already"):
                bind(ServeSettings(unix=path))


@needs_unix
def test_a_socket_that_another_server_has_just_put_there_is_not_taken_for_a_stale_one(
    tmp_path, monkeypatch
):
    """Two servers start at once, and find the socket of one that has ended."""
    path = tmp_path / "s.sock"
    settings = ServeSettings(unix=path)
    bind(settings).close()
    connect, won = socket.socket.connect, []

    def slow(probe, address):
        try:
            connect(probe, address)
        finally:  # the other server is quicker
            monkeypatch.undo()
            won.append(bind(settings))

    monkeypatch.setattr(socket.socket, "connect", slow)
    with pytest.raises(LocalspecError):
        bind(settings)
    assert listens(path)
    won[0].close()


@needs_unix
async def test_a_socket_that_cannot_be_removed_is_told_and_changes_no_exit_code(
    tmp_path, monkeypatch
):
    path = tmp_path / "s.sock"
    async with contextlib.AsyncExitStack() as stack:
        world, serving, running = await start_serving(stack, path)

        def denied(*_, **__):
            raise PermissionError(errno.EACCES, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", denied)  # the folder became read-only
            serving.stop(143)
            assert await running == 143
            assert world.notices[-1].startswith(f"cannot remove the socket {path}: Permission den")
            with pytest.raises(LocalspecError, match="cannot remove the socket"):
                bind(ServeSettings(unix=path))
    assert path.exists()


@needs_unix
def test_a_unix_socket_replaces_no_file_and_needs_a_short_path(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(UsageError, match="not a socket"):
        bind(ServeSettings(unix=path))
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="shorter"):
        bind(ServeSettings(unix=tmp_path / ("a" * 200)))


class Telling(World):
    """Tells when its server is ready."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.is_ready = asyncio.Event()

    def ready(self, service, address):
        self.is_ready.set()


async def start_serving(stack, path):
    """A server at the path that is ready, its world and its run."""
    world = Telling(unix=path, drain_seconds=60)
    serving = Serving(world.settings, world.slot.options, world, world)
    running = asyncio.create_task(serving.run())
    stack.callback(serving.stop, 0)
    await world.is_ready.wait()
    return world, serving, running


def listens(path):
    """Whether a server takes connections at the path."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


async def livez(path):
    """The answer of the server at the path, as far as it has come."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


@needs_unix
async def test_a_server_that_has_run_for_months_is_removed_by_no_other_place(tmp_path, monkeypatch):
    monkeypatch.setattr(running_servers, "REFRESH_S", 0.02)
    async with contextlib.AsyncExitStack() as stack:
        _, serving, running = await start_serving(stack, tmp_path / "s.sock")
        await until_so(running_servers.running)
        (file,) = running_servers._folder().glob("*.json")
        os.utime(file, (0, 0))
        await until_so(lambda: file.stat().st_mtime > 0)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(place, "here", lambda: "another-1-")
            assert running_servers.running() == []
        assert file.exists()
        serving.stop(0)
        assert await running == 0
        assert not file.exists()


@needs_unix
async def test_a_server_that_ends_leaves_the_socket_of_its_successor(tmp_path):
    path = tmp_path / "s.sock"
    async with contextlib.AsyncExitStack() as stack:
        first, ending, ended = await start_serving(stack, path)
        first.hold = asyncio.Event()
        _, writer = await asyncio.open_unix_connection(path)
        body = json.dumps(HI).encode()
        writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % CHAT.encode())
        writer.write(b"Content-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await until_so(lambda: ending.service.queue.size)
        ending.stop(143)
        await until_so(lambda: not listens(path))
        _, second, running = await start_serving(stack, path)
        first.hold.set()
        assert await ended == 143
        assert b"200 OK" in await livez(path)
        second.stop(0)
        assert await running == 0
        assert not path.exists()
        writer.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of open files")
def test_the_documentation_says_how_many_open_files_the_server_asks_for(monkeypatch):
    import resource

    asked = []
    few = (256, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: few)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits[0]))
    limits = Limits()
    assert with_descriptors(limits) == limits
    page = Path(__file__).parent.parent.parent / "docs/server.md"
    said = f"open files as {limits.connections:,} connections need ({asked[0]:,})"
    assert said in page.read_text("utf-8")


def test_a_port_in_use_is_named():
    with bind(ServeSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalspecError, match=str(port)):
            bind(ServeSettings(port=port))


async def test_bytes_that_are_no_request_are_refused_as_an_error_object(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.send(b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n")
    head, _, body = (await peer.ended()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_a_body_that_goes_wrong_after_its_answer_only_closes_the_connection(make_listening):
    world, failures = await make_listening(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    peer = await Peer.at(world)
    peer.send(b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    assert await peer.status() == 404
    peer.send(b"no chunk\r\n")
    assert b"HTTP/1.1 400" not in await peer.ended()
    assert not failures


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_only_ends_its_own_side_gets_its_reply(make_listening, stream):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), 0
    peer = await Peer.at(world)
    peer.post(HI | {"stream": stream})
    peer.half_close()
    await until_so(lambda: world.requests)
    assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 102 Processing\r\n\r\n"
    world.hold.set()
    said = await peer.ended()
    assert b"HTTP/1.1 200" in said
    assert b"engine" in said
    assert not stream or b"[DONE]" in said
    assert not world.defects


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3,
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n{",
    ],
)
async def test_so_does_one_whose_answer_is_there_at_once(make_listening, raw):
    """Its end is read in the turn of the loop in which the answer is written."""
    world = await make_listening()
    for _ in range(5):
        peer = await Peer.at(world)
        peer.send(raw)
        peer.half_close()
        said = await peer.ended()  # perhaps with 102 before answers that are not there yet
        answers = said.count(b"HTTP/1.1 200") + said.count(b"HTTP/1.1 400")
        assert answers == raw.count(b"HTTP/1.1"), said


@pytest.mark.parametrize("hold_at", [0, 2])
async def test_a_client_that_closes_after_reading_all_is_told_apart_from_one_that_waits(
    make_listening, hold_at
):
    world = await make_listening()
    world.hold, world.hold_at = asyncio.Event(), hold_at
    peer = await Peer.at(world)
    peer.post(HI | {"stream": True})
    await until_so(lambda: world.requests)
    if hold_at:
        await peer.reader.readuntil(b"Hello")
    peer.writer.close()
    await until_so(lambda: world.service.queue.size == 0)
    assert world.engines[0].interrupted == [1]


async def test_requests_that_follow_each_other_before_the_end_are_all_answered(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    for _ in range(3):
        peer.post(HI)
    peer.half_close()
    assert (await peer.ended()).count(b"HTTP/1.1 200") == 3


async def test_half_a_request_at_the_end_is_nobodys(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{"
    )
    peer.half_close()
    assert await peer.ended() == b""
    assert not world.requests


async def test_a_client_of_http_1_0_gets_its_reply_and_the_end_of_the_connection(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    raw = json.dumps(HI | {"stream": True}).encode()
    head = b"POST %s HTTP/1.0\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    peer.send(head % (CHAT.encode(), len(raw)) + raw)
    said = await peer.ended()
    assert b"transfer-encoding" not in said.lower()
    assert said.endswith(b"data: [DONE]\n\n")


async def test_a_body_is_asked_for_and_may_come_in_chunks(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.send(
        b"POST /v1/chat/completions/ HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    assert await peer.status() == 100
    await peer.reader.readline()
    raw = json.dumps(HI).encode()
    peer.send(b"".join(b"1\r\n%c\r\n" % byte for byte in raw) + b"0\r\n\r\n")
    assert await peer.status() == 200


def chunked(path, number, size=1):
    """The head of a request, and a body of so many chunks."""
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" % path
    body = (b"%x\r\n%s\r\n" % (size, b" " * size)) * number + b"2\r\n[]\r\n0\r\n\r\n"
    return head, body


async def test_a_body_in_countless_small_chunks_is_refused(make_listening, monkeypatch):
    read, next_event = [], h11.Connection.next_event

    def noted(connection):
        event = next_event(connection)
        read.append(event)
        return event

    monkeypatch.setattr(h11.Connection, "next_event", noted)
    world = await make_listening()
    peer, refused = await Peer.at(world), await Peer.at(world)
    peer.send(b"".join(chunked(b"/lora-adapters", 9000)))
    assert b"small chunks" in await peer.ended()
    head, body = chunked(b"/nothing", 9000)
    refused.send(head)
    assert await refused.status() == 404
    refused.send(body)
    assert b"HTTP/1.1" not in await refused.ended()
    assert len(read) < 2 * 4100
    assert not world.defects


@pytest.mark.parametrize(("number", "size"), [(3900, 1), (5000, 80)])
async def test_small_chunks_are_read_where_they_are_few_or_not_so_small(
    make_listening, number, size
):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.send(b"".join(chunked(b"/lora-adapters", number, size)))
    assert await peer.status() == 200


# -- before a request, and before TLS --------------------------------------------------------------


@pytest.fixture
def trusting(pem):
    """What a client needs to speak TLS with a server that has the certificate of the tests."""
    return ssl.create_default_context(cafile=str(pem[0]))


async def test_whoever_does_not_begin_tls_has_as_long_as_for_headers(make_listening, pem, trusting):
    world = await make_listening(pem[:2], header_seconds=0.2)
    silent, wrong = await Peer.at(world), await Peer.at(world)
    half = await Peer.at(world, ssl=trusting)
    wrong.send(b"GET /health HTTP/1.1\r\n\r\n")
    half.send(b"GET /health HTTP/1.1\r\n")
    async with asyncio.timeout(20):  # TLS itself has 60 s
        for peer in (silent, half, wrong):
            assert b"HTTP" not in await peer.ended()
    await until_so(lambda: not world.connections)
    assert not world.defects


async def test_connections_that_do_not_begin_tls_make_room(make_listening, pem, trusting):
    world = await make_listening(pem[:2], connections=4, connections_of_one=4)
    silent = [await Peer.at(world) for _ in range(4)]
    assert await health(world, ssl=trusting) == 200
    async with asyncio.timeout(20):
        assert await silent[0].ended() == b""  # the oldest
    assert len(world.connections) == 4


async def test_an_address_has_its_share_of_connections_before_tls_too(
    make_listening, pem, trusting
):
    world = await make_listening(pem[:2], connections=4, connections_of_one=2)
    silent = [await Peer.at(world) for _ in range(2)]
    other = await Peer.at(world, source="127.0.0.2")
    assert await health(world, ssl=trusting) == 200  # in place of one of its own
    assert not other.reader.at_eof()
    async with asyncio.timeout(20):
        assert await silent[0].ended() == b""


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    make_listening, pem, trusting
):
    world = await make_listening(pem[:2])
    ask = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for _ in range(20):
        peer = await Peer.at(world, ssl=trusting)
        peer.send(ask)
        assert await peer.status() == 200
        peer.leave()
    await until_so(lambda: not world.connections)


FEW = """
import asyncio, resource, sys

from fake_serving import World

from localspec.serve.serving import Serving

resource.setrlimit(resource.RLIMIT_NOFILE, (400, int(sys.argv[1])))


class Front(World):
    def ready(self, service, address):
        print(address.rpartition(":")[2], flush=True)

    def notice(self, text):
        print(text, file=sys.stderr, flush=True)


async def main():
    world = Front(port=0)
    await Serving(world.settings, world.slot.options, world, world).run()


asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address on Linux alone")
@pytest.mark.parametrize("hard", [400, 4000])
async def test_idle_connections_make_room_where_descriptors_are_few(hard):
    here = Path(__file__).parent
    command = [sys.executable, "-c", FEW, str(hard)]
    environment = os.environ | {"PYTHONPATH": f"{here}:{here.parents[1]}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server = await asyncio.create_subprocess_exec(*command, **pipes, env=environment)
    idle = []
    try:
        world = World()
        world.peers, world.port = idle, int(await server.stdout.readline())
        server.send_signal(signal.SIGSTOP)  # all of them wait when it goes on
        sources = ("127.0.0.1", "127.0.0.2")
        coming = [asyncio.ensure_future(Peer.at(world, s)) for s in sources for _ in range(220)]
        await asyncio.sleep(0.5)
        server.send_signal(signal.SIGCONT)
        await asyncio.gather(*coming)
        async with asyncio.timeout(10):
            assert await health(world) == 200
    finally:
        server.terminate()
        _, said = await server.communicate()
        for peer in idle:
            peer.leave()
    assert (b"at most 200 connections" in said) is (hard == 400)
    assert b"out of system resource" not in said


# -- large answers ---------------------------------------------------------------------------------


async def test_an_answer_counts_until_its_client_has_read_it(make_listening):
    world = await make_listening(answers_bytes=30 << 20)
    world.words = ("x" * 10_000_000, "y" * 10_000_000)
    budget = world.app._app._app._app
    peers = [await Peer.at(world) for _ in range(2)]
    peers[0].writer.transport.pause_reading()
    for peer in peers:
        peer.post(HI)
        await until_so(lambda: budget.answering > 20_000_000)
    assert await peers[1].status() == 503
    assert world.service.queue.size == 0  # the reply has ended, and is in memory
    peers[0].writer.transport.resume_reading()
    head = (await peers[0].reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await peers[0].reader.readexactly(length)
    assert len(json.loads(body)["choices"][0]["message"]["content"]) == 20_000_000
    await until_so(lambda: budget.answering == 0)
    assert await health(world) == 200


async def test_an_answer_whose_client_leaves_counts_no_longer(make_listening):
    world = await make_listening()
    world.words = ("x" * 20_000_000,)
    budget = world.app._app._app._app
    peer = await Peer.at(world)
    peer.writer.transport.pause_reading()
    peer.post(HI)
    await until_so(lambda: budget.answering > 20_000_000)
    peer.leave()
    await until_so(lambda: budget.answering == 0)
    assert not world.defects


async def test_an_answer_that_is_too_large_for_all_is_refused_with_what_to_do(make_listening):
    world = await make_listening(answers_bytes=1 << 20)
    world.words = ("x" * 2_000_000,)
    peer = await Peer.at(world)
    peer.post(HI)
    assert b"HTTP/1.1 413 " in (await peer.reader.readuntil(b"\r\n\r\n"))
    assert b'"answer_too_large"' in await peer.reader.readuntil(b"}}")


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_answer_repeats_of_its_prompts_is_counted_before_it_is_made(
    make_listening, stream
):
    world = await make_listening(answers_bytes=1 << 20)
    budget = world.app._app._app._app
    asked = {"prompt": ["a " * 16_000] * 16, "max_tokens": 1, "stream": stream}
    for more, status in (
        ({}, 200),
        ({"echo": True}, 200),
        ({"return_token_ids": True}, 503),
        ({"echo": True, "logprobs": 0}, 503),
    ):
        peer = await Peer.at(world)
        peer.post(asked | more, "/v1/completions")
        assert await peer.status() == status
        peer.leave()
        await until_so(lambda: budget.answering == 0)


async def test_a_large_error_takes_nothing_from_the_budget_for_good(make_listening, monkeypatch):
    """It is answered outside of what gives the shares back."""
    world = await make_listening(answers_bytes=1 << 20)
    budget = world.app._app._app._app

    async def refuse(*_):
        raise bad_request("x" * 400_000)

    monkeypatch.setattr(budget, "_app", refuse)
    for _ in range(4):
        peer = await Peer.at(world)
        peer.post(HI)
        assert await peer.status() == 400
        await peer.reader.readexactly(400_000)
        assert budget.answering == 0


async def test_a_long_name_is_repeated_in_short(make_listening):
    world = await make_listening()
    peer = await Peer.at(world)
    peer.post(HI | {"logit_bias": {"k" * 100_000: 1}})
    assert b"HTTP/1.1 400 " in await peer.reader.readuntil(b"\r\n\r\n")
    assert b"k" * 200 not in await peer.reader.readuntil(b"}}")
