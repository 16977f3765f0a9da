"""Hours of use in minutes: one interface, and short replies, stops, model switches, pulls, sizes,
new chats and engines started again, without end. Memory, descriptors, threads and temporary files
stay where they are; ``--search soak --minutes 60`` is about eight hours of a user's day.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
from hub_server import Hub

from faults.model_files import small_gguf
from faults.runner import Search
from faults.terminal import SilentError, Terminal

_READY = ("ready", "tok/s")
_ENDED = " tokens in "
_WARM = 6
"""Cases before which nothing is compared: caches fill up."""
_LEAST = 18
"""Cases before anything is judged."""


@dataclass(frozen=True)
class Case:
    """Some actions one after the other."""

    seed: int
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """The resources of the interface after a case, while nothing runs."""

    memory: int
    """MB of the interface,"""
    engine_memory: int
    """and of its engine."""
    descriptors: int
    threads: int
    children: int
    temporary: int
    """Files in the folder for temporary files, and unfinished ones in the home."""


_ROOM = Sample(30, 40, 3, 2, 1, 3)
"""Growth from the first to the last third of the samples that is tolerated (medians);"""
_RATIO = 0.1
"""of memory also this part, whichever is more."""


class Soak(Search):
    """One interface for all cases."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "soak"
        self._home.mkdir(mode=0o700, parents=True)
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        self._hub: Hub | None = None
        self._terminal: Terminal | None = None
        self._samples: list[Sample] = []
        self._counts: dict[str, int] = {}
        self._seconds = 0.0
        self._pulled = 0

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        rare = ("new chat", "switch", "pull", "restart", "size", "size", "stop")
        return Case(seed, tuple(rng.choice(("ask", "ask", *rare)) for _ in range(6)))

    def wrong(self, case: Case) -> str | None:
        start = time.monotonic()
        rng = random.Random(case.seed)
        try:
            terminal = self._running()
            for action in case.actions:
                self._actions[action](terminal, rng)
                self._counts[action] = self._counts.get(action, 0) + 1
            self._ask(terminal, rng)  # whatever came before, a question is answered
            terminal.read(1.0)
            sample = self._sample(terminal)
        except SilentError as error:
            self._stop()
            return str(error)
        self._seconds += time.monotonic() - start
        return self.judge(sample)

    def judge(self, sample: Sample) -> str | None:
        """The resource that has grown with this sample, or None."""
        self._samples.append(sample)
        return self._grown()

    def figures(self) -> Iterator[str]:
        done = ", ".join(f"{name} {count}" for name, count in sorted(self._counts.items()))
        yield f"{self._seconds / 60:.1f} minutes, {len(self._samples)} cases: {done}"
        if len(self._samples) > _WARM:
            early, late = self._thirds()
            for field in fields(Sample):
                yield f"{field.name}: {_middle(early, field.name)} → {_middle(late, field.name)}"

    def close(self) -> None:
        self._stop()
        if self._hub is not None:
            self._hub.close()

    @property
    def _actions(self) -> dict[str, Callable[[Terminal, random.Random], None]]:
        return {
            "ask": self._ask,
            "stop": self._interrupt,
            "new chat": self._new,
            "switch": self._switch,
            "pull": self._pull,
            "restart": self._restart,
            "size": self._resize,
        }

    def _running(self) -> Terminal:
        if self._terminal is None:
            self._hub = self._hub or Hub()
            os.environ |= {"HF_ENDPOINT": self._hub.url, "NO_PROXY": "*"}
            import localspec

            demo = Path(localspec.__file__).parent / "demo"
            for name in ("target.gguf", "draft.gguf"):
                shutil.copy(demo / name, self._home / f"other-{name}")
            words = ("-t", "0", "--threads", "1", "-n", "40")
            self._terminal = Terminal(self._home, *words, temporary=self._temporary)
            self._terminal.wait(0, *_READY)
            self._samples.clear()
        return self._terminal

    def _stop(self) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            with contextlib.suppress(OSError, SilentError):
                terminal.kill()

    def _ask(self, terminal: Terminal, rng: random.Random) -> None:
        mark = terminal.mark()
        terminal.type(f"What is {rng.randrange(99)} + {rng.randrange(99)}?\r")
        terminal.wait(mark, _ENDED)

    def _interrupt(self, terminal: Terminal, rng: random.Random) -> None:
        mark = terminal.mark()
        terminal.type("Tell me a long story about a fox.\r")
        terminal.read(rng.uniform(0.0, 1.0))
        terminal.type("\x1b")
        terminal.wait(mark, _ENDED, "stopped")
        terminal.read(0.3)

    def _new(self, terminal: Terminal, rng: random.Random) -> None:
        terminal.type("/close\r")
        terminal.read(0.5)

    def _switch(self, terminal: Terminal, rng: random.Random) -> None:
        name = rng.choice(("demo", str(self._home / "other-target.gguf")))
        before, mark = terminal.engine(), terminal.mark()
        terminal.type(f"/model {name}\r")
        self._engine(terminal, before, mark)

    def _restart(self, terminal: Terminal, rng: random.Random) -> None:
        before, mark = terminal.engine(), terminal.mark()
        if before is not None:
            before.kill()
            terminal.wait(mark, "SIGKILL")
            mark = terminal.mark()
            terminal.type("\x12")  # Ctrl+R
            self._engine(terminal, before, mark)

    def _engine(self, terminal: Terminal, before: psutil.Process | None, mark: int) -> None:
        """Wait until another engine than before is there and has loaded its model: Esc would end
        the loading instead of a reply.
        """
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = terminal.engine()
            if found is not None and found != before:
                break
            terminal.read(0.1)
        terminal.wait(mark, *_READY)
        terminal.read(0.5)

    def _pull(self, terminal: Terminal, rng: random.Random) -> None:
        assert self._hub is not None
        del rng
        self._pulled += 1
        name = f"org/Soak-{self._pulled}-GGUF"
        self._hub.repo(name, {"soak-Q4_0.gguf": small_gguf()})
        mark = terminal.mark()
        terminal.type(f"/pull {name}\r")
        terminal.wait(mark, "Soak-")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            terminal.read(0.2)
            folder = self._home / "hf" / "hub" / f"models--org--Soak-{self._pulled}-GGUF"
            if [*folder.glob("snapshots/*/*.gguf")]:
                break
        else:
            raise SilentError(f"{name} is not pulled: {terminal.since(mark)[-300:]!r}")
        terminal.read(0.5)
        shutil.rmtree(self._home / "hf", ignore_errors=True)

    def _resize(self, terminal: Terminal, rng: random.Random) -> None:
        terminal.resize(rng.randrange(20, 60), rng.randrange(80, 180))
        terminal.read(0.2)
        terminal.resize(30, 120)
        terminal.read(0.2)

    def _sample(self, terminal: Terminal) -> Sample:
        process, engine = psutil.Process(terminal.pid), terminal.engine()
        parts = [p for p in self._home.rglob("*") if p.suffix in {".part", ".tmp", ".incomplete"}]
        temporary = [p for p in self._temporary.rglob("*") if p.is_file()]
        return Sample(
            process.memory_info().rss >> 20,
            engine.memory_info().rss >> 20 if engine is not None else 0,
            process.num_fds(),
            process.num_threads(),
            len(process.children(recursive=True)),
            len(parts) + len(temporary),
        )

    def _thirds(self) -> tuple[list[Sample], list[Sample]]:
        warm = self._samples[_WARM:]
        third = max(1, len(warm) // 3)
        return warm[:third], warm[-third:]

    def _grown(self) -> str | None:
        """The resource that has grown, or None."""
        if len(self._samples) < _LEAST:
            return None
        early, late = self._thirds()
        for field in fields(Sample):
            before, after = _middle(early, field.name), _middle(late, field.name)
            room = getattr(_ROOM, field.name)
            if "memory" in field.name:
                room = max(room, _RATIO * before)
            if after > before + room:
                self._samples.clear()  # told once, not after every case from now on
                return f"{field.name} grows: {before} → {after} in {self._seconds / 60:.0f} minutes"
        return None


def _middle(samples: list[Sample], name: str) -> int:
    return round(statistics.median(getattr(sample, name) for sample in samples))
