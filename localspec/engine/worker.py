"""Executes commands in the engine process.

The main thread opens models and submits requests, a second one takes commands. The events of
replies come from the thread that computes. Examining and tokenizing have a thread for each command.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from localspec.core.errors import DefectError, EngineError, LocalspecError, UsageError
from localspec.core.events import Examination, Finished, Loading, ModelInfo, ReplyEvent
from localspec.core.interrupt import Cancelled, Interrupt
from localspec.core.processes import garbage
from localspec.core.reply_request import ReplyRequest, TakesEvents, Tokenized
from localspec.engine import protocol
from localspec.engine.messages import (
    AdaptedEvent,
    AdapterCommand,
    CloseCommand,
    Command,
    ExamineCommand,
    ExaminedEvent,
    FailedEvent,
    InterruptCommand,
    LoadingEvent,
    OpenCommand,
    OpenedEvent,
    ReplyCommand,
    TokenizeCommand,
    TokenizedEvent,
)
from localspec.engine.outbox import Outbox
from localspec.engine.protocol import BadCommandError

log = logging.getLogger("localspec.engine")

GRACE = 0.5
"""Seconds that an orderly end may take once the interface is gone."""

IDLE = 0.5
"""Seconds without a command after which the conversation's state is saved."""

_LOADING_INTERVAL = 0.05
"""Seconds between two loading events of one file."""


class EngineRuntime(Protocol):
    """The part of `localspec.runtime.Runtime` that the engine uses."""

    @property
    def info(self) -> ModelInfo: ...

    def deliver(
        self, request: ReplyRequest, mailbox: TakesEvents, interrupt: Interrupt | None = None
    ) -> None: ...

    def examine(
        self,
        request: ReplyRequest,
        tokens: Sequence[int],
        rival: int | None = None,
        interrupt: Interrupt | None = None,
    ) -> Examination: ...

    def tokenize(
        self,
        request: ReplyRequest,
        *,
        special: bool,
        bos: bool,
        interrupt: Interrupt | None = None,
    ) -> Tokenized: ...

    def load_adapter(self, path: Path, name: str = "") -> None: ...

    def unload_adapter(self, name: str | Path) -> None: ...

    def rest(self, cancelled: Cancelled) -> None: ...

    def close(self) -> None: ...

    @property
    def failed(self) -> bool: ...


_Answered = TypeVar("_Answered", ExamineCommand, TokenizeCommand, AdapterCommand)
"""Commands that are answered by one message."""

Factory = Callable[
    [dict[str, Any], Callable[[Loading], None], Callable[[], bool]],
    EngineRuntime,
]
"""Opens a runtime: (options, on_event, cancelled) -> runtime."""


