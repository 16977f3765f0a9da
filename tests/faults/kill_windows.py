"""Many windows, commands and imports on one file of chats, killed at random, against a model of
what must be there.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import random
import select
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import window
from faults.kill_writers import database_wrong
from faults.limits import environment
from faults.runner import Search
from localspec.core.processes.children import command

_PATIENCE = 60.0
_ERASED = "it was erased elsewhere"
_KINDS = {
    "ask": 10,
    "go_on": 3,
    "both_go_on": 4,
    "new": 3,
    "resume": 3,
    "sync": 2,
    "kill": 2,
    "quit": 1,
    "erase": 2,
    "erase_killed": 1,
    "remove": 2,
    "restore": 1,
    "rename": 1,
    "import": 1,
    "import_killed": 1,
    "lock": 1,
}
"""Steps, and how often each is taken."""


@dataclass(frozen=True)
class Step:
    """One thing that a window or a command does."""

    kind: str
    window: int
    chat: float
    """Which of the chats that there are, as a fraction of their number."""
    moment: float
    """Fraction of a command's duration at which it is killed; above 0.5 a reply ends."""


@dataclass(frozen=True)
class Case:
    """What is done to one file of chats."""

    seed: int
    windows: int
    steps: tuple[Step, ...]


@dataclass
class _Chat:
    """What must be true of a chat."""

    title: str | None = None
    """As a command has set it."""
    given: dict[str, str] = field(default_factory=dict)
    """Every text, and where it is: `sure` on disk, `sent` to a window, `maybe` after a kill."""
    asked: dict[str, list[str]] = field(default_factory=dict)
    """Every question of a window, and the texts that it showed before it."""
    erased: bool = False
    after: list[str] = field(default_factory=list)
    """Texts that were given after the erasure."""
    removed: bool | None = False
    """None where a killed window decides."""


class WrongError(Exception):
    """A fault."""


class KillWindows(Search):
    """Many processes on one file of chats."""

    def __init__(self, folder: Path, defect: str = "") -> None:
        """``defect`` is one of `faults.window.DEFECT`, for a negative control."""
        self._folder, self._defect = folder / "windows", defect
        self._folder.mkdir()
        self._number = 0
        self._taken: collections.Counter[str] = collections.Counter()
        self._texts = 0

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        windows = rng.randint(2, 4)
        kinds = rng.choices(list(_KINDS), list(_KINDS.values()), k=rng.randint(10, 40))
        steps = [Step(k, rng.randrange(windows), rng.random(), rng.random()) for k in kinds]
        return Case(seed, windows, tuple(steps))

    def smaller(self, case: Case) -> Iterator[Case]:
        size = len(case.steps) // 2
        while size:
            for start in range(0, len(case.steps), size):
                steps = case.steps[:start] + case.steps[start + size :]
                yield dataclasses.replace(case, steps=steps)
            size //= 2

    def wrong(self, case: Case) -> str | None:
        self._number += 1
        home = self._folder / str(self._number)
        home.mkdir(mode=0o700)
        run = _Run(home, case, self._defect)
        try:
            run.all()
        except WrongError as error:
            return str(error)
        finally:
            run.close()
            self._taken.update(step.kind for step in case.steps)
            self._texts += sum(len(chat.given) for chat in run.chats.values())
            shutil.rmtree(home, ignore_errors=True)
        return None

    def figures(self) -> Iterator[str]:
        taken = ", ".join(f"{kind} {count}" for kind, count in sorted(self._taken.items()))
        yield f"{taken}; {self._texts} texts looked for"


