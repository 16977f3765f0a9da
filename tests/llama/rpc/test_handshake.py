"""Workers are asked before llama.cpp, which aborts on them, is."""

from __future__ import annotations

import socket

import pytest
import rpc_servers
from rpc_servers import serving

from localspec.core.endpoint import Endpoint, endpoints
from localspec.core.errors import UsageError, WorkerError
from localspec.llama.rpc import handshake
from localspec.llama.rpc.handshake import Version


def ask(address: str, patience: float = 20.0) -> handshake.Worker:
    return handshake.ask(Endpoint.parse(address), patience)


def test_a_worker_says_its_version_and_the_memory_of_its_devices() -> None:
    with serving(rpc_servers.worker((7, 0, 0), free=3 << 30, devices=2)) as address:
        found = ask(address)
    assert found.version == Version(7, 0, 0)
    assert [(d.free, d.total) for d in found.devices] == [(3 << 30, 6 << 30)] * 2
    found.require(Version(7, 0, 0))


def test_a_device_with_more_free_than_it_has_is_full() -> None:
    with serving(rpc_servers.worker((7, 0, 0), free=(1 << 64) - 5, total=8 << 30)) as address:
        assert [(d.free, d.total) for d in ask(address).devices] == [(0, 8 << 30)]


@pytest.mark.parametrize("other", [(6, 0, 0), (7, 1, 0), (7, 0, 1), (8, 0, 0)])
def test_a_worker_of_any_other_version_is_refused_by_name(other: tuple[int, int, int]) -> None:
    with serving(rpc_servers.worker(other)) as address:
        found = ask(address)
    with pytest.raises(WorkerError, match=rf"{address} speaks version {found.version} .* 7\.0\.0"):
        found.require(Version(7, 0, 0))


def test_versions_are_compared_before_a_worker_is_asked_for_more() -> None:
    """A worker of another version may end the connection at the first further question."""
    with (
        serving(rpc_servers.worker((6, 0, 0), devices=0)) as address,
        pytest.raises(WorkerError, match=r"speaks version 6\.0\.0 .* 7\.0\.0"),
    ):
        handshake.ask(Endpoint.parse(address), version=Version(7, 0, 0))


def test_where_nothing_listens_the_error_says_what_to_start() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(WorkerError, match=rf"nothing listens at {address}; start `localspec w"):
            ask(address)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (rpc_servers.saying(b"SSH-2.0-OpenSSH_9.6\r\n"), "answers are not those"),
        (rpc_servers.saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "answers are not those"),
        (rpc_servers.saying(b"\xff" * 64), "answers are not those"),
        (rpc_servers.closing, "closed the connection"),
        (rpc_servers.worker((7, 0, 0), devices=0), "reports 0 devices"),
        (rpc_servers.worker((7, 0, 0), devices=1 << 31), "reports 2147483648 devices"),
    ],
)
def test_what_is_no_worker_is_told_from_one(answer: rpc_servers.Answer, reason: str) -> None:
    with serving(answer) as address, pytest.raises(WorkerError, match=reason) as caught:
        ask(address)
    assert str(caught.value).startswith(f"{address} is not a worker of this version")


@pytest.mark.parametrize("answer", [rpc_servers.silent, rpc_servers.saying(b"\x1c\0\0")])
def test_who_does_not_answer_is_not_waited_for(answer: rpc_servers.Answer) -> None:
    with serving(answer) as address, pytest.raises(WorkerError, match="serves another client"):
        ask(address, patience=0.2)


def test_a_name_that_nobody_has_is_said_to_be_unknown() -> None:
    with pytest.raises(WorkerError, match=r"has the name nowhere\.invalid"):
        ask("nowhere.invalid:50052")


def test_addresses_are_read_as_users_write_them() -> None:
    assert endpoints(None) == endpoints("") == endpoints("none") == ()
    found = endpoints("there, 10.0.0.2:7,a-b.c:65535")
    assert list(map(str, found)) == ["there:50052", "10.0.0.2:7", "a-b.c:65535"]


@pytest.mark.parametrize(
    "text",
    [
        *(":1", "a:", "a:0", "a:65536", "a:-1", "a:x", "a b:1", "http://a:1", "::1", "[::1]:1"),
        *("a,,b", "a:1,a:1", ",".join(f"a:{n}" for n in range(1, 18)), "-a:1", "a\n:1", "é:1"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        endpoints(text)
