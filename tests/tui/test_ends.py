"""However the interface ends, the engine ends with it and the chat is kept; in a real terminal."""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

import known_speed
import psutil
import pytest
import terminals

from localspec.chats.store import ChatStore

ROOT = Path(__file__).parents[2]
CHAT = [sys.executable, "-m", "localspec", "chat", "-t", "0", "--threads", "1"]
"""One thread: several of llama.cpp spin while they wait for each other."""

pytestmark = [
    pytest.mark.slow,
    terminals.needed,
    pytest.mark.skipif(
        not (ROOT / "localspec/demo/target.gguf").exists(), reason="the demo pair is not there"
    ),
]


@pytest.fixture(autouse=True)
def _known_speed(_own_home):
    known_speed.save()


def start(*arguments):
    """`localspec chat` in a pseudo-terminal: its process id and the terminal's other end."""
    import pty

    pid, fd = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.chdir(ROOT)
        os.environ.update(TERM="xterm-256color", TEXTUAL_ANIMATIONS="none")
        os.execv(sys.executable, [*CHAT, *arguments])
    return pid, fd


def drain(fd):
    """Read what is drawn, or the program stops drawing."""
    while select.select([fd], [], [], 0.02)[0]:
        try:
            if not os.read(fd, 65536):
                return
        except OSError:
            return


def until(fd, predicate, seconds=60):
    end = time.monotonic() + seconds
    while not (found := predicate()):
        assert time.monotonic() < end, "waited in vain"
        if fd is not None:
            drain(fd)
    return found


def said():
    """The texts of the chat used last; none while there is no chat."""
    with contextlib.suppress(Exception), ChatStore() as store:
        return [(m.text, m.end) for m in store.load(store.last().id).messages]
    return []


def engine_of(pid):
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            if "localspec.engine" in " ".join(child.cmdline()):
                return child
    return None


def takes_keys(fd):
    """Whether the terminal passes on what is typed; before, Enter would arrive as a new line."""
    import termios

    return not termios.tcgetattr(fd)[3] & termios.ICANON


def gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("end", ["kill -9", "the terminal is closed", "quit"])
def test_the_engine_ends_with_the_interface_and_the_chat_is_kept(end):
    pid, fd = start()
    engine = until(fd, lambda: takes_keys(fd) and engine_of(pid))
    os.write(fd, b"What is localspec?\r")
    until(fd, lambda: [x for x in said() if x[1] == "stop"])
    # And another one, which is cut by the end.
    os.write(fd, b"Make a list of ten animals.\r")
    until(fd, lambda: len(said()) == 4)
    if end == "kill -9":
        os.kill(pid, signal.SIGKILL)
    elif end == "quit":
        os.write(fd, b"\x11")
    else:
        os.close(fd)
        fd = None
    until(fd, lambda: gone(engine))
    until(fd, lambda: os.waitpid(pid, os.WNOHANG)[0])
    if fd is not None:
        os.close(fd)
    kept = said()
    assert [text for text, _ in kept[::2]] == ["What is localspec?", "Make a list of ten animals."]
    assert kept[1][0]


def test_a_chat_in_a_terminal_that_does_not_control_it_ends_with_that_terminal():
    """No signal tells it: under `setsid`, in some containers and editors."""
    import pty

    fd, terminal = pty.openpty()
    chat = psutil.Popen(
        CHAT,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        engine = until(fd, lambda: takes_keys(fd) and engine_of(chat.pid))
        os.write(fd, b"What is localspec?\r")
        until(fd, lambda: [x for x in said() if x[1] == "stop"])
        os.close(fd)
        until(None, lambda: gone(engine))
        chat.wait(60)
    finally:
        if chat.poll() is None:
            chat.kill()
    assert next(text for text, _ in said()) == "What is localspec?"


def test_the_last_chat_is_on_show_after_a_kill_and_goes_on():
    pid, fd = start()
    until(fd, lambda: takes_keys(fd))
    os.write(fd, b"What is 2 + 3?\r")
    until(fd, lambda: [x for x in said() if x[1] == "stop"])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)

    pid, fd = start("-c")
    engine = until(fd, lambda: takes_keys(fd) and engine_of(pid))
    os.write(fd, b"What is 4 + 4?\r")
    until(fd, lambda: len(said()) == 4 and said()[-1][1] == "stop")
    os.write(fd, b"\x11")
    until(fd, lambda: os.waitpid(pid, os.WNOHANG)[0])
    os.close(fd)
    assert gone(engine)
    assert [text for text, _ in said()[::2]] == ["What is 2 + 3?", "What is 4 + 4?"]
