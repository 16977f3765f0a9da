"""The interface's side of the engine process: start it, ask it, report its end.

All methods belong to one asyncio loop, never block it, and never print. Reading happens in the
background, so no reply waits for the reader of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from localspec.core.errors import (
    DefectError,
    EngineError,
    Interrupted,
    LocalspecError,
    UsageError,
)
from localspec.core.events import Examination, Loading, ModelInfo
from localspec.core.processes import children
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.engine import protocol
from localspec.engine.messages import (
    AdaptedEvent,
    AdapterCommand,
    CloseCommand,
    Command,
    EngineEvent,
    ExamineCommand,
    ExaminedEvent,
    FailedEvent,
    HelloEvent,
    InterruptCommand,
    LoadingEvent,
    OpenCommand,
    OpenedEvent,
    ReplyCommand,
    TokenizeCommand,
    TokenizedEvent,
)
from localspec.engine.reply import EngineReply, Inbox
from localspec.engine.spawn import exit_error, spawn

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from localspec.core.options import Options

_Answer = TypeVar("_Answer", ExaminedEvent, TokenizedEvent, AdaptedEvent)
LOG_NAME = "engine.log"
_CLOSE_SECONDS = 1.5


class EngineClient:
    """One engine process, which may be started again after it died."""

    server = ""
    """No server elsewhere answers."""
    why_not_plain = ""
    """Every reply can be made without drafting."""

    def __init__(
        self,
        options: Options,
        *,
        log_dir: Path,
        runtime: str | None = None,
        on_death: Callable[[EngineError], None] | None = None,
        interval: float | None = None,
    ) -> None:
        """Start nothing yet.

        ``runtime`` names another MODULE:FACTORY for the child, for tests. ``on_death`` is called
        in the loop when the process ends without having been asked to. ``interval`` is the number
        of seconds between two messages with tokens; by default there are 30 a second.
        """
        self._options: dict[str, Any] = dataclasses.asdict(options)
        self._log = log_dir / LOG_NAME
        self._runtime = runtime
        self._interval = interval
        self.on_death = on_death
        self.info: ModelInfo | None = None
        self._starts = asyncio.Lock()
        """Held by whoever ends one process and starts another."""
        self._starting: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._opening: asyncio.Queue[EngineEvent | LocalspecError] = asyncio.Queue()
        self._replies: dict[int, Inbox] = {}
        self._next_id = 1
        self._closing = False
        self._close_asked = False
        """Whether `close` was called since `open` was."""
        self._loading = ""
        """The file that is being loaded."""

    @property
    def _doing(self) -> str:
        """The current work of the process, as far as it was reported."""
        if self._loading:
            return f"loading {self._loading}"
        return "answering" if self._replies else ""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The process id, if one was started."""
        return self._process.pid if self._process is not None else None

    async def open(self, on_loading: Callable[[Loading], None] | None = None) -> ModelInfo:
        """Start the process and load the model.

        Raises what Runtime.open raises, EngineError if the process does not come up, Interrupted
        if it is closed meanwhile. An engine that is already running is closed first.
        """
        self._close_asked = False
        await self._started()
        self._send(OpenCommand(self._options))
        while True:
            event = await self._opening.get()
            match event:
                case HelloEvent(version):
                    if version != protocol.VERSION:
                        await self.close()
                        raise EngineError(
                            f"the engine speaks protocol version {version}, the interface "
                            f"version {protocol.VERSION}; install localspec again"
                        )
                case LoadingEvent(progress):
                    self._loading = progress.name
                    if on_loading is not None:
                        on_loading(progress)
                case OpenedEvent(info) if not self._close_asked:  # else its end comes next
                    self._loading = ""
                    self.info = info
                    return info
                case FailedEvent():
                    await self.close()
                    raise event.exception()
                case LocalspecError():
                    raise event

    async def _started(self) -> None:
        """Start the process, in place of the one that there is.

        Raises:
            EngineError: it cannot be started.
            Interrupted: `close` was called meanwhile.
        """
        async with self._starts:
            await self._end()
            if not self._close_asked:
                self._opening = asyncio.Queue()
                self._loading = ""
                # Not cancelled with this: a process made meanwhile would belong to nobody.
                self._starting = asyncio.create_task(self._start(), name="engine start")
                await asyncio.shield(self._starting)
        if self._close_asked:  # while the process was not there yet
            await self._end()
            raise Interrupted("loading was stopped")

    async def _start(self) -> None:
        process = self._process = await spawn(self._log, self._runtime, self._interval)
        self._reader = asyncio.create_task(self._read(process), name="engine reader")

    def reply(self, request: ReplyRequest) -> EngineReply:
        """Have a request answered. Several may be answered at the same time, as many as
        ``info.parallel``; others wait.

        Raises:
            EngineError: the engine is not running.
            UsageError: the conversation is larger than a line of the protocol.
        """
        id, inbox = self._ask()  # noqa: A001 - the protocol's field
        try:
            self._send(ReplyCommand(id, request))
        except BaseException:
            self.forget_reply(id)
            raise
        return EngineReply(self, id, inbox)

    def interrupt_reply(self, id: int) -> None:  # noqa: A002 - the protocol's field
        """End a reply; one that is over already stays as it is."""
        if id in self._replies:
            self._send(InterruptCommand(id))

    def forget_reply(self, id: int) -> None:  # noqa: A002 - the protocol's field
        """Take no more events of a reply; `EngineReply` calls it."""
        inbox = self._replies.pop(id, None)
        if inbox is not None:
            inbox.leave()

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """`Runtime.examine`, beside the replies that run. Cancelled, it ends the engine's work, and
        then ends.

        Raises what that raises, or EngineError when the process dies.
        """
        wanted = tuple(tokens)
        found = await self._answer(
            lambda number: ExamineCommand(number, request, wanted, rival), ExaminedEvent
        )
        return found.examination

    async def tokenize(
        self, request: ReplyRequest, *, special: bool = True, bos: bool = True
    ) -> Tokenized:
        """`Runtime.tokenize`, beside the replies that run. Cancelled as `examine` is.

        Raises what that raises, or EngineError when the process dies.
        """
        found = await self._answer(
            lambda number: TokenizeCommand(number, request, special, bos), TokenizedEvent
        )
        return found.tokenized

    async def adapter(self, name: str, path: Path | None) -> None:
        """`Runtime.load_adapter`, or `Runtime.unload_adapter` without a path.

        Raises what that raises, or EngineError when the process dies.
        """
        file = None if path is None else str(path)
        await self._answer(lambda number: AdapterCommand(number, name, file), AdaptedEvent)

    async def _answer(
        self,
        asks: Callable[[int], ExamineCommand | TokenizeCommand | AdapterCommand],
        answer: type[_Answer],
    ) -> _Answer:
        """The one event that answers the command that ``asks`` makes with a new id."""
        id, inbox = self._ask()  # noqa: A001 - the protocol's field
        command = asks(id)
        try:
            self._send(command)
            match await inbox.get():
                case FailedEvent() as failed:
                    raise failed.exception()
                case EngineError() as error:
                    raise error
                case event if isinstance(event, answer):
                    return event
                case event:
                    raise EngineError(f"the engine answered with {event.type}")
        except asyncio.CancelledError:
            if not isinstance(command, AdapterCommand):
                self.interrupt_reply(command.id)
                await inbox.get()
            raise
        finally:
            self.forget_reply(command.id)

    def _ask(self) -> tuple[int, Inbox]:
        """A new id, and where its events come in."""
        if not self.alive:
            raise EngineError("the engine is not running")
        id = self._next_id  # noqa: A001 - the protocol's field
        self._next_id += 1
        inbox = self._replies[id] = Inbox()
        return id, inbox

    async def close(self) -> None:
        """End the process, orderly if it can, and wait until it is gone.

        While `open` waits this cancels the loading.
        """
        self._close_asked = True
        await self._end()

    async def _end(self) -> None:
        starting = self._starting
        if starting is not None:
            await asyncio.wait({starting})
            if not starting.cancelled():
                starting.exception()  # raised by `open`, unless nobody waits for it
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        self._closing = True
        try:
            self._send(CloseCommand())
            if process.stdin is not None:
                process.stdin.close()
            # The reader ends once the process has; until then it must keep the pipe flowing.
            self._replies_fail(EngineError("the engine was closed"))
            await children.ended(process, _CLOSE_SECONDS)
            await asyncio.wait({reader})
        finally:
            self._closing = False
            if self._process is process:
                self._process = self._reader = None
                self.info = None

    def _send(self, command: Command) -> None:
        """Write without waiting: commands are few, and the engine's reader never sleeps.

        Raises:
            UsageError: the command is larger than the engine would take.
        """
        if isinstance(command, ReplyCommand | ExamineCommand | TokenizeCommand):
            _require_short(command.request.written)  # its line is longer, and takes time to write
        line = protocol.encode(command)
        _require_short(len(line))
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line)

    async def _read(self, process: Process) -> None:
        """Deliver events until the process is gone, then tell everyone who waits."""
        assert process.stdout is not None
        broken: EngineError | None = None
        try:
            # Killed in the middle of a line, the engine leaves one without an end.
            while (line := await process.stdout.readline()).endswith(b"\n"):
                self._deliver(protocol.decode_event(line))
        except EngineError as error:
            broken = error
        except (ValueError, OSError) as failure:  # a line over the limit, a failed pipe
            broken = EngineError(f"the engine broke the protocol: {failure}")
        if broken is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.stdin is not None:
            process.stdin.close()
        status = await process.wait()
        end = broken or exit_error(status, self._log, self._doing)
        self._opening.put_nowait(Interrupted("loading was stopped") if self._closing else end)
        # Also where it was closed: a request may have come after that.
        self._replies_fail(EngineError("the engine was closed") if self._closing else end)
        if not self._closing and self.on_death is not None and self.info is not None:
            self.on_death(end)

    def _deliver(self, event: EngineEvent) -> None:
        id = getattr(event, "id", None)  # noqa: A001 - the protocol's field
        if isinstance(event, FailedEvent) and id is None and self.info is not None:
            # The engine did not understand a command, and it cannot tell which one.
            self._replies_fail(DefectError(event.message))
        elif id is None:
            self._opening.put_nowait(event)
        elif id in self._replies:
            self._replies[id].put(event)

    def _replies_fail(self, error: EngineError) -> None:
        for inbox in self._replies.values():
            inbox.fail(error)


def _require_short(size: int) -> None:
    """Refuse a command of so many bytes, or more, where the engine would not take it.

    Raises:
        UsageError: it would not.
    """
    if size > protocol.MAX_LINE:
        raise UsageError(
            f"the conversation is too long to be sent to the engine: {size >> 20} MB, and "
            f"{protocol.MAX_LINE >> 20} MB is the most; shorten the message"
        )
