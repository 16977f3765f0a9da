"""`chat --plain`: commands in a pipe, and Ctrl-C in a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gguf_tools
import pytest
from conftest import Files

from localspec.chats.store import ChatStore
from localspec.cli import interrupt

ROOT = Path(__file__).parent.parent.parent
# On one thread: how many are best is measured else, in each new home.
_LINE = [sys.executable, "-m", "localspec", "chat", "--plain", "--threads", "1"]


def test_commands_are_carried_out_in_a_pipe(files: Files) -> None:
    done = subprocess.run(
        [*_LINE, str(files.target), "-n", "3"],
        input=b"/help\n/system Be brief.\n/temp 0\nhello\n/quit\nnever asked\n",
        capture_output=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1
    assert b"/schema FILE" in done.stderr
    assert b"system prompt: Be brief." in done.stderr
    assert b"temperature 0 from the next reply on" in done.stderr


def test_an_unknown_command_in_a_pipe_is_an_error_and_the_next_line_is_answered(
    files: Files, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it
    done = subprocess.run(
        [*_LINE, str(files.target), "-n", "3"],
        input=f"/frobnicate\n/schema {tmp_path / 'pipe'}\nhello\n/quit\n".encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert b"there is no /frobnicate here" in done.stderr
    assert b"it is no regular file" in done.stderr
    assert done.stdout.count(b"\n") == 1


if sys.platform != "win32":
    import fcntl
    import pty
    import termios

    class Line:
        """A plain chat in a terminal."""

        def __init__(self, *words: str) -> None:
            self._master, slave = pty.openpty()
            self.process = subprocess.Popen(
                [*_LINE, *words],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
            )
            os.close(slave)
            self.text = ""

        def type(self, text: str) -> None:
            os.write(self._master, text.encode("utf-8", "surrogateescape"))

        def wait(self, text: str, seconds: float = 100.0) -> None:
            """Read until a text comes; what was read before it is dropped."""
            end = time.monotonic() + seconds
            while text not in self.text:
                assert time.monotonic() < end, self.text
                if select.select([self._master], [], [], 0.1)[0]:
                    self.text += os.read(self._master, 1 << 16).decode("utf-8", "replace")
            self.text = self.text.partition(text)[2]

        def end(self) -> int:
            """Its exit code."""
            code = self.process.wait(100)
            os.close(self._master)
            return code


@pytest.fixture
def slow(files: Files) -> Path:
    return gguf_tools.write_llama(
        files.folder / "slow.gguf", width=768, layers=8, context=2048, eos=0, seed=9
    )


@contextlib.contextmanager
def talking(*words: str) -> Iterator[Line]:
    line = Line(*words)
    try:
        yield line
    finally:
        line.process.kill()
        line.process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_ctrl_c_stops_the_reply_and_a_second_one_at_the_prompt_ends(slow: Path) -> None:
    with talking(str(slow), "-t", "1", "--seed", "1") as line:
        for question in ("hello", "and again"):
            line.wait("You: ")
            line.type(f"{question}\r")
            line.wait("Model: ")
            time.sleep(2 * interrupt._SAME_S)  # two signals within that are one
            line.type("\x03")
            line.wait("stopped by you")
        line.wait("You: ")
        time.sleep(2 * interrupt._SAME_S)
        line.type("\x03")
        assert line.end() == 130
    with ChatStore() as store:
        chat = store.load(store.last().id)
    assert [m.end for m in chat.messages] == [None, "interrupt", None, "interrupt"]


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_broken_byte_in_a_terminal_is_told_and_the_next_line_is_answered(files: Files) -> None:
    with talking(str(files.target), "-n", "3") as line:
        line.wait("You: ")
        line.type("caf\udcc3\r")
        line.wait("line 1 of stdin is not valid UTF-8 (byte 3 is 0xc3)")
        line.wait("You: ")
        line.type("hello\r")
        line.wait("Model: ")
        line.wait("You: ")
        line.type("/quit\r")
        assert line.end() == 0


def test_a_broken_byte_in_a_pipe_ends_the_chat(files: Files) -> None:
    done = subprocess.run(
        [*_LINE, str(files.target), "-n", "3"],
        input=b"caf\xc3\nnever asked\n",
        capture_output=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert b"line 1 of stdin is not valid UTF-8" in done.stderr
    assert not done.stdout
