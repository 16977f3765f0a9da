"""The whole thing, once: the command in a pseudo-terminal with the real engine."""

import contextlib
import os
import re
import select
import signal
import struct
import sys
import time
from pathlib import Path

import psutil
import pytest
import terminals

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    terminals.needed,
    pytest.mark.skipif(
        not (ROOT / "localspec/demo/target.gguf").exists(), reason="the demo pair is not there"
    ),
]

_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)")


class Terminal:
    """`localspec chat`, or another command, in a pseudo-terminal."""

    def __init__(self, *arguments, command="chat"):
        import fcntl
        import pty
        import termios

        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
            os.chdir(ROOT)
            os.environ.update(TERM="xterm-256color", TEXTUAL_ANIMATIONS="none")
            os.execv(sys.executable, [sys.executable, "-m", "localspec", command, *arguments])
        self.raw = b""
        self.seen = 0

    def wait_for(self, *texts, seconds=100):
        """Read until one of the texts is drawn that was not before; which one it is."""
        end = time.monotonic() + seconds
        while not any(text in self.drawn()[self.seen :] for text in texts):
            drawn = self.drawn()[self.seen :]
            assert time.monotonic() < end, f"none of {texts!r} in {drawn[-2000:]!r}"
            self._read()
        drawn = self.drawn()[self.seen :]
        _, text = min((drawn.index(text), text) for text in texts if text in drawn)
        self.seen += drawn.index(text) + len(text)
        return text

    def wait_for_raw(self, sequence, seconds=100):
        """Read until the terminal was sent this sequence."""
        end = time.monotonic() + seconds
        while sequence not in self.raw:
            assert time.monotonic() < end, f"no {sequence!r}"
            self._read()

    def compare(self):
        """Open the comparison, as soon as the reply has ended: its figures may be drawn before."""
        for _ in range(20):  # a reply that still runs is not compared
            self.type("\x1bOR")  # F3
            with contextlib.suppress(AssertionError):
                if (
                    self.wait_for("with drafting", "that can be repeated", seconds=10)
                    == "with drafting"
                ):
                    return
        raise AssertionError("no comparison")

    def drawn(self):
        return re.sub(
            r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)", "", self.raw.decode("utf-8", "replace")
        )

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def resize(self, rows, columns):
        import fcntl
        import termios

        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def engine(self, seconds=100):
        """The engine process, as soon as it is there."""
        end = time.monotonic() + seconds
        while True:
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if "localspec.engine" in child.cmdline() and alive(child):
                        return child
            assert time.monotonic() < end, "there is no engine"
            self._read()

    def end(self, seconds=100):
        """Wait for the exit status."""
        end = time.monotonic() + seconds
        while True:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, "it does not end"

    def ends_well(self):
        """Wait for the end, with status 0; else what it said last is shown."""
        code = self.end()
        assert code == 0, f"exit status {code}: {self.drawn()[-2000:]!r}"

    def _read(self):
        if select.select([self.fd], [], [], 0.1)[0]:
            try:
                self.raw += os.read(self.fd, 65536)
            except OSError:  # the other side is closed
                time.sleep(0.05)


