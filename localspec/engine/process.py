"""The engine child process: takes commands from a pipe, runs the runtime, writes events.

Three threads. The main thread opens the model and decodes. The reader takes commands, so that an
interrupt works while the main thread decodes. The writer (`localspec.engine.outbox`) sends events.

Native code prints to whatever it takes for standard output and may abort the process, so the
protocol runs on duplicates of descriptors 0 and 1; the originals lead to nothing and to the log.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from localspec.engine import codec, protocol
from localspec.engine.outbox import Outbox
from localspec.engine.protocol import (
    BadCommandError,
    CloseCommand,
    Command,
    ExamineCommand,
    ExaminedEvent,
    FailedEvent,
    FinishedEvent,
    HelloEvent,
    InterruptCommand,
    LoadingEvent,
    NoticeEvent,
    OpenCommand,
    OpenedEvent,
    ReadingEvent,
    ReplyCommand,
)
from localspec.errors import EngineError, LocalspecError, UsageError
from localspec.events import (
    Event,
    Examination,
    Finished,
    Loading,
    Message,
    ModelInfo,
    Notice,
    Reading,
    Round,
    Token,
)
from localspec.parameters import Sampling

log = logging.getLogger("localspec.engine")

GRACE = 0.5
"""Seconds that an orderly end may take once the interface is gone."""

IDLE = 0.5
"""Seconds without a command after which the conversation's state is saved."""

_LOADING_INTERVAL = 0.05
"""Seconds between two loading events of one file."""


