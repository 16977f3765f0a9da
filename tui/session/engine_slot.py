"""The engine there is, and how another takes its place."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.core.events import Loading, ModelInfo
from localspec.errors import EngineError, Interrupted, LocalspecError, UsageError
from tui.session.notifications import Died, Failed, Happening, NotOpened, Opened, Told
from tui.session.ports import Engine, Phase

if TYPE_CHECKING:
    from localspec.loading.options import Options


class Engines:
    """Opens an engine, exchanges it for another, and knows what it is doing."""

    def __init__(
        self,
        engine: Engine,
        options: Options | None,
        reopen: Callable[[Options], Engine] | None,
        tell: Callable[[Happening], None],
    ) -> None:
        """``options`` are those of the engine; with them ``reopen`` makes another."""
        self.engine = engine
        self.options = options
        self.reopen = reopen
        self._tell = tell
        self.phase = Phase.LOADING
        self.loading: Loading | None = None
        self.info: ModelInfo | None = None
        self._closing: asyncio.Future[None] | None = None
        self._before: Options | None = None
        """What answered before another model was chosen; it comes back if that cannot be loaded."""
        engine.on_death = self._died

    def restart(self) -> bool:
        """Load again what is dead; whether it was."""
        if self.phase is not Phase.DEAD:
            return False
        self.phase = Phase.LOADING
        return True

    def cancel_loading(self) -> bool:
        """Do not load the model after all; whether it was being loaded."""
        if self.phase is not Phase.LOADING:
            return False
        self._closing = asyncio.ensure_future(self.engine.close())
        return True

    def changed(self, changes: dict[str, object]) -> Options:
        """The options with changes.

        Raises:
            UsageError: options that cannot be meant, or a model that is still being loaded.
        """
        if self.options is None or self.reopen is None or self.phase is Phase.LOADING:
            raise UsageError("wait until the model is loaded")
        return dataclasses.replace(self.options, **changes)  # type: ignore[arg-type]

    def exchange(self, options: Options) -> None:
        """Load other options from now on."""
        if self.phase is not Phase.DEAD:
            self._before = self.options
        self._put(options)
        self.phase = Phase.LOADING

    async def open(self) -> bool:
        """Load the model; whether it is ready. Else its phase says what to do next."""
        self.loading = None
        if self._closing is not None:  # two models at once may not fit
            await self._closing
            self._closing = None
        try:
            info = await self.engine.open(self._loads)
        except LocalspecError as error:
            self._not_opened(error)
            return False
        self._before = None
        self.info = info
        self.phase = Phase.READY
        self._tell(Opened(info))
        return True

    def _not_opened(self, error: LocalspecError) -> None:
        before, self._before = self._before, None
        if before is not None:
            self._put(before)
            self._tell(Failed(error))
            self._tell(Told(f"{before.model} is being loaded again"))
            return
        self.phase = Phase.DEAD
        stopped = isinstance(error, Interrupted)
        self._tell(Died(error) if stopped else NotOpened(error))

    def _put(self, options: Options) -> None:
        """Another engine in place of this one, which is closed first."""
        assert self.reopen is not None
        self.engine.on_death = None
        self._closing = asyncio.ensure_future(self.engine.close())
        self.options, self.engine = options, self.reopen(options)
        self.engine.on_death = self._died

    def _loads(self, loading: Loading) -> None:
        self.loading = loading

    def _died(self, error: EngineError) -> None:
        self.phase = Phase.DEAD
        self._tell(Died(error))
