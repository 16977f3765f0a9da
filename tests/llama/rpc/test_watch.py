"""A wait for a worker has a limit, which follows what passes took."""

from __future__ import annotations

import socket
import threading

import pytest

from localspec.core.endpoint import Endpoint
from localspec.llama.rpc.watch import (
    FIRST_S,
    Watch,
    _Usual,
    accepted_at,
    connections_to,
    keep_alive,
)

HERE = Endpoint("127.0.0.1", 50052)


def test_a_wait_that_is_too_long_is_given_up() -> None:
    given_up = threading.Event()
    watch = Watch((HERE,), 0.05, given_up.set)
    with watch.waiting():
        assert given_up.wait(60)


def test_what_is_heard_meanwhile_and_a_pause_between_waits_are_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("localspec.llama.rpc.watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Watch, "_start", lambda _: None)
    watch = Watch((HERE,), 10.0)
    with watch.waiting():
        now[0] = 9.0
        assert not watch.late
        watch.heard()
        now[0] = 18.0
        assert not watch.late
        now[0] = 20.0
        assert watch.late
    assert not watch.late


def test_the_limit_follows_what_passes_took() -> None:
    usual = _Usual()
    assert usual.limit(0) == usual.limit(1) == usual.limit(512) == FIRST_S
    usual.add(1, 8.0)
    assert usual.limit(1) == usual.limit(17) == 80.0
    assert usual.limit(512) == 640.0, "a machine this slow reads a prompt slowly, too"
    usual.add(512, 51.2)
    assert usual.limit(512) == 512.0
    usual.add(5, 0.01)
    assert usual.limit(5) == 80.0, "the slowest counts"
    quick = _Usual()
    quick.add(4, 0.01)
    assert quick.limit(4) == 30.0


def test_rows_are_timed_until_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp returns from a pass before a worker has computed it."""
    now = [0.0]
    monkeypatch.setattr("localspec.llama.rpc.watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Watch, "_start", lambda _: None)
    watch = Watch((HERE,))
    with watch.waiting(4):
        now[0] += 1.0
    now[0] += 100.0  # what happens here in between is not the worker's time
    with watch.answering():
        now[0] += 7.0
    with watch.waiting(4):
        assert watch.limit == 80.0


def test_connections_of_native_code_are_found_by_their_address() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as peer:
            for found in connections_to([Endpoint("127.0.0.1", port)]):
                keep_alive(found)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for found in accepted_at(port):
                keep_alive(found, 5)
            assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            client.sendall(b"still open")
            assert peer.recv(10) == b"still open"