def alive(process):
    """Whether it runs; it may be dead though nobody has collected it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_chat_from_start_to_end():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    assert "\x1b]2;localspec · demo\x07".encode() in terminal.raw  # the window's title
    terminal.type("Make a list of three animals.\r")
    terminal.wait_for(" tokens in ")
    engine = terminal.engine()

    engine.send_signal(signal.SIGKILL)
    terminal.wait_for("SIGKILL")
    terminal.type("\x12")  # Ctrl+R
    terminal.wait_for("ready", " tok/s")
    terminal.type("What is 2 + 3?\r")
    terminal.wait_for(" tokens in ")

    engine = terminal.engine()
    terminal.type("\x11")  # Ctrl+Q
    terminal.ends_well()
    assert not alive(engine)
    assert b"\x1b[?1049l" in terminal.raw  # back to the ordinary screen


def test_typing_stopping_comparing_and_quitting():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    terminal.type("Tell me a long story about a fox.\r")
    drawn = terminal.wait_for(" tok/s", " tokens in ")  # a quick reply is already at its end
    if drawn != " tokens in ":
        terminal.type("\x1b")
        terminal.wait_for(" tokens in ", "stopped")  # it may have had one token so far
    terminal.type("What is 2 + 3?\r")
    terminal.wait_for(" tokens in ")
    terminal.compare()
    terminal.wait_for("identical: all ")
    terminal.type("\x1b")
    terminal.wait_for("Help")
    terminal.type("/quit\r")
    terminal.ends_well()
    assert b"\x1b[?1049l" in terminal.raw


def test_an_engine_killed_in_the_middle_of_a_reply_leaves_what_was_said():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    engine = terminal.engine()
    terminal.type("Make a list of twenty animals.\r")
    terminal.wait_for(" tok/s")
    engine.send_signal(signal.SIGKILL)
    terminal.wait_for("SIGKILL")
    terminal.wait_for("Ctrl+R")
    terminal.type("\x12")
    terminal.wait_for("ready", " tok/s")
    terminal.type("What is 2 + 3?\r")
    terminal.wait_for(" tokens in ")
    terminal.type("\x11")
    terminal.ends_well()


def test_a_terminal_that_is_resized_while_the_model_speaks():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    terminal.type("Make a list of twenty animals.\r")
    terminal.wait_for(" tok/s")
    for rows, columns in ((15, 60), (50, 200), (24, 80), (30, 120)):
        terminal.resize(rows, columns)
        terminal.wait_for("Message")
    terminal.type("What is 2 + 3?\r")
    terminal.wait_for("2 + 3 = 5.")
    terminal.type("\x11")
    terminal.ends_well()
    assert b"Traceback" not in terminal.raw


def test_quitting_in_the_middle_of_a_reply():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    engine = terminal.engine()
    terminal.type("Make a list of twenty animals.\r")
    terminal.wait_for(" tok/s")  # Ctrl+C before would put the text of the composer aside
    terminal.type("\x03\x03")
    terminal.ends_well()
    assert not alive(engine)


def test_a_missing_model_is_one_line_after_the_terminal_is_back():
    terminal = Terminal("nothing.gguf")
    assert terminal.end() == 3
    after = terminal.raw.rsplit(b"\x1b[?1049l", 1)[1].decode()
    assert "localspec: " in after
    assert "nothing.gguf" in after
    assert "Traceback" not in after


def test_the_first_chat_begins_with_the_race_which_a_key_leaves_and_which_comes_once():
    terminal = Terminal()
    terminal.wait_for("the same question twice")
    terminal.type("h")
    terminal.wait_for("ready")
    terminal.type("\x11")  # Ctrl+Q
    terminal.ends_well()
    again = Terminal()
    again.wait_for("ready")
    again.type("\x11")
    assert again.end() == 0
    assert "the same question twice" not in again.drawn()


def test_a_first_chat_after_the_demo_shows_no_second_race():
    terminal = Terminal(command="demo")
    terminal.wait_for("the same question twice")
    terminal.type("\x11")
    terminal.ends_well()
    chat = Terminal()
    chat.wait_for("ready")
    chat.type("\x11")
    assert chat.end() == 0
    assert "the same question twice" not in chat.drawn()


def test_being_told_to_end_restores_the_terminal():
    terminal = Terminal("-t", "0")
    terminal.wait_for("ready")
    engine = terminal.engine()
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in terminal.raw
    assert not alive(engine)


def test_being_told_to_end_while_it_starts_restores_the_terminal():
    terminal = Terminal("-t", "0")
    terminal.wait_for_raw(b"\x1b[?1049h")  # full screen, and nothing is drawn yet
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in terminal.raw


def test_a_chat_in_lines_names_who_speaks_and_never_places_the_cursor():
    terminal = Terminal("--plain", "-t", "0")
    terminal.wait_for("You: ")
    terminal.type("What is 2 + 3?\r")
    terminal.wait_for("Model: ")
    terminal.wait_for("tokens per second, ")
    terminal.wait_for("You: ")
    terminal.type("/nonsense\r")
    terminal.wait_for("there is no /nonsense here; /help lists the commands")
    terminal.wait_for("You: ")
    terminal.type("/system Be brief.\r")
    terminal.wait_for("system prompt: Be brief.")
    terminal.wait_for("You: ")
    terminal.type("\x04")  # Ctrl+D
    terminal.ends_well()
    assert b"\x1b" not in terminal.raw