class EngineWorker:
    """Executes commands. Replies and examinations run side by side; interrupts and the end of
    input jump the line.
    """

    def __init__(self, outbox: Outbox, factory: Factory, log_path: Path) -> None:
        self._outbox = outbox
        self._factory = factory
        self._log_path = log_path
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._lock = threading.Lock()  # guards the two below
        self._runtime: EngineRuntime | None = None
        self._interrupts: dict[int, Interrupt] = {}
        """One for each reply, examination and text to be split that runs or waits."""
        self._answering: set[threading.Thread] = set()
        """Threads that examine or tokenize."""
        self._rested = True
        """Whether nothing was asked for since the last rest."""

    def run(self) -> None:
        """Execute commands until told to close."""
        while True:
            command = self._next()
            if self._leaving.is_set():
                break
            self._execute(command)
        if self._runtime is not None:
            self._runtime.close()
        for thread in self._threads():
            thread.join(GRACE)

    def _next(self) -> Command:
        """The next command; when none comes and no reply runs for a moment, the runtime may do what
        waits.
        """
        while True:
            try:
                return self._commands.get(timeout=None if self._rested else IDLE)
            except queue.Empty:
                if not (self._threads() or self._interrupts):
                    self._rested = True
                    self._rest()

    def _threads(self) -> list[threading.Thread]:
        with self._lock:
            return [*self._answering]

    def _rest(self) -> None:
        if self._runtime is None:
            return
        try:
            self._runtime.rest(lambda: not self._commands.empty())
        except (LocalspecError, OSError, MemoryError):
            # Nobody asked for it, and what it saves is read again where it is missing: a full disk
            # or memory is no reason to end the engine of a running chat.
            log.exception("resting failed")

    def listen(self, stream: BinaryIO) -> None:
        """Take commands until the pipe ends, then see to it that the process ends."""
        try:
            while line := _read_line(stream):
                self._take(line)
        except Exception:
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
            log.warning("refused a command: %s", type(bad.error).__name__)
            self._outbox.send(FailedEvent.of(bad.id, bad.error))
            return
        if isinstance(command, InterruptCommand):
            self._interrupt(command.id)
        elif isinstance(command, CloseCommand):
            self._leave()
        else:
            if isinstance(command, ReplyCommand | ExamineCommand | TokenizeCommand):
                with self._lock:
                    self._interrupts[command.id] = Interrupt()
            self._commands.put(command)

    def _leave(self) -> None:
        self._leaving.set()
        with self._lock:
            interrupts = [*self._interrupts.values()]
        for interrupt in interrupts:  # without the lock: a reply that waits ends at once
            interrupt.set()
        self._commands.put(CloseCommand())  # wakes the main thread

    def _interrupt(self, id: int) -> None:  # noqa: A002 - the protocol's field
        with self._lock:
            interrupt = self._interrupts.get(id)
        if interrupt is not None:  # else the reply has ended
            interrupt.set()

    def _execute(self, command: Command) -> None:
        self._rested = False
        if isinstance(command, OpenCommand):
            with self._reporting(None):
                self._open(command)
        elif isinstance(command, ReplyCommand):
            self._reply(command)
        elif isinstance(command, ExamineCommand):
            self._spawn(self._examine, command)
        elif isinstance(command, TokenizeCommand):
            self._spawn(self._tokenize, command)
        elif isinstance(command, AdapterCommand):
            self._spawn(self._adapt, command)

    def _spawn(self, work: Callable[[_Answered], None], command: _Answered) -> None:
        """Answer a command while others are executed."""

        def run() -> None:
            with self._reporting(command.id):
                work(command)
            over()

        def over() -> None:
            self._end(command.id)
            with self._lock:
                self._answering.discard(thread)

        thread: threading.Thread = threading.Thread(target=run, name="answers", daemon=True)
        with self._lock:
            self._answering.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread for it now
            self._report(command.id, error)
            over()

    @contextlib.contextmanager
    def _reporting(self, id: int | None) -> Iterator[None]:  # noqa: A002 - the protocol's field
        """Report the error where a command fails."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it was, the next command may well work
            self._report(id, error)

    def _report(self, id: int | None, error: BaseException) -> None:  # noqa: A002 - as above
        """Tell the client of an error; the log gets what nobody expected in full, and nothing of a
        refused request, whose texts the error may quote.
        """
        over = self._runtime is not None and self._runtime.failed
        if isinstance(error, LocalspecError):
            if id is None or not isinstance(error, UsageError):
                log.info("%s: %s", type(error).__name__, error)
            self._outbox.send(FailedEvent.of(id, error))
        else:
            log.error("command failed", exc_info=error)
            line = f"internal error, {type(error).__name__}: {error}; see {self._log_path}"
            goes_on = id is not None and not over  # without an id it has not loaded a model
            kind = DefectError if goes_on else EngineError
            self._outbox.send(FailedEvent.of(id, kind(" ".join(line.split()))))
        if over:
            # The next request gets a process that can compute; the runtime fails all others itself.
            self._leaving.set()
            self._commands.put(CloseCommand())

    def _open(self, command: OpenCommand) -> None:
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None
        runtime = self._factory(command.options, self._loading(), self._leaving.is_set)
        with self._lock:
            self._runtime = runtime
        garbage.collect_new()
        self._outbox.send(OpenedEvent(runtime.info))

    def _loading(self) -> Callable[[Loading], None]:
        last_name, next_time = "", 0.0

        def on_event(event: Loading) -> None:
            nonlocal last_name, next_time
            now = time.monotonic()
            whole = event.fraction is None or event.fraction >= 1
            if event.name != last_name or whole or now >= next_time:
                last_name, next_time = event.name, now + _LOADING_INTERVAL
                self._outbox.send(LoadingEvent(event))

        return on_event

    def _opened(self) -> EngineRuntime:
        if self._runtime is None:
            raise EngineError("no model is open")
        return self._runtime

    def _reply(self, command: ReplyCommand) -> None:
        """Submit a request here, so that requests keep their order."""
        mailbox = _Forwards(self, command.id)
        try:
            runtime = self._opened()
            runtime.deliver(command.request, mailbox, self._interrupts[command.id])
        except Exception as error:  # noqa: BLE001 - reported to the client
            mailbox.fail(error)

    def forward(self, id: int, events: Sequence[ReplyEvent]) -> None:  # noqa: A002 - the protocol's field
        """Hand on events of a reply. Called in the thread that computes."""
        for event in events:
            self._outbox.add(id, event)
        if any(isinstance(event, Finished) for event in events):
            self._end(id)

    def failed(self, id: int, error: BaseException) -> None:  # noqa: A002 - the protocol's field
        """Report the error that ended a reply."""
        self._report(id, error)
        self._end(id)

    def _end(self, id: int) -> None:  # noqa: A002 - the protocol's field
        with self._lock:
            self._interrupts.pop(id, None)

    def _examine(self, command: ExamineCommand) -> None:
        interrupt = self._interrupts[command.id]
        found = self._opened().examine(command.request, command.tokens, command.rival, interrupt)
        self._outbox.send(ExaminedEvent(command.id, found))

    def _tokenize(self, command: TokenizeCommand) -> None:
        found = self._opened().tokenize(
            command.request,
            special=command.special,
            bos=command.bos,
            interrupt=self._interrupts[command.id],
        )
        self._outbox.send(TokenizedEvent(command.id, found))

    def _adapt(self, command: AdapterCommand) -> None:
        runtime = self._opened()
        if command.path is None:
            runtime.unload_adapter(command.name)
        else:
            runtime.load_adapter(Path(command.path), command.name)
        self._outbox.send(AdaptedEvent(command.id))


class _Forwards:
    """Hands the events of one reply on to the client."""

    def __init__(self, engine: EngineWorker, id: int) -> None:  # noqa: A002 - the protocol's field
        self._engine, self._id = engine, id

    def put(self, events: Sequence[ReplyEvent]) -> None:
        """See `localspec.core.reply_request.TakesEvents`."""
        self._engine.forward(self._id, events)

    def fail(self, error: BaseException) -> None:
        """See `localspec.core.reply_request.TakesEvents`."""
        self._engine.failed(self._id, error)


def _read_line(stream: BinaryIO) -> bytes:
    """The next line; of one that is too long, the start (which is then refused); b"" at the end."""
    line = stream.readline(protocol.MAX_LINE)
    rest = line
    while len(rest) == protocol.MAX_LINE and not rest.endswith(b"\n"):
        rest = stream.readline(protocol.MAX_LINE)
    return line
