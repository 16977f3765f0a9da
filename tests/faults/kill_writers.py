"""Commands and writers that are killed while they write, and what their files must be like then."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from hub_server import Hub

from faults.limits import environment
from faults.model_files import small_gguf
from localspec.core.processes.children import command


class Writer(ABC):
    """One kind of process that writes files of the user."""

    def prepare(self, folder: Path) -> None:
        """Make the files before the kill; ``folder`` is empty and holds the home as ``home``."""
        return

    @abstractmethod
    def line(self, folder: Path) -> list[str]:
        """The process that is killed."""

    @abstractmethod
    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        """The fault of the files after it was killed, or has finished."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of the process."""
        home, hub = str(folder / "home"), str(folder / "hf")
        return environment() | {"LOCALSPEC_HOME": home, "HF_HOME": hub}

    def run(self, folder: Path, *words: str) -> str | None:
        """The fault in the end of a command that comes after; None where it succeeds."""
        line, _ = command("localspec", *words)
        done = subprocess.run(
            line, env=self.environment(folder), capture_output=True, timeout=120, check=False
        )
        if done.returncode == 0 and b"defect" not in done.stderr:
            return None
        return f"`{' '.join(words[:2])}` ended with {done.returncode}: {done.stderr[-300:]!r}"

    def close(self) -> None:
        """Free what it holds."""
        return


def _localspec(*words: str) -> list[str]:
    return command("localspec", *words)[0]


def _export(chats: int) -> str:
    """An export of that many chats of 20 messages."""
    messages = [
        {
            "id": i + 1,
            "parent": i or None,
            "role": ("assistant", "user")[(i + 1) % 2],
            "text": f"text {i} " * 40,
            "created": 1.0 + i,
            **({"end": "stop"} if i % 2 else {}),
        }
        for i in range(20)
    ]
    found = [
        {"title": f"chat {n}", "created": 1.0, "updated": 2.0 + n, "leaf": 20, "messages": messages}
        for n in range(chats)
    ]
    return json.dumps({"format": "localspec-chats", "version": 1, "chats": found})


def database_wrong(path: Path) -> str | None:
    """The fault of a file of chats."""
    if not path.exists():
        return None
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as base, base:
        (found,) = base.execute("PRAGMA integrity_check").fetchone()
    base.close()
    return None if found == "ok" else f"the file of chats is damaged: {found}"


class Import(Writer):
    """Chats are imported: all or none of them are there, and those of before."""

    def prepare(self, folder: Path) -> None:
        """One chat is there."""
        (folder / "one.json").write_text(_export(1))
        (folder / "many.json").write_text(_export(120))
        assert self.run(folder, "chats", "import", str(folder / "one.json")) is None

    def line(self, folder: Path) -> list[str]:
        return _localspec("chats", "import", str(folder / "many.json"))

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        path = folder / "home/data/chats.db"
        if wrong := database_wrong(path) or self.run(folder, "chats", "show", "last"):
            return wrong
        base = sqlite3.connect(path)
        (count,) = base.execute("SELECT count(*) FROM chats").fetchone()
        (messages,) = base.execute("SELECT count(*) FROM messages").fetchone()
        base.close()
        expected = {121} if finished else {1, 121}
        if count not in expected or messages != 20 * count:
            return f"{count} chats with {messages} messages are there"
        return None


class Export(Writer):
    """Chats are exported to a new file: it is whole, or not there."""

    def prepare(self, folder: Path) -> None:
        """Chats are there."""
        (folder / "many.json").write_text(_export(120))
        assert self.run(folder, "chats", "import", str(folder / "many.json")) is None

    def line(self, folder: Path) -> list[str]:
        return _localspec("chats", "export", "--all", "-o", str(folder / "out.json"))

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        path = folder / "out.json"
        if not path.exists():
            return "it is not there" if finished else None
        try:
            whole = len(json.loads(path.read_text("utf-8"))["chats"]) == 120
        except ValueError:
            whole = False
        return None if whole else "the export is there, and not whole"


class Erase(Writer):
    """A chat is erased: the others stay."""

    def prepare(self, folder: Path) -> None:
        """Chats are there."""
        (folder / "some.json").write_text(_export(30))
        assert self.run(folder, "chats", "import", str(folder / "some.json")) is None

    def line(self, folder: Path) -> list[str]:
        return _localspec("chats", "rm", "--for-good", "--yes", "last")

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        path = folder / "home/data/chats.db"
        if wrong := database_wrong(path) or self.run(folder, "chats", "search", "text"):
            return wrong
        base = sqlite3.connect(path)
        (count,) = base.execute("SELECT count(*) FROM chats").fetchone()
        base.close()
        return None if count in ({29} if finished else {29, 30}) else f"{count} chats are left"


_SETTINGS = """
import sys
from localspec.config import edit
for n in range(int(sys.argv[1])):
    edit.save({("temperature",): n / 1000, ("presets", "brief", "seed"): n})
"""