class EngineRuntime(Protocol):
    """What the engine needs of localspec.runtime.Runtime."""

    @property
    def info(self) -> ModelInfo: ...

    def reply(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> Iterator[Event]: ...

    def examine(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
        max_tokens: int | None = None,
        rival: int | None = None,
    ) -> Examination: ...

    def interrupt(self) -> None: ...

    def rest(self, cancelled: Callable[[], bool]) -> None: ...

    def close(self) -> None: ...


Factory = Callable[
    [dict[str, Any], Callable[[Loading], None], Callable[[], bool]],
    EngineRuntime,
]
"""Opens a runtime: (options, on_event, cancelled) -> runtime."""


def open_runtime(
    options: dict[str, Any], on_event: Callable[[Loading], None], cancelled: Callable[[], bool]
) -> EngineRuntime:
    """Open the real runtime."""
    from localspec.options import Options
    from localspec.runtime import Runtime

    try:
        chosen = codec.decode(Options, options, "options")
    except codec.CodecError as error:
        raise UsageError(str(error)) from None
    runtime = Runtime.open(chosen, on_event, cancelled)
    runtime.keep_states()
    return runtime


class Engine:
    """Executes commands one after another; interrupts and the end of input jump the line."""

    def __init__(self, outbox: Outbox, factory: Factory, log_path: Path) -> None:
        self._outbox = outbox
        self._factory = factory
        self._log_path = log_path
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._lock = threading.Lock()  # guards the three below
        self._runtime: EngineRuntime | None = None
        self._current: int | None = None
        self._interrupted: set[int] = set()

    def run(self) -> None:
        """Execute commands until told to close."""
        while True:
            command = self._next()
            if self._leaving.is_set():
                break
            self._execute(command)
        if self._runtime is not None:
            self._runtime.close()

    def _next(self) -> Command:
        """The next command; when none comes for a moment, the runtime may do what waits."""
        try:
            return self._commands.get(timeout=IDLE)
        except queue.Empty:
            if self._runtime is not None:
                try:
                    self._runtime.rest(lambda: not self._commands.empty())
                except Exception:
                    # Nobody asked for it, and what it saves is read again where it is missing: no
                    # reason to end the engine of a running chat.
                    log.exception("resting failed")
        return self._commands.get()

    def listen(self, stream: BinaryIO) -> None:
        """Take commands until the pipe ends, then see to it that the process ends."""
        try:
            while line := _read_line(stream):
                self._take(line)
        except OSError:
            log.exception("the command pipe failed")
        log.info("the interface is gone")
        self._leave()
        # A load or a pass in native code cannot be stopped from here, but nobody waits for it.
        time.sleep(GRACE)
        os._exit(0)

    def _take(self, line: bytes) -> None:
        try:
            command = protocol.decode_command(line)
        except BadCommandError as bad:
            log.warning("refused a command: %s", bad)
            self._outbox.send(FailedEvent.of(bad.id, bad.error))
            return
        if isinstance(command, InterruptCommand):
            self._interrupt(command.id)
        elif isinstance(command, CloseCommand):
            self._leave()
        else:
            self._commands.put(command)

    def _leave(self) -> None:
        self._leaving.set()
        with self._lock:
            if self._runtime is not None:
                self._runtime.interrupt()
        self._commands.put(CloseCommand())  # wakes the main thread

    def _interrupt(self, id: int) -> None:  # noqa: A002 - the protocol's field
        with self._lock:
            self._interrupted.add(id)
            if self._runtime is not None and self._current == id:
                self._runtime.interrupt()

    def _execute(self, command: Command) -> None:
        id = command.id if isinstance(command, ReplyCommand | ExamineCommand) else None  # noqa: A001 - as above
        try:
            if isinstance(command, OpenCommand):
                self._open(command)
            elif isinstance(command, ReplyCommand):
                self._reply(command)
            elif isinstance(command, ExamineCommand):
                self._examine(command)
        except LocalspecError as error:
            log.info("%s: %s", type(error).__name__, error)
            self._outbox.send(FailedEvent.of(id, error))
        except Exception as error:
            # Whatever it was, the next command may well work, and the person must hear of it.
            log.exception("command failed")
            line = f"internal error, {type(error).__name__}: {error}; see {self._log_path}"
            self._outbox.send(FailedEvent.of(id, EngineError(" ".join(line.split()))))

    def _open(self, command: OpenCommand) -> None:
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None
        runtime = self._factory(command.options, self._loading(), self._leaving.is_set)
        with self._lock:
            self._runtime = runtime
        self._outbox.send(OpenedEvent(runtime.info))

    def _loading(self) -> Callable[[Loading], None]:
        last_name, next_time = "", 0.0

        def on_event(event: Loading) -> None:
            nonlocal last_name, next_time
            now = time.monotonic()
            if event.name != last_name or event.fraction >= 1 or now >= next_time:
                last_name, next_time = event.name, now + _LOADING_INTERVAL
                self._outbox.send(LoadingEvent(event.name, event.fraction))

        return on_event

    def _reply(self, command: ReplyCommand) -> None:
        runtime = self._runtime
        if runtime is None:
            raise EngineError("no model is open")
        with self._lock:
            self._current = command.id
        try:
            events = runtime.reply(
                command.messages,
                sampling=command.sampling,
                seed=command.seed,
                max_tokens=command.max_tokens,
                stop=command.stop,
                draft=command.draft,
            )
            for event in events:
                # An interrupt may have come before the runtime was listening.
                if command.id in self._interrupted:
                    runtime.interrupt()
                self._report(command.id, event)
        finally:
            with self._lock:
                self._current = None
                self._interrupted.discard(command.id)

    def _examine(self, command: ExamineCommand) -> None:
        if self._runtime is None:
            raise EngineError("no model is open")
        found = self._runtime.examine(
            command.messages,
            command.tokens,
            sampling=command.sampling,
            seed=command.seed,
            max_tokens=command.max_tokens,
            rival=command.rival,
        )
        self._outbox.send(ExaminedEvent(command.id, found))

    def _report(self, id: int, event: Event) -> None:  # noqa: A002 - the protocol's field
        match event:
            case Token() | Round():
                self._outbox.add(id, event)
            case Reading(done, total, cached):
                self._outbox.send(ReadingEvent(id, done, total, cached))
            case Notice(text):
                self._outbox.send(NoticeEvent(id, text))
            case Finished(reply):
                self._outbox.send(FinishedEvent(id, reply))
            case Loading(name, fraction):
                self._outbox.send(LoadingEvent(name, fraction))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the engine until the interface closes it or is gone."""
    parser = argparse.ArgumentParser(prog="python -m localspec.engine")
    parser.add_argument("--log", type=Path, required=True, help="where native output goes")
    parser.add_argument(
        "--runtime", metavar="MODULE:FACTORY", help="opens another runtime; for tests"
    )
    arguments = parser.parse_args(argv)

    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the interface
    os.environ["GGML_NO_BACKTRACE"] = "1"  # an abort of ggml must not wait for a debugger
    commands, events = _take_pipes(arguments.log)
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s: %(message)s"
    )

    outbox = Outbox(events)
    outbox.send(HelloEvent(protocol.VERSION, os.getpid()))
    factory = _named_factory(arguments.runtime) if arguments.runtime else open_runtime
    engine = Engine(outbox, factory, arguments.log)
    threading.Thread(target=engine.listen, args=(commands,), name="reader", daemon=True).start()
    engine.run()
    outbox.close()
    log.info("closed")


def _named_factory(name: str) -> Factory:
    module, _, attribute = name.partition(":")
    factory: Factory = getattr(importlib.import_module(module), attribute)
    return factory


def _take_pipes(log_path: Path) -> tuple[BinaryIO, BinaryIO]:
    """Keep the protocol's two pipes to ourselves and lead the standard descriptors away."""
    commands = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(nothing, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(nothing)
    os.close(sink)
    return commands, events


def _read_line(stream: BinaryIO) -> bytes:
    """The next line; of one that is too long, the start (which is then refused); b"" at the end."""
    line = stream.readline(protocol.MAX_LINE)
    rest = line
    while len(rest) == protocol.MAX_LINE and not rest.endswith(b"\n"):
        rest = stream.readline(protocol.MAX_LINE)
    return line


def _die_with_parent() -> None:
    """Linux: let the kernel end this process when its parent dies, whatever it is doing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
