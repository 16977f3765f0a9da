"""The engine in use, and its replacement by one with other options."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from localspec.core.errors import (
    DeviceError,
    DeviceMemoryError,
    EngineError,
    Interrupted,
    LocalspecError,
    UsageError,
    WorkerError,
    WorkerLostError,
)
from localspec.core.events import Loading, Message, ModelInfo
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.engine.port import Engine
from tui.session.notifications import (
    EngineDied,
    LoadFailed,
    ModelOpened,
    NoticeAdded,
    Notification,
    ReplyFailed,
)

if TYPE_CHECKING:
    from localspec.core.options import Options
    from localspec.tools.toolbox import RequestTools


class Phase(enum.Enum):
    """The state of the engine."""

    LOADING = "loading"
    READY = "ready"
    REPLYING = "replying"
    DEAD = "dead"
    """It ended, or could not load; `Session.restart` starts it again."""


_BACK_OFF_S = (1, 2, 4, 8, 15)
"""Seconds between attempts to load a model whose workers were lost."""


@runtime_checkable
class _Tokenizes(Protocol):
    async def tokenize(self, request: ReplyRequest) -> Tokenized: ...


class SessionEngine:
    """Opens an engine, replaces it, and tracks its phase."""

    def __init__(
        self,
        engine: Engine,
        options: Options | None,
        reopen: Callable[[Options], Engine] | None,
        tell: Callable[[Notification], None],
    ) -> None:
        """``options`` are those of ``engine``; ``reopen`` makes an engine with other options."""
        self.client = engine
        self.options = options
        self.reopen = reopen
        self._tell = tell
        self.phase = Phase.LOADING
        self.loading: Loading | None = None
        self.info: ModelInfo | None = None
        self._closing: asyncio.Future[None] | None = None
        self._out_of_memory = False
        """Whether the engine died because its device ran out of memory."""
        self._before: Options | None = None
        """Options of the model before; loaded again if the new one cannot be loaded."""
        engine.on_death = self._died

    def restart(self) -> bool:
        """Start a dead engine again, with a smaller plan of memory if its device ran out of it;
        whether it was dead.
        """
        if self.phase is not Phase.DEAD:
            return False
        if self._out_of_memory and self.options is not None and self.reopen is not None:
            self._out_of_memory = False
            self._replace(dataclasses.replace(self.options, smaller=self.options.smaller + 1))
        self.phase = Phase.LOADING
        return True

    def cancel_loading(self) -> bool:
        """Stop loading the model; whether it was being loaded."""
        if self.phase is not Phase.LOADING:
            return False
        self._closing = asyncio.ensure_future(self.client.close())
        return True

    async def count(self, text: str) -> int | None:
        """Tokens of a text; None where the engine is not ready or cannot tell.

        Raises:
            LocalspecError: the engine failed.
        """
        client = self._tokenizer
        return None if client is None else await _length(client, ReplyRequest(prompt=text))

    async def count_tools(self, tools: RequestTools) -> int | None:
        """Tokens that tools add to a prompt, as the model's template writes them; None as `count`.

        Raises:
            LocalspecError: the engine failed, or the template knows no tools.
        """
        client, asked = self._tokenizer, ReplyRequest((Message("user", "."),))
        if client is None:
            return None
        without = await _length(client, asked)
        return await _length(client, dataclasses.replace(asked, tools=tools.text)) - without

    @property
    def _tokenizer(self) -> _Tokenizes | None:
        ready = self.phase in (Phase.READY, Phase.REPLYING)
        return self.client if ready and isinstance(self.client, _Tokenizes) else None

    def changed(self, changes: dict[str, object]) -> Options:
        """The present options with changes.

        Raises:
            UsageError: invalid options, or a model that is still being loaded.
        """
        if self.client.server:
            raise UsageError(
                f"{self.client.server} decides which model it loads and how; drafting, context and "
                "threads are set there"
            )
        if self.options is None or self.reopen is None or self.phase is Phase.LOADING:
            raise UsageError("wait until the model is loaded")
        return dataclasses.replace(self.options, **changes)  # type: ignore[arg-type]

    def exchange(self, options: Options) -> None:
        """Load another engine with ``options``."""
        if self.phase is not Phase.DEAD:
            self._before = self.options
        self._replace(options)
        self.phase = Phase.LOADING

    async def open(self) -> bool:
        """Load the model; whether it is ready. If not, `phase` says what to do next."""
        self.loading = None
        await self._closed()  # two models at once may not fit
        try:
            info = await self._opened()
            if self._closing is not None:
                raise Interrupted("loading was stopped")  # just as it ended
        except LocalspecError as error:
            self._load_failed(error)
            return False
        self._before = None
        self.info = info
        self.phase = Phase.READY
        self._tell(ModelOpened(info))
        return True

    async def _opened(self) -> ModelInfo:
        """Load the model; where its workers were lost, when they are back, else without them."""
        for delay in _BACK_OFF_S:
            try:
                return await self.client.open(self._set_loading)
            except (WorkerError, WorkerLostError) as error:
                if self.info is None or self.options is None:
                    raise
                self._tell(NoticeAdded(f"{error}. Trying again in {delay} s."))
            await asyncio.sleep(delay)
            if await self._closed():
                raise Interrupted("loading was stopped")
        return await self._opened_here()

    async def _closed(self) -> bool:
        """Wait until an engine that is being closed is gone; whether there was one."""
        if self._closing is None:
            return False
        await self._closing
        self._closing = None
        return True

    async def _opened_here(self) -> ModelInfo:
        """Load the model on this machine alone; if that fails, the workers are tried again next
        time.
        """
        assert self.options is not None
        before = self.options
        self._replace(dataclasses.replace(before, rpc=None))
        self._tell(
            NoticeAdded(
                "The workers are not back: the model is loaded on this machine alone, until the "
                "chat is started again."
            )
        )
        try:
            await self._closed()
            return await self.client.open(self._set_loading)
        except LocalspecError:
            self._replace(before)
            raise

    def _load_failed(self, error: LocalspecError) -> None:
        before, self._before = self._before, None
        if before is not None:
            self._replace(before)
            self._tell(ReplyFailed(error))
            self._tell(NoticeAdded(f"{before.model} is being loaded again"))
            return
        self.phase = Phase.DEAD
        stopped = isinstance(error, Interrupted)
        self._tell(EngineDied(error) if stopped else LoadFailed(error))

    def _replace(self, options: Options) -> None:
        """Make an engine with ``options``; the present one is closed first."""
        assert self.reopen is not None
        self.client.on_death = None
        self._closing = asyncio.ensure_future(self.client.close())
        self.options, self.client = options, self.reopen(options)
        self.client.on_death = self._died

    def _set_loading(self, loading: Loading) -> None:
        self.loading = loading

    def _died(self, error: EngineError) -> None:
        self.phase = Phase.DEAD
        self._out_of_memory = isinstance(error, DeviceMemoryError)
        self._tell(EngineDied(error))
        if isinstance(error, DeviceError):  # the device failed, not the file or the build
            self.restart()


async def _length(client: _Tokenizes, request: ReplyRequest) -> int:
    """Tokens of a prompt."""
    return len((await client.tokenize(request)).tokens)
