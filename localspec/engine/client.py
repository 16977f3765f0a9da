"""The interface's side of the engine process: start it, ask it, report its end.

All methods belong to one asyncio loop, never block it, and never print. Reading happens in the
background; a reply that is not consumed holds back the engine's pipe instead of filling memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.core.events import Examination, Finished, Loading, ModelInfo, ReplyEvent
from localspec.core.reply_request import ReplyRequest
from localspec.engine import protocol
from localspec.engine.commands import (
    CloseCommand,
    Command,
    ExamineCommand,
    InterruptCommand,
    OpenCommand,
    ReplyCommand,
)
from localspec.engine.events import (
    EngineEvent,
    ExaminedEvent,
    FailedEvent,
    HelloEvent,
    LoadingEvent,
    OpenedEvent,
    ReplyEvents,
)
from localspec.engine.inbox import Inbox
from localspec.engine.spawn import exit_error, spawn
from localspec.errors import EngineError, Interrupted, LocalspecError, UsageError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from localspec.loading.options import Options

LOG_NAME = "engine.log"
_CLOSE_SECONDS = 1.5


class EngineClient:
    """One engine process, which may be started again after it died."""

    def __init__(
        self,
        options: Options,
        *,
        log_dir: Path,
        runtime: str | None = None,
        on_death: Callable[[EngineError], None] | None = None,
    ) -> None:
        """Start nothing yet.

        ``runtime`` names another MODULE:FACTORY for the child, for tests. ``on_death`` is called
        in the loop when the process ends without having been asked to.
        """
        self._options: dict[str, Any] = dataclasses.asdict(options)
        self._log = log_dir / LOG_NAME
        self._runtime = runtime
        self.on_death = on_death
        self.info: ModelInfo | None = None
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._opening: asyncio.Queue[EngineEvent | LocalspecError] = asyncio.Queue()
        self._replies: dict[int, Inbox] = {}
        self._next_id = 1
        self._closing = False
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
        await self.close()
        self._opening = asyncio.Queue()
        self._loading = ""
        self._process = await spawn(self._log, self._runtime)
        self._reader = asyncio.create_task(self._read(self._process), name="engine reader")
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
                case OpenedEvent(info):
                    self._loading = ""
                    self.info = info
                    return info
                case FailedEvent():
                    await self.close()
                    raise event.exception()
                case LocalspecError():
                    raise event

    def submit(self, request: ReplyRequest) -> EngineReply:
        """Answer a request, once its events are read; the last one is Finished.

        Reading them raises what Runtime.submit raises, EngineError when the process dies, and
        UsageError where the conversation is larger than a line of the protocol. Closing the reply
        early interrupts it.
        """
        return EngineReply(self, request)

    async def _events(self, reply: EngineReply) -> AsyncGenerator[ReplyEvent]:
        id, inbox = self._ask()  # noqa: A001 - the protocol's field
        sent = done = False
        try:
            self._send(ReplyCommand(id, reply.request))
            sent, reply.id = True, id
            if reply.interrupted:
                self._send(InterruptCommand(id))
            while not done:
                match await inbox.get():
                    case ReplyEvents(_, events):
                        done = isinstance(events[-1], Finished)
                        for event in events:
                            yield event
                    case FailedEvent() as failed:
                        done = True
                        raise failed.exception()
                    case EngineError() as error:
                        done = True
                        raise error
                    case other:
                        raise EngineError(f"the engine answered with {other.type}")
        finally:
            del self._replies[id]
            inbox.leave()
            if sent and not done:
                self._send(InterruptCommand(id))

    def interrupt_reply(self, reply: EngineReply) -> None:
        """End one reply, running or waiting; it still ends with Finished."""
        if reply.id in self._replies:
            self._send(InterruptCommand(reply.id))

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """`Runtime.examine`, after the replies that wait in line.

        Raises what that raises, or EngineError when the process dies.
        """
        id, inbox = self._ask()  # noqa: A001 - the protocol's field
        try:
            self._send(ExamineCommand(id, request, tuple(tokens), rival))
            match await inbox.get():
                case ExaminedEvent(_, examination):
                    return examination
                case FailedEvent() as failed:
                    raise failed.exception()
                case EngineError() as error:
                    raise error
                case other:
                    raise EngineError(f"the engine answered with {other.type}")
        finally:
            del self._replies[id]
            inbox.leave()

    def _ask(self) -> tuple[int, Inbox]:
        """A new id, and where its events come in."""
        if not self.alive:
            raise EngineError("the engine is not running")
        id = self._next_id  # noqa: A001 - the protocol's field
        self._next_id += 1
        inbox = self._replies[id] = Inbox()
        return id, inbox

    def interrupt(self) -> None:
        """End every running and waiting reply; each still ends with Finished."""
        for id in self._replies:  # noqa: A001 - the protocol's field
            self._send(InterruptCommand(id))

    async def close(self) -> None:
        """End the process, orderly if it can, and wait until it is gone.

        While `open` waits this cancels the loading.
        """
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
            done, _ = await asyncio.wait({reader}, timeout=_CLOSE_SECONDS)
            if not done:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await reader
        finally:
            self._closing = False
            self._process = self._reader = None
            self.info = None

    def _send(self, command: Command) -> None:
        """Write without waiting: commands are few, and the engine's reader never sleeps.

        Raises:
            UsageError: the command is larger than the engine would take.
        """
        line = protocol.encode(command)
        if len(line) > protocol.MAX_LINE:
            raise UsageError(
                f"the conversation is too long to be sent to the engine: {len(line) >> 20} MB, and "
                f"{protocol.MAX_LINE >> 20} MB is the most; shorten the message"
            )
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line)

    async def _read(self, process: Process) -> None:
        """Deliver events until the process is gone, then tell everyone who waits."""
        assert process.stdout is not None
        broken: EngineError | None = None
        try:
            while line := await process.stdout.readline():
                await self._deliver(protocol.decode_event(line))
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
        if not self._closing:
            self._replies_fail(end)
            if self.on_death is not None and self.info is not None:
                self.on_death(end)

    async def _deliver(self, event: EngineEvent) -> None:
        id = getattr(event, "id", None)  # noqa: A001 - the protocol's field
        if isinstance(event, FailedEvent) and id is None and self.info is not None:
            # The engine did not understand a command, and it cannot tell which one.
            self._replies_fail(EngineError(event.message))
        elif id is None:
            self._opening.put_nowait(event)
        elif id in self._replies:
            await self._replies[id].put(event)

    def _replies_fail(self, error: EngineError) -> None:
        for inbox in self._replies.values():
            inbox.fail(error)


class EngineReply(AsyncIterator[ReplyEvent]):
    """The events of one reply of an engine; reading the first one sends the request."""

    def __init__(self, client: EngineClient, request: ReplyRequest) -> None:
        self.request = request
        self.id = 0
        """Id in the protocol; 0 until the request is sent."""
        self.interrupted = False
        self._client = client
        self._events = client._events(self)  # noqa: SLF001 - the two are one

    async def __anext__(self) -> ReplyEvent:
        """The next event."""
        return await anext(self._events)

    def interrupt(self) -> None:
        """End this reply now, also before it was sent; it still ends with Finished."""
        self.interrupted = True
        self._client.interrupt_reply(self)

    async def aclose(self) -> None:
        """Read no further; a reply that is still being made is interrupted."""
        await self._events.aclose()
