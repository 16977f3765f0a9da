"""SIGKILL of the interface, or of its engine, at random moments of a chat.

What was on the screen for a second is in the file of chats, which is whole; an interface whose
engine was killed continues.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from faults.kill_writers import database_wrong
from faults.runner import Search
from faults.terminal import SilentError, Terminal

_READY = ("ready", "tok/s")
_ENDED = " tokens in "
_SHOWN = 1.0
"""Seconds on the screen after which nothing may be lost."""
_QUESTIONS = (
    "Make a list of three animals.",
    "Write a Python function that adds two numbers.",
    "Make a list of five fruits.",
    "What is 2 + 3?",
    "Tell me a story about a fox.",
)


@dataclass(frozen=True)
class Case:
    """One chat and one kill."""

    seed: int
    victim: str
    """interface or engine."""
    slow: bool
    """The engine is stopped most of the time, so that replies last for seconds."""
    starting: bool
    """Killed while it starts, not in the middle of the chat."""
    seconds: float
    """From the start of the program, or from the first question."""


class KillInterface(Search):
    """Kills of the interface and of its engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "interface"
        self._folder.mkdir()
        self._number = 0
        self._kills = {"interface": 0, "engine": 0}
        self._words = 0
        self._replies = _replies()

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        victim = ("interface", "engine")[seed % 2]
        starting = rng.random() < 0.15
        seconds = rng.uniform(0.1, 3.0 if starting else 6.0)
        return Case(seed, victim, rng.random() < 0.6, starting, seconds)

    def wrong(self, case: Case) -> str | None:
        self._number += 1
        home = self._folder / str(self._number)
        home.mkdir(mode=0o700)
        terminal = Terminal(home, "-t", "0", "--threads", "1")
        try:
            chat = _Chat(terminal, home, case, self._replies)
            what = chat.wrong()
            self._words += chat.words
            self._kills[case.victim] += 1
        except SilentError as error:
            return str(error)
        finally:
            with contextlib.suppress(OSError, SilentError):
                terminal.kill()
            shutil.rmtree(home, ignore_errors=True)
        return what

    def figures(self) -> Iterator[str]:
        yield f"interface {self._kills['interface']} times killed, engine {self._kills['engine']}"
        yield f"{self._words} messages and words that were on the screen looked for"