class Settings(Writer):
    """Settings are saved again and again: the file is always one that was written."""

    def prepare(self, folder: Path) -> None:
        """A file with a comment."""
        place = folder / "home/config"
        place.mkdir(parents=True, mode=0o700)
        (place / "config.toml").write_text('# mine\nmodel = "demo"\n[presets.brief]\nseed = 0\n')

    def line(self, folder: Path) -> list[str]:
        return [sys.executable, "-P", "-c", _SETTINGS, "60"]

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        import tomllib

        text = (folder / "home/config/config.toml").read_text("utf-8")
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            return f"config.toml is damaged: {error}"
        seed = found["presets"]["brief"]["seed"]
        if not text.startswith("# mine") or found["model"] != "demo":
            return "what was in config.toml is lost"
        if found.get("temperature", 0) != seed / 1000 or (finished and seed != 59):
            return f"config.toml is half of one and half of another: {text!r}"
        return self.run(folder, "models")


_STATES = """
import random
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.states import State, token_ids
store = KvStore("setting")
for n in range(12):
    held = list(range(n * 10, n * 10 + 50))
    state = memoryview(random.Random(n).randbytes(4 << 20))
    store.put(State("", token_ids(held), state, rate=5.0), 10.0)
"""
_READ_STATES = """
import random
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.states import State, token_ids
store = KvStore("setting")
found, damaged = store.saved()
assert not damaged, damaged
for saved in found:
    n = int(saved.tokens[0]) // 10
    assert bytes(store.load(saved).state) == random.Random(n).randbytes(4 << 20), n
"""


class States(Writer):
    """KV states are saved: each is whole, or not there."""

    def line(self, folder: Path) -> list[str]:
        return [sys.executable, "-P", "-c", _STATES]

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        if finished and not [*(folder / "home").rglob("*.state")]:
            return "no state is there"
        done = subprocess.run(
            [sys.executable, "-P", "-c", _READ_STATES],
            env=self.environment(folder),
            capture_output=True,
            check=False,
        )
        return None if done.returncode == 0 else f"states: {done.stderr[-300:]!r}"


class Pull(Writer):
    """A model is pulled: under its name is the whole file or none, and pulling again completes."""

    _name, _file = "org/One-GGUF", "one-Q4_0.gguf"

    def __init__(self) -> None:
        self._data = small_gguf() + bytes(1 << 20)
        self._hub = Hub()
        self._hub.repo(self._name, {self._file: self._data})
        self._hub.rate = 1e6

    def line(self, folder: Path) -> list[str]:
        return _localspec("pull", self._name, "--draft", "none")

    def environment(self, folder: Path) -> dict[str, str]:
        return super().environment(folder) | {"HF_ENDPOINT": self._hub.url, "NO_PROXY": "*"}

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        wrong = self._whole(folder, must_be_there=finished)
        if wrong or finished:
            return wrong
        again = self.run(folder, "pull", self._name, "--draft", "none")
        return again or self._whole(folder, must_be_there=True)

    def close(self) -> None:
        self._hub.close()

    def _whole(self, folder: Path, *, must_be_there: bool) -> str | None:
        found = [p for p in (folder / "hf").rglob(f"snapshots/*/{self._file}") if p.exists()]
        if any(path.read_bytes() != self._data for path in found):
            return "the file is there under its name, and not whole"
        return "the file is not there" if must_be_there and not found else None


class MakeDraft(Writer):
    """A draft is made: the target stays as it is, and the draft is whole or not there."""

    def prepare(self, folder: Path) -> None:
        """A target."""
        import localspec

        shutil.copy(Path(localspec.__file__).parent / "demo/target.gguf", folder / "target.gguf")

    def line(self, folder: Path) -> list[str]:
        target, out = str(folder / "target.gguf"), str(folder / "out.gguf")
        return _localspec("make-draft", target, "--layers", "0", "-o", out)

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        import localspec

        target = Path(localspec.__file__).parent / "demo/target.gguf"
        if (folder / "target.gguf").read_bytes() != target.read_bytes():
            return "the target was changed"
        out = folder / "out.gguf"
        if not out.exists():
            return "no draft is there" if finished else None
        wrong = self.run(folder, "show", str(out), "--offline")
        size = self._size(folder)
        if wrong or out.stat().st_size != size:
            return wrong or f"the draft has {out.stat().st_size} bytes of {size}"
        return None

    def _size(self, folder: Path) -> int:
        known = folder.parent / "draft-size"
        if not known.exists():
            again = folder / "again.gguf"
            line = [*self.line(folder)[:-1], str(again)]
            subprocess.run(line, env=self.environment(folder), capture_output=True, check=True)
            known.write_text(str(again.stat().st_size))
        return int(known.read_text())


class Reply(Writer):
    """A reply on the command line, which keeps measurements: the next one runs without a word."""

    def line(self, folder: Path) -> list[str]:
        return _localspec("run", "Hello.", "-n", "40", "--threads", "1", "--seed", "1")

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        line = _localspec("run", "Hello.", "-n", "4", "--threads", "1", "--seed", "1")
        done = subprocess.run(
            line, env=self.environment(folder), capture_output=True, timeout=120, check=False
        )
        if done.returncode or b"damaged" in done.stderr or not done.stdout:
            return f"the next reply ended with {done.returncode}: {done.stderr[-300:]!r}"
        return None


WRITERS = (Import, Export, Erase, Settings, States, Pull, MakeDraft, Reply)