class _Process:
    """A process of `faults.window`."""

    def __init__(self, home: Path, kind: str, defect: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", window.__file__, kind],
            env=environment() | {"LOCALSPEC_HOME": str(home), window.DEFECT: defect},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.chats: set[str] = set()
        """The chats that are open in this window."""

    def do(self, name: str, **arguments: Any) -> Any:
        """Its answer."""
        answer = self._answer([name, arguments])
        if "error" in answer:
            raise WrongError(f"{name} fails: {answer['error']}")
        return answer["answer"]

    def _answer(self, line: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WrongError(f"a process has ended before {line[0]}") from None
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        found = self._process.stdout.readline() if ready else b""
        if not found:
            raise WrongError(f"no answer to {line[0]}")
        answer: dict[str, Any] = json.loads(found)
        return answer

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()


class _Run:
    """One case, and the model of what must be there."""

    def __init__(self, home: Path, case: Case, defect: str) -> None:
        self._home, self._case, self._defect = home, case, defect
        self._path = home / "data" / "chats.db"
        self.chats: dict[str, _Chat] = {}
        self._count = 0
        self._shell = _Process(home, "shell", defect)
        self._windows = [_Process(home, "window", defect) for _ in range(case.windows)]

    def all(self) -> None:
        """Take all steps, end all windows, and compare.

        Raises:
            WrongError: something is not as it must be.
        """
        self._shell.do("make")
        for step in self._case.steps:
            getattr(self, f"_{step.kind}")(step)
        for number in range(len(self._windows)):
            self._quit(Step("quit", number, 0, 0))
        self._compare()

    def close(self) -> None:
        """End all processes."""
        for process in (self._shell, *self._windows):
            process.kill()

    # -- windows -------------------------------------------------------------------------------

    def _new(self, step: Step) -> None:
        process = self._windows[step.window]
        chat = process.do("new")
        process.chats.add(chat)
        self.chats[chat] = _Chat()
        self._say(step, chat)

    def _ask(self, step: Step) -> None:
        opened = [chat for chat in self.chats if chat in self._windows[step.window].chats]
        if opened:
            self._say(step, opened[int(step.chat * len(opened))])

    def _both_go_on(self, step: Step) -> None:
        """Two windows continue the same reply, or ask what follows it, neither knowing of the
        other.
        """
        opened = [chat for chat in self.chats if chat in self._windows[step.window].chats]
        if not opened:
            return
        identity, number = opened[int(step.chat * len(opened))], step.window - 1
        self._settle(step)
        other = self._windows[number]
        if identity not in other.chats and other.do("resume", chat=identity):
            other.chats.add(identity)
        both = [step.window, number % len(self._windows)] if identity in other.chats else []
        rng = random.Random(step.moment)
        same = rng.random() < 0.5  # both continue it, and that is all
        for one in both if same else [*both, *both]:
            if same or rng.random() < 0.5:
                self._continue(one, identity)
            else:
                self._say(dataclasses.replace(step, window=one), identity)
            if not same and rng.random() < 0.5:
                self._sync(dataclasses.replace(step, window=one))

    def _go_on(self, step: Step) -> None:
        opened = [chat for chat in self.chats if chat in self._windows[step.window].chats]
        if opened:
            self._continue(step.window, opened[int(step.chat * len(opened))])

    def _continue(self, window: int, identity: str) -> None:
        self._count += 1
        found = self._windows[window].do("go_on", chat=identity, more=f" on{self._count:04}")
        if found is not None:
            chat, (before, now) = self.chats[identity], found
            chat.given.pop(before, None)  # it is the beginning of the other one
            chat.given[now] = f"sent {window}"
            if chat.erased:
                chat.after.append(now)

    def _say(self, step: Step, identity: str) -> None:
        self._count += 1
        texts = [f"question{self._count:04} {identity}", f"reply{self._count:04} {identity}"]
        before = self._windows[step.window].do(
            "ask", chat=identity, question=texts[0], reply=texts[1], ends=step.moment > 0.5
        )
        chat = self.chats[identity]
        chat.asked[texts[0]] = before
        chat.given |= dict.fromkeys(texts, f"sent {step.window}")
        if chat.erased:
            chat.after += texts
        elif chat.removed:
            chat.removed = None  # on the list again, once that is saved

    def _resume(self, step: Step) -> None:
        if identity := self._picked(step):
            process = self._windows[step.window]
            for number in range(len(self._windows)):  # else what is there to load is not known
                self._sync(dataclasses.replace(step, window=number))
            if identity not in process.chats:
                there = process.do("resume", chat=identity)
                sure = "sure" in self.chats[identity].given.values()
                if there == self.chats[identity].erased and (there or sure):
                    raise WrongError(f"resumed is {there}, but {self.chats[identity]}")
                if there:
                    process.chats.add(identity)

    def _sync(self, step: Step) -> None:
        process = self._windows[step.window]
        end = time.monotonic() + 10
        while (found := process.do("sync"))["failing"] is not None:
            if time.monotonic() > end:
                raise WrongError(f"nothing can be saved: {found['failing']}")
            time.sleep(0.02)
        for identity, why in found["whys"].items():
            chat = self.chats[identity]
            if why not in (None, _ERASED) or (why == _ERASED and not chat.erased):
                raise WrongError(f"a chat is not saved: {why}")
            if why is None:
                mine = [t for t, where in chat.given.items() if where == f"sent {step.window}"]
                chat.given |= dict.fromkeys(mine, "sure")
                if mine and chat.removed is None:
                    chat.removed = False

    def _kill(self, step: Step) -> None:
        time.sleep(step.moment * 0.03)
        self._windows[step.window].kill()
        for chat in self.chats.values():
            for text, where in chat.given.items():
                if where == f"sent {step.window}":
                    chat.given[text] = "maybe"
        self._windows[step.window] = _Process(self._home, "window", self._defect)

    def _quit(self, step: Step) -> None:
        self._sync(step)
        process = self._windows[step.window]
        told = process.do("close")
        for identity in process.chats:
            chat, mine = self.chats[identity], f"sent {step.window}"
            unsaved = [text for text in chat.after if chat.given.get(text) == mine]
            named = any(_ERASED in line for line in told)
            if unsaved and not named:
                raise WrongError(f"nothing is told of {unsaved}, only {told}")
        process.kill()
        for chat in self.chats.values():
            for text, where in chat.given.items():
                if where == f"sent {step.window}":
                    chat.given[text] = "told"
        self._windows[step.window] = _Process(self._home, "window", self._defect)

    # -- commands ------------------------------------------------------------------------------

    def _stored(self, step: Step) -> str | None:
        """A chat that is in the file."""
        ids = self._ids()
        there = [chat for chat in self.chats if chat in ids]  # ids are random, their order is not
        return there[int(step.chat * len(there))] if there else None

    def _ids(self) -> set[str]:
        return {chat for (chat,) in self._rows("SELECT id FROM chats")}

    def _picked(self, step: Step) -> str | None:
        known = list(self.chats)
        return known[int(step.chat * len(known))] if known else None

    def _erase(self, step: Step) -> None:
        if identity := self._stored(step):
            self._shell.do("erase", chat=identity)
            self.chats[identity].erased = True

    def _erase_killed(self, step: Step) -> None:
        if identity := self._stored(step):
            self._command(step, "chats", "rm", "--for-good", "--yes", identity)
            # No step takes place meanwhile, and a window writes only what it was given before.
            self.chats[identity].erased = identity not in self._ids()

    def _remove(self, step: Step) -> None:
        self._settle(step)
        if identity := self._stored(step):
            self._shell.do("remove", chat=identity)
            self.chats[identity].removed = True

    def _restore(self, step: Step) -> None:
        if identity := self._stored(step):
            self._shell.do("restore", chat=identity)
            self.chats[identity].removed = False

    def _rename(self, step: Step) -> None:
        if identity := self._stored(step):
            self._count += 1
            self.chats[identity].title = f"title {self._count}"
            self._shell.do("rename", chat=identity, title=self.chats[identity].title)

    def _lock(self, step: Step) -> None:
        self._shell.do("lock", seconds=0.15 + step.moment * 0.3)

    def _import(self, step: Step) -> None:
        self._imported(dataclasses.replace(step, moment=-1.0))

    def _import_killed(self, step: Step) -> None:
        self._imported(step)

    def _imported(self, step: Step) -> None:
        self._count += 1
        texts = [f"imported{self._count:04} {number}" for number in range(6)]
        messages = [
            {"id": n + 1, "parent": n or None, "role": role, "text": text, "created": 1.0}
            for n, (text, role) in enumerate(zip(texts, ("user", "assistant") * 3, strict=True))
        ]
        title = f"import {self._count}"
        chat = {"title": title, "created": 1.0, "updated": 2.0, "messages": messages}
        file = self._home / f"{self._count}.json"
        whole = {"format": "localspec-chats", "version": 1, "chats": [chat]}
        file.write_text(json.dumps(whole), "utf-8")
        self._command(step, "chats", "import", str(file))
        found = self._rows("SELECT id FROM chats WHERE title = ?", title)
        if step.moment < 0 and not found:
            raise WrongError("an import is not there")
        for (identity,) in found:
            self.chats[identity] = _Chat(title, dict.fromkeys(texts, "sure"))

    def _command(self, step: Step, *words: str) -> None:
        """Run a command, killed at a moment unless that is negative."""
        line, quiet = command("localspec", *words)[0], subprocess.DEVNULL
        variables = environment() | {"LOCALSPEC_HOME": str(self._home)}
        with subprocess.Popen(line, env=variables, stdout=quiet, stderr=quiet) as process:
            if step.moment >= 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1 + step.moment * 0.4)
                process.kill()
            elif process.wait(_PATIENCE):
                raise WrongError(f"{' '.join(words[:2])} ends with {process.returncode}")

    def _settle(self, step: Step) -> None:
        """All that was sent to windows is on disk: what is given from now on is newer."""
        for number in range(len(self._windows)):
            self._sync(dataclasses.replace(step, window=number))

    # -- what must be there --------------------------------------------------------------------

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as base:
            return base.execute(query, values).fetchall()

    def _compare(self) -> None:
        if wrong := database_wrong(self._path):
            raise WrongError(wrong)
        if self._rows("PRAGMA foreign_key_check"):
            raise WrongError("a message belongs to no chat")
        there = {str(text) for (text,) in self._rows("SELECT text FROM messages")}
        listed = dict(self._rows("SELECT id, deleted NOT NULL FROM chats"))
        titles = dict(self._rows("SELECT id, title FROM chats"))
        files = b"".join(f.read_bytes() for f in self._path.parent.glob("chats.db*"))
        for identity, chat in self.chats.items():
            texts = chat.given
            if chat.erased:
                left = [t for t in texts if t in there or t.split()[0].encode() in files]
                if identity in listed or left:
                    raise WrongError(f"what was erased is there: {left}, {identity in listed}")
                continue
            lost = [t for t, where in texts.items() if where != "maybe" and t not in there]
            if lost:
                raise WrongError(f"lost: {lost}")
            self._compare_ways(identity, chat)
            if chat.removed not in (None, bool(listed.get(identity))) and identity in listed:
                raise WrongError(f"{identity} removed: {chat.removed}, not {listed[identity]}")
            if chat.title not in (None, titles.get(identity)):
                raise WrongError(f"the title {chat.title!r} is lost: {titles.get(identity)!r}")

    def _compare_ways(self, identity: str, chat: _Chat) -> None:
        """What is below a text was written by a window that showed it."""
        found = self._rows("SELECT id, parent, text FROM messages WHERE chat = ?", identity)
        texts = {id: text for id, _, text in found}  # noqa: A001 - an id is what it is
        ways: dict[int, list[str]] = {}
        for id, parent, text in sorted(found):  # noqa: A001 - as above
            ways[id] = [*ways[parent], texts[parent]] if parent is not None else []
            if ways[id] != chat.asked.get(text, ways[id]):
                raise WrongError(f"{text} follows {ways[id]}, not {chat.asked[text]}")