class _Chat:
    """Questions, a kill, and what is there afterwards."""

    def __init__(self, terminal: Terminal, home: Path, case: Case, replies: list[str]) -> None:
        self._terminal, self._home, self._case = terminal, home, case
        self._replies = replies
        self._asked: list[tuple[str, int]] = []
        """Each question, and the place in what was drawn at which it was sent."""
        self._before = ""
        self.words = 0

    def wrong(self) -> str | None:
        """The fault, or None."""
        case, terminal = self._case, self._terminal
        if case.starting:
            terminal.read(case.seconds)
        else:
            terminal.wait(0, *_READY)
            terminal.read(0.3)
            self._before = terminal.since(0)
            self._talk(time.monotonic() + case.seconds)
        engine = terminal.engine()
        terminal.read(0.0)
        killed = time.monotonic()
        if case.victim == "interface" or engine is None:
            terminal.kill()
            if engine is not None:
                with contextlib.suppress(psutil.NoSuchProcess):  # it may have been stopped
                    engine.send_signal(signal.SIGCONT)
                _, alive = psutil.wait_procs([engine], 20)
                if alive:
                    engine.kill()
                    return "the engine is left behind"
        else:
            mark = terminal.mark()
            with contextlib.suppress(psutil.NoSuchProcess):
                engine.kill()
            if what := self._goes_on(mark):
                return what
        return database_wrong(self._database) or self._lost(killed - _SHOWN)

    @property
    def _database(self) -> Path:
        return self._home / "data" / "chats.db"

    def _talk(self, end: float) -> None:
        """Questions one after the other until a time."""
        stop = threading.Event()
        slow = threading.Thread(target=self._slow_down, args=(stop,))
        if self._case.slow:
            slow.start()
        try:
            for question, reply in zip(_QUESTIONS, self._replies, strict=True):
                if time.monotonic() >= end:
                    break
                self._terminal.type(question)
                self._terminal.read(0.3)
                self._asked.append((question, self._terminal.mark()))
                self._terminal.type("\r")
                while time.monotonic() < end:
                    self._terminal.read(0.1)
                    if reply in _texts(self._database):  # it has ended: Enter sends the next one
                        self._terminal.read(0.6)
                        break
            self._terminal.read(max(0.0, end - time.monotonic()))
        finally:
            stop.set()
            if self._case.slow:
                slow.join()

    def _slow_down(self, stop: threading.Event) -> None:
        engine = self._terminal.engine()
        with contextlib.suppress(psutil.NoSuchProcess):
            while engine is not None and not stop.is_set():
                engine.send_signal(signal.SIGSTOP)
                stop.wait(0.25)
                engine.send_signal(signal.SIGCONT)
                stop.wait(0.02)

    def _goes_on(self, mark: int) -> str | None:
        """The interface says what happened, starts the engine again and answers."""
        terminal = self._terminal
        terminal.wait(mark, "SIGKILL")
        terminal.read(0.5)
        if self._case.starting and not terminal.runs():  # without a model there is nothing to do
            return None
        mark = terminal.mark()
        terminal.type("\x12")  # Ctrl+R
        end = time.monotonic() + 60
        while terminal.engine() is None and time.monotonic() < end:
            terminal.read(0.1)
        terminal.wait(mark, *_READY, _ENDED)
        terminal.read(0.5)
        terminal.type("\x15")  # whatever was being typed
        mark = terminal.mark()
        terminal.type("What is 2 + 3?\r")
        terminal.wait(mark, _ENDED)
        terminal.type("\x11")  # Ctrl+Q
        code = terminal.end()
        return None if code == 0 else f"it ends with {code}"

    def _lost(self, until: float) -> str | None:
        """Texts drawn before a time that are not in the file of chats."""
        if not self._asked:
            return None
        saved = _texts(self._database)
        marks = [*(mark for _, mark in self._asked), None]
        for number, (question, mark) in enumerate(self._asked):
            if question not in self._terminal.since(mark, until):
                continue
            self.words += 1
            if question not in saved:
                return f"a question that was on the screen is lost: {question!r}"
            shown = "".join(
                text for at, text in self._terminal.drawn[mark : marks[number + 1]] if at <= until
            )
            # Words that belong to the reply alone, drawn whole, are on the screen.
            for word in set(re.findall(r"[a-z]{4,12}", self._replies[number])):
                if word in self._before or word in question or not _has(shown, word):
                    continue
                self.words += 1
                if not any(_has(text, word) for text in saved):
                    return f"a word that was on the screen is lost: {word!r}, saved is {saved!r}"
        return None


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<![a-z]){word}(?![a-z])", text) is not None


def _replies() -> list[str]:
    """The demo model's answers to the questions, asked in their order."""
    from localspec import Message, Options, Runtime
    from localspec.core.sampling_params import Sampling

    messages: list[Message] = []
    with Runtime.open(Options(model="demo", threads=1)) as runtime:
        for question in _QUESTIONS:
            messages.append(Message("user", question))
            *_, end = runtime.reply(messages, sampling=Sampling(temperature=0.0))
            messages.append(Message("assistant", end.reply.text))
    return [message.content for message in messages[1::2]]


def _texts(path: Path) -> list[str]:
    """All texts of a file of chats."""
    if not path.exists():
        return []
    base = sqlite3.connect(path)
    try:
        return [text for (text,) in base.execute("SELECT text FROM messages ORDER BY id")]
    except sqlite3.OperationalError:  # the file is being made
        return []
    finally:
        base.close()
