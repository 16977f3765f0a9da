"""Output to a terminal, and to a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chats.calls import SavedCall
from localspec.chats.journal import Journal
from localspec.cli import chat_lines, run
from localspec.cli.line_commands import Silent
from localspec.cli.output import json_line, read_stdin, stdin_line, write
from localspec.cli.run_report import calls_report
from localspec.cli.streams import waiting
from localspec.core.emitted import Origin
from localspec.core.events import (
    Finished,
    Notice,
    Reply,
    ReplyEvent,
    Speculation,
    Stats,
    Token,
)

STATS = Stats(1, 0, 2, 2, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, Speculation("on"))


class Stdout(io.TextIOWrapper):
    """Standard output that is a terminal, or is not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def written(text: str, *, terminal: bool) -> str:
    out = Stdout(terminal=terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        write(text)
    return out.buffer.getvalue().decode()


def test_a_terminal_obeys_nothing_that_a_model_says() -> None:
    text = "a\x1b[31mred\x1b]52;c;aGk=\x07\x9b2J\x08\rb\tc\n"
    shown = written(text, terminal=True)
    assert shown == "a\ufffd[31mred\ufffd]52;c;aGk=\ufffd\ufffd2J\ufffdb\tc\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_only_tab_and_line_end_are_left_of_the_control_characters(text: str) -> None:
    shown = written(text, terminal=True)
    controls = {c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160}
    assert controls <= {"\t", "\n"}
    assert [c for c in shown if c.isalnum()] == [c for c in text if c.isalnum()]


def test_joined_and_right_to_left_characters_are_kept() -> None:
    text = "👩\u200d👧 \u200fשלום\u00a0x e\u0301\n"
    assert written(text, terminal=True) == text


def test_a_pipe_gets_the_text_as_it_is() -> None:
    text = "a\x1b[31m\r\n"
    assert written(text, terminal=False) == text


def follow(events: Iterator[ReplyEvent]) -> None:
    run._follow(events, show=True)


def stream(events: Iterator[ReplyEvent]) -> None:
    chat_lines._stream(events, "Why?", Journal(None), Silent(), None)


@pytest.mark.parametrize("told", [follow, stream])
def test_notices_do_not_cut_a_line_of_the_reply(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[Iterator[ReplyEvent]], None]
) -> None:
    """On a terminal both streams are one."""
    screen = Stdout(terminal=False)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    reply = Reply("one two", (1, 2), (Origin.PLAIN,) * 2, "stop", STATS, 1)
    words = [Token(i, text, Origin.PLAIN, None) for i, text in ((1, "one "), (2, "two"))]
    events = [Notice("before"), words[0], Notice("between"), words[1], Notice("after")]
    told(iter([*events, Finished(reply)]))
    screen.flush()
    assert screen.buffer.getvalue().decode().splitlines() == [
        "localspec: before", "one two", "localspec: between", "localspec: after",
    ]  # fmt: skip


def test_a_call_that_json_cannot_hold_is_reported_as_it_was_written() -> None:
    call = SavedCall("1", "calc__add", '{"x": 1e999}', "calc/add", "failed", "Error")
    (found,) = json.loads(json_line(calls_report([call])))["calls"]
    assert found["arguments"] == {"arguments": '{"x": 1e999}'}


@pytest.mark.parametrize("supervised", [False, True])
@pytest.mark.parametrize("columns", ["", "no", "-5", "9" * 5000])
def test_a_line_of_progress_is_as_wide_as_the_terminal_of_stderr_whatever_stdout_is(
    supervised: bool, columns: str
) -> None:
    master, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 120))
    told = "from localspec.cli.output import say_over; say_over('x' * 200)"
    if supervised:
        begun = "import os; from localspec.cli.containment import _divert; _divert(os.pipe()[1])"
        told = f"{begun}; {told}"
    environment = os.environ | {"COLUMNS": columns}
    with os.fdopen(master, "rb"), os.fdopen(terminal, "wb"):
        subprocess.run(
            [sys.executable, "-c", told],
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=environment,
            check=True,
        )
        assert os.read(master, 1000).count(b"x") == 119


def read_line() -> str:
    return stdin_line().decode()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as a stream is waited for."""
    waits, wait = threading.Event(), select.select

    def noted(*streams: Any) -> Any:
        waits.set()
        return wait(*streams)

    monkeypatch.setattr(select, "select", noted)
    return waits


def read_bytes() -> str:
    return sys.stdin.buffer.read().decode()


@pytest.mark.parametrize("reads", [read_stdin, read_line, read_bytes])
def test_reading_waits_for_all_of_a_stdin_that_does_not_wait_itself(
    monkeypatch: pytest.MonkeyPatch, waits: threading.Event, reads: Callable[[], str]
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def write_later() -> None:
        os.write(writer, b"first half, ")
        waits.wait()
        os.write(writer, b"second half\n")
        os.close(writer)

    thread = threading.Thread(target=write_later)
    with os.fdopen(reader, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", waiting(stdin))
        thread.start()
        assert reads() == "first half, second half\n"
        assert not os.get_blocking(reader)  # as the other program wants it
        thread.join()


def test_writing_waits_for_a_slow_reader_of_a_stdout_that_does_not_wait_itself(
    monkeypatch: pytest.MonkeyPatch, waits: threading.Event
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    read: list[bytes] = []

    def read_later() -> None:
        waits.wait()
        while part := os.read(reader, 1 << 16):
            read.append(part)
        os.close(reader)

    thread = threading.Thread(target=read_later)
    with os.fdopen(writer, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", waiting(stdout))
        thread.start()
        write("x" * (1 << 20))
        assert not os.get_blocking(writer)
    thread.join()
    assert len(b"".join(read)) == 1 << 20


@pytest.mark.parametrize(
    ("words", "said"),
    [(["chats", "show", "nope"], "no chat 'nope'"), (["chat", "--plain", "-m", "demo"], "/quit")],
)
def test_a_command_waits_for_the_slow_reader_of_a_stderr_that_does_not_wait_itself(
    words: list[str], said: str
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 512)
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=writer,
    )
    ended = threading.Thread(target=process.communicate, args=(b"/help\n",))
    ended.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)  # long enough for it to find the stream full; else less is tried
    assert not os.get_blocking(writer)
    os.close(writer)
    read = b""
    while part := os.read(reader, 1 << 16):
        read += part
    os.close(reader)
    ended.join()
    assert said in read[filled:].decode()
