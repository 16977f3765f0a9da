"""A place for an engine: loaded when it is needed, started again after it died, exchanged for that
of another model, whose memory is free by then. `EngineSlots` says who uses it, and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import replace

from localspec.core.errors import DeviceMemoryError, EngineError, Interrupted, LocalspecError
from localspec.core.events import ModelInfo
from localspec.core.options import Options
from localspec.engine.port import EngineFactory, OwnEngine
from localspec.serve.backend.engine_times import RestartPause, RestartPauses, Stay, UnloadTimer
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.requested_adapters import RequestedAdapters
from localspec.serve.http.errors import NotLoadedError, load_failure

_STEADY_SECONDS = 60.0
"""An engine that lived as long as this is started again at once when it dies."""


class EngineSlot:
    """Holds at most one engine."""

    def __init__(
        self,
        options: Options,
        factory: EngineFactory,
        reporter: Reporter,
        adapters: RequestedAdapters,
        pauses: RestartPauses,
        *,
        keep_loaded: float | None = None,
    ) -> None:
        """``keep_loaded``: seconds without a request until the engine is ended; None keeps it."""
        self.options = options
        """Options of the model that is loaded, or that would be: of the new one as soon as a model
        is exchanged.
        """
        self.before: Options | None = None
        """Options of the model in whose place another one is being loaded, and which comes back
        where that cannot be; None while none is exchanged.
        """
        self._factory = factory
        self._reporter = reporter
        self._adapters = adapters
        self._engine: OwnEngine | None = None
        self._opening: asyncio.Task[OwnEngine] | None = None
        self._changing: asyncio.Task[None] | None = None
        """Exchanges or unloads the engine; those who use it wait for the end of that."""
        self.users = 0
        """Requests whose turn it is: they use the engine, or wait until it is loaded."""
        self._unload = UnloadTimer(keep_loaded)
        self._restarting: asyncio.Task[None] | None = None
        self.closed = False
        """Whether engines are no longer started."""
        self._ending = asyncio.Event()
        """Set while an attempt to load is not wanted any more: it does not begin."""
        self._pauses = pauses
        self.reports = True
        """Whether an attempt to load that fails is reported; else it ends the server."""
        self._stay = Stay()
        self.restarts = 0
        """How often an engine that had died was started again."""

    @property
    def info(self) -> ModelInfo | None:
        """The loaded pair; None while there is none."""
        return self._engine.info if self._engine is not None else None

    @property
    def error(self) -> LocalspecError | None:
        """Why the last attempt to load the model failed; None since one succeeded."""
        return self.pause.error

    @property
    def pause(self) -> RestartPause:
        """How long the next attempt to load the model waits."""
        return self._pauses.of(self.options)

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded."""
        return self.attempt is not None or self.exchanging

    @property
    def attempt(self) -> asyncio.Task[OwnEngine] | None:
        """The running attempt to load; None where there is none."""
        return self._opening

    @property
    def exchanging(self) -> bool:
        """Whether that is in place of another one."""
        return self.before is not None

    @property
    def empty(self) -> bool:
        """Whether no model is loaded, nor wanted by anybody."""
        return self.info is None and not self.loading and not self.users

    @property
    def vacant(self) -> bool:
        """Whether it is empty, and the memory of the model that was here is free."""
        return self.empty and self._changing is None

    @property
    def stays(self) -> float:
        """Seconds that the loaded model stays yet although another one is waited for."""
        if self.info is None:
            return 0.0
        stays = self._stay.left(in_use=self.users > 0)
        return stays if self.kept is None else min(stays, self.kept)

    def holds(self, engine: OwnEngine) -> bool:
        """Whether that is the engine here."""
        return self._engine is engine

    def enter(self) -> None:
        """It is the turn of a request, which calls `leave` when it needs the engine no more."""
        self.users += 1
        self._unload.stop()

    def leave(self) -> None:
        """A request that had entered needs the engine no more."""
        self.users -= 1
        self._stay.used()
        self._plan_unload()

    async def ready(self) -> OwnEngine:
        """The engine, for who has entered; loaded if it is not.

        Raises:
            LocalspecError: it cannot be loaded: NotLoadedError, unless the memory is too small or
                the engine stopped; PausedError where it keeps stopping.
        """
        try:
            if self._changing is not None:
                await asyncio.shield(self._changing)
            engine = self._engine
            # While it is opened it may be there, and lack adapters.
            if self._opening is None and engine is not None and engine.alive:
                return engine
            self.pause.require_over()
            # The attempt outlives the request that started it: others wait for the same one.
            return await asyncio.shield(self._attempt())
        except LocalspecError as error:
            if isinstance(error, EngineError) and not self.reports:  # it is not started again
                raise NotLoadedError(error) from None
            raise load_failure(error) from None

    def exchange(self, options: Options) -> asyncio.Task[None]:
        """Load another model; where it cannot be, the one before stays. Nobody uses that one."""
        self.before, self.options = self.options, options
        self._unload.reset()
        return self._change(self._exchange(self._taken(), self._changing))

    async def unload_adapter(self, name: str) -> None:
        """Have the engine unload an adapter, if one is loaded. Nobody's turn is needed for it.

        Raises:
            LocalspecError: the engine stopped, or refuses.
        """
        if self._engine is not None and self._engine.info is not None:
            await self._engine.adapter(name, None)

    async def close(self) -> None:
        """End the engine. Replies that run end with an error."""
        self.closed = True
        self._unload.stop()
        await self._end(self._taken())
        if self._changing is not None:
            await asyncio.wait({self._changing})

    def keep(self, seconds: float | None) -> None:
        """How long the idle engine stays, as a request asks for it: see `UnloadTimer.keep`. Of a
        model that is not loaded it has no effect.
        """
        if not self.empty:
            self._unload.keep(seconds)
            self._plan_unload()

    @property
    def kept(self) -> float | None:
        """Seconds until the idle engine is unloaded, if no request comes; None: it stays."""
        return self._unload.left

    # -- inside --------------------------------------------------------------------------------

    def _died(self, engine: OwnEngine, error: EngineError) -> None:
        """An engine died: start it again, with less where its device ran out of memory."""
        held = self._engine is engine
        opening = self._opening is not None and not self._opening.done()
        # Else it was to be ended anyway.
        if self.closed or not (held or (opening and not self.exchanging)):
            return
        if isinstance(error, DeviceMemoryError):
            self.options = replace(self.options, smaller=self.options.smaller + 1)
        if held and opening:  # while its adapters are loaded: the attempt fails, and tells of it
            return
        self._reporter.notice(f"{error}; starting it again")
        if self._stay.age < _STEADY_SECONDS:
            self.pause.extend()
        else:
            self.pause.forget()
        self.restarts += 1
        if held:  # else a request has found it dead before, and another one is being started
            self._engine = None
            work = self._restart(self._attempt())
            self._restarting = asyncio.create_task(work, name="restarting the engine")

    def _change(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self._changing = asyncio.create_task(work, name="changing the engine")
        self._changing.add_done_callback(self._changed)
        return self._changing

    def _changed(self, task: asyncio.Task[None]) -> None:
        if self._changing is not task:  # an exchange has begun after it
            return
        self._changing = None
        if self.before is not None:
            # Raised by those who wait; the model before comes back whether there are any or not.
            if task.cancelled() or task.exception() is not None:
                self.options = self.before
            self.before = None
        self._plan_unload()

    async def _exchange(self, engine: OwnEngine | None, earlier: asyncio.Task[None] | None) -> None:
        """End the engine of the model before, once an ``earlier`` change is over, and load."""
        if earlier is not None:
            await asyncio.wait({earlier})
        await self._end(engine)
        await asyncio.shield(self._attempt())

    def _attempt(self) -> asyncio.Task[OwnEngine]:
        """The running attempt to load, or a new one."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(self.options), name="loading the engine")
            self._opening.add_done_callback(self._attempted)
        return self._opening

    def _attempted(self, task: asyncio.Task[OwnEngine]) -> None:
        self._opening = None
        error = None if task.cancelled() else task.exception()  # raised by those who wait
        if isinstance(error, EngineError) and self.reports and not self.closed:
            self._reporter.notice(f"the engine cannot be started: {error}")
        self._plan_unload()  # those who asked for it may have left while there was no engine

    async def _open(self, options: Options) -> OwnEngine:
        pause = self._pauses.of(options)
        if pause.left > 0 and pause.error is not None:
            raise pause.error
        if pause.left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause.left)
        if self.closed:
            raise EngineError("the server is stopping")
        if self._ending.is_set():
            raise Interrupted("this model is not needed any more")
        engine: OwnEngine = self._factory.engine(options, lambda error: self._died(engine, error))
        self._engine = engine
        begun = time.monotonic()
        try:
            await engine.open()
            await self._adapters.load_again(engine, options, self._reporter)
            if self._engine is not engine or not engine.alive:
                raise EngineError("the engine stopped as soon as it was loaded")
        except LocalspecError as error:
            await engine.close()
            if self._engine is not engine:
                raise Interrupted("the engine was ended while it was loaded") from error
            self._engine = None
            if not isinstance(error, Interrupted):
                pause.failed(error)
            raise
        pause.error = None
        self._stay.begin(time.monotonic() - begun)
        return engine

    def _taken(self) -> OwnEngine | None:
        """The engine, which is held no more."""
        engine, self._engine = self._engine, None
        return engine

    async def _end(self, engine: OwnEngine | None) -> None:
        """End an engine that was taken, and one that is being loaded or about to be started."""
        if engine is not None:
            await engine.close()
        opening = self._opening
        if opening is not None:
            self._ending.set()
            try:
                begun = self._taken()
                if begun is not None:
                    await begun.close()
                await asyncio.wait({opening})  # and until its callbacks have run
            finally:
                self._ending.clear()

    async def _restart(self, attempt: asyncio.Task[OwnEngine]) -> None:
        try:
            await asyncio.shield(attempt)
        except LocalspecError as error:
            if not isinstance(error, (EngineError, Interrupted)):  # told already, or not wanted
                self._reporter.notice(f"the engine cannot be started: {error}")

    def _plan_unload(self) -> None:
        if not (self.users or self._changing or self._engine is None or self.closed):
            self._unload.start(self._unload_now)

    def _unload_now(self) -> None:
        if self._changing is None and not self.users:
            self._change(self._end(self._taken()))
