"""Writes of one turn of the loop are one write of the socket, in their order, and none is lost."""

import asyncio

import pytest

from localspec.serve.http.connections import GatheredWrites


class Socket:
    """A transport that remembers."""

    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.written.append(data)

    def write_eof(self):
        self.written.append(None)

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return 0


@pytest.fixture
async def pair():
    socket = Socket()
    return socket, GatheredWrites(socket, asyncio.get_running_loop(), lambda: None)


async def test_what_is_written_in_a_turn_leaves_together(pair):
    socket, own = pair
    own.write(b"status")
    own.write(b"")
    own.write(b" body")
    assert socket.written == []
    assert own.get_write_buffer_size() == 11
    await asyncio.sleep(0)
    assert socket.written == [b"status body"]
    assert own.get_write_buffer_size() == 0
    own.write(b"more")
    await asyncio.sleep(0)
    assert socket.written[1:] == [b"more"]


async def test_much_leaves_at_once_and_what_is_left_before_the_end(pair):
    socket, own = pair
    own.write(b"a" * (1 << 17))
    assert len(socket.written) == 1
    own.write(b"b")
    own.write_eof()
    own.write(b"c")
    own.close()
    assert socket.written[1:] == [b"b", None, b"c"]
    assert own.is_closing()
    await asyncio.sleep(0)
    assert len(socket.written) == 4


async def test_nothing_is_written_to_a_connection_that_was_aborted(pair):
    socket, own = pair
    own.write(b"late")
    own.abort()
    await asyncio.sleep(0)
    assert socket.written == []
