"""The engine of the server: loaded when it is needed, started again after it died, exchanged for
that of another model when a request names one.

One engine at a time: two models rarely fit into the memory of the machines that this runs on.
While one waits for another model, later ones wait too, so that it gets its turn; all that wait for
the same model come in with it, so that requests in turns do not cost a load each.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path

from localspec.core.errors import (
    DeviceMemoryError,
    EngineError,
    Interrupted,
    LocalspecError,
    OutOfMemoryError,
)
from localspec.core.events import ModelInfo
from localspec.core.options import Options
from localspec.engine.port import EngineFactory, OwnEngine
from localspec.serve.backend.engine_times import RestartPause, UnloadTimer
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.waiting_list import WaitingList
from localspec.serve.http.errors import NotLoadedError, PausedError

_PATIENCE = 3.0
"""Longest pause before a restart, in seconds, that a request waits for; it is refused otherwise."""
_STEADY_SECONDS = 60.0
"""An engine that lived as long as this is started again at once when it dies."""
_IN_USE = 1.0
"""A model that was used within so many seconds is in use."""
_LONGEST_STAY = 10.0


class EngineSlot:
    """Holds at most one engine."""

    def __init__(
        self,
        options: Options,
        factory: EngineFactory,
        reporter: Reporter,
        *,
        keep_loaded: float | None = None,
    ) -> None:
        """``keep_loaded``: seconds without a request until the engine is ended; None keeps it."""
        self.options = options
        """Options of the model that is loaded, or that would be."""
        self._before: Options | None = None
        """Options to return to where the model that is being loaded cannot be."""
        self._factory = factory
        self._reporter = reporter
        self._engine: OwnEngine | None = None
        self._opening: asyncio.Task[OwnEngine] | None = None
        self._waiting = WaitingList()
        self._changing: asyncio.Task[None] | None = None
        """Exchanges or unloads the engine; no request gets it meanwhile."""
        self.users = 0
        """Requests whose turn it is: they use the engine, or wait until it is loaded."""
        self._unload = UnloadTimer(keep_loaded)
        self._restarting: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()
        """Ends the pause before a restart."""
        self._pause = RestartPause()
        self.error: LocalspecError | None = None
        """Why the last attempt to load failed; None since one succeeded."""
        self._reports = True
        """Whether an attempt to load that fails is reported."""
        self._opened_at = self._left_at = 0.0
        self._stay = 0.0
        """Seconds that the loaded model stays while it is in use: as many as loading it took."""
        self._look: asyncio.TimerHandle | None = None
        self.adapters: list[Path] = []
        """Adapters that requests loaded: every further engine loads them too."""
        self.restarts = 0
        """How often an engine that had died was started again."""

    @property
    def info(self) -> ModelInfo | None:
        """The loaded pair; None while there is none."""
        return self._engine.info if self._engine is not None else None

    @property
    def closed(self) -> bool:
        """Whether engines are no longer started."""
        return self._stopping.is_set()

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded."""
        return self._opening is not None

    @contextlib.asynccontextmanager
    async def use(self, options: Options | None = None) -> AsyncIterator[OwnEngine]:
        """The engine of a model, loaded if it is not; it stays while the block runs.

        ``options`` None means whatever model is loaded, else the first one.

        Raises:
            LocalspecError: it cannot be loaded: NotLoadedError, unless the memory is too small or
                the engine stopped; PausedError where it keeps stopping.
        """
        try:
            await self._enter(options)
            try:
                engine = await self._ready()
            except BaseException:
                self._leave()
                raise
        except (EngineError, Interrupted, OutOfMemoryError):
            raise
        except LocalspecError as error:
            raise NotLoadedError(error) from error
        try:
            yield engine
        finally:
            self._leave()

    async def load(self, *, reports: bool = True) -> ModelInfo:
        """Load the model now. A failure is raised, and reported besides if ``reports``.

        Raises:
            LocalspecError: it cannot be loaded.
        """
        self._reports = reports
        try:
            async with self.use() as engine:
                assert engine.info is not None
                return engine.info
        except NotLoadedError as error:
            raise error.reason from None
        finally:
            self._reports = True

    async def close(self) -> None:
        """End the engine. Replies that run end with an error."""
        self._stopping.set()
        self._unload.stop()
        if self._look is not None:
            self._look.cancel()
        await self._end()
        if self._changing is not None:
            await asyncio.wait({self._changing})

    def keep(self, seconds: float | None) -> None:
        """How long the idle engine stays, as a request asks for it: see `UnloadTimer.keep`."""
        self._unload.keep(seconds)
        self._plan_unload()

    @property
    def kept(self) -> float | None:
        """Seconds until the idle engine is unloaded, if no request comes; None: it stays."""
        return self._unload.left

    def died(self, error: EngineError) -> None:
        """The engine died: start it again, with less where its device ran out of memory."""
        if self.closed:
            return
        self._reporter.notice(f"{error}; starting it again")
        if isinstance(error, DeviceMemoryError):
            self.options = replace(self.options, smaller=self.options.smaller + 1)
        if time.monotonic() - self._opened_at < _STEADY_SECONDS:
            self._pause.extend()
        else:
            self._pause.forget()
        self.restarts += 1
        self._engine = None
        self._restarting = asyncio.create_task(self._restart(), name="restarting the engine")

    # -- inside --------------------------------------------------------------------------------

    async def _enter(self, options: Options | None) -> None:
        """Wait for the turn of a request."""
        one = self._waiting.join(options)
        self._advance()
        try:
            await one.turn
        except BaseException:
            if one.turn.done() and not one.turn.cancelled() and one.turn.exception() is None:
                self._leave()  # the turn came, and the request is cancelled
            self._waiting.leave(one)
            self._advance()
            raise
        self._unload.stop()

    def _leave(self) -> None:
        """A request needs the engine no more."""
        self.users -= 1
        self._left_at = time.monotonic()
        self._advance()
        self._plan_unload()

    def _advance(self) -> None:
        """Let in those whose turn it is, or begin to load the model that the first one needs."""
        if self._changing is not None:
            return
        self.users += self._waiting.admit_first(self.options)
        if not self._waiting:
            return
        stays = self._stays()
        if stays > 0:  # requests in turns would cost a load each
            self.users += self._waiting.admit_all(self.options)
            if self._look is not None:
                self._look.cancel()
            self._look = asyncio.get_running_loop().call_later(stays, self._advance)
        elif not self.users:
            options = self._waiting.first.options
            assert options is not None
            self._change(self._exchange(options))

    def _stays(self) -> float:
        """Seconds that the loaded model stays yet although another one is waited for."""
        if self.info is None:
            return 0.0
        now = time.monotonic()
        used = self._left_at + _IN_USE if not self.users else now + _IN_USE
        return min(self._opened_at + self._stay, used) - now

    def _change(self, work: Coroutine[None, None, None]) -> None:
        self._changing = asyncio.create_task(work, name="changing the engine")
        self._changing.add_done_callback(self._changed)

    def _changed(self, _: asyncio.Task[None]) -> None:
        self._changing = None
        self._advance()
        self._plan_unload()

    async def _ready(self) -> OwnEngine:
        engine = self._engine
        if engine is not None and engine.alive and engine.info is not None:
            return engine
        if self._pause.left > _PATIENCE and self.error is None:
            raise PausedError(self._pause.left)
        # The attempt outlives the request that started it: others wait for the same one.
        return await asyncio.shield(self._attempt())

    async def _exchange(self, options: Options) -> None:
        """Load another model for all that wait for it; where it cannot be, the one before stays."""
        n, before = self._waiting.count(options), public_name(self.options.model)
        self._reporter.notice(
            f"loading {public_name(options.model)} in place of {before}: "
            f"{n} {'request waits' if n == 1 else 'requests wait'} for it"
        )
        await self._end()
        self._before, self.options = self.options, options
        self._pause.end()
        try:
            await asyncio.shield(self._attempt())
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            self._waiting.refuse(options, error)
        else:
            self.users += self._waiting.admit_all(options)

    def _attempt(self) -> asyncio.Task[OwnEngine]:
        """The running attempt to load, or a new one."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="loading the engine")
            self._opening.add_done_callback(self._attempted)
        return self._opening

    def _attempted(self, task: asyncio.Task[OwnEngine]) -> None:
        self._opening = None
        error = None if task.cancelled() else task.exception()  # raised by those who wait
        if isinstance(error, EngineError) and self._reports and not self.closed:
            self._reporter.notice(f"the engine cannot be started: {error}")
        self._plan_unload()  # those who asked for it may have left while there was no engine

    async def _open(self) -> OwnEngine:
        if self._stopping.is_set():
            raise EngineError("the server is stopping")
        pause = self._pause.left
        if pause > 0 and self.error is not None:
            raise self.error
        if pause > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
                if self._stopping.is_set():
                    raise EngineError("the server is stopping")
                raise Interrupted("this model is not needed any more")
        engine = self._factory.engine(self.options, self.died)
        self._engine = engine
        begun = time.monotonic()
        try:
            await engine.open()
            await self._load_adapters(engine)
        except LocalspecError as error:
            self._engine = None
            if self._before is not None:  # whether requests still wait for the other model or not
                self.options, self._before = self._before, None
            elif not isinstance(error, Interrupted):
                self.error = error
                self._pause.extend()
            raise
        self._before = None
        if self._engine is not engine:  # ended while its process was not there yet
            await engine.close()
            raise Interrupted("the engine was ended while it was loaded")
        self.error, self._opened_at = None, time.monotonic()
        self._stay = min(self._opened_at - begun, _LONGEST_STAY)
        return engine

    async def _load_adapters(self, engine: OwnEngine) -> None:
        """Load what requests had loaded; what this model cannot use is refused to them later.

        Raises:
            EngineError: the engine stopped.
        """
        for path in [*self.adapters]:
            try:
                await engine.adapter(path, load=True)
            except EngineError:
                raise
            except LocalspecError as error:
                self._reporter.notice(f"the adapter {path.name} is not loaded again: {error}")

    async def _end(self) -> None:
        """End the engine, also one that is being loaded or about to be started again."""
        await self._close_engine()
        if self._opening is not None:
            self._ending.set()
            try:
                with contextlib.suppress(LocalspecError):
                    await asyncio.shield(self._opening)
            finally:
                self._ending.clear()
            await self._close_engine()  # it may have been loaded all the same

    async def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def _restart(self) -> None:
        try:
            await asyncio.shield(self._attempt())
        except LocalspecError as error:
            if not isinstance(error, (EngineError, Interrupted)):  # told already, or not wanted
                self._reporter.notice(f"the engine cannot be started: {error}")

    def _plan_unload(self) -> None:
        if not (self.users or self._changing or self._engine is None or self.closed):
            self._unload.start(self._unload_now)

    def _unload_now(self) -> None:
        if self._changing is None and not self.users:
            self._change(self._end())
