"""Models side by side: a slot for each, as long as the memory has room.

A model that has no slot gets a new one where there may be another and it fits beside those that are
loaded; else it is loaded in place of the one that was asked for longest ago. Engines compute with
the same processors: replies of two models at the same time slow each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from weakref import WeakKeyDictionary

from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.events import ModelInfo
from localspec.core.options import Options
from localspec.engine.port import EngineFactory, OwnEngine
from localspec.serve.backend.engine_slot import EngineSlot
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.reporter import Reporter

Fits = Callable[[Options], Awaitable[bool]]
"""Says whether the model of some options fits into the memory beside all that is loaded now."""


class EngineSlots:
    """The slots of a server. What is said of *the* model is said of the one asked for last."""

    def __init__(
        self,
        options: Options,
        factory: EngineFactory,
        reporter: Reporter,
        fits: Fits,
        *,
        most: int = 1,
        keep_loaded: float | None = None,
    ) -> None:
        """``most`` models at a time, the one of ``options`` first; ``keep_loaded`` as in
        `EngineSlot`.
        """
        self.first = options
        """Options of the model that the server was started with."""
        self._factory, self._reporter = factory, reporter
        self._fits, self._most, self._keep_loaded = fits, most, keep_loaded
        self._slots = [self._made(options)]
        """In the order in which they were asked for, the last one last."""
        self._instead: WeakKeyDictionary[EngineSlot, EngineSlot] = WeakKeyDictionary()
        """By slots that were removed, as long as requests know them, those for their models."""

    def _made(self, options: Options) -> EngineSlot:
        return EngineSlot(options, self._factory, self._reporter, keep_loaded=self._keep_loaded)

    @property
    def present(self) -> EngineSlot:
        """The slot of the model that was asked for last."""
        return self._slots[-1]

    @property
    def loaded(self) -> dict[str, ModelInfo]:
        """All loaded models by their public names, the present one first."""
        slots = reversed(self._slots)
        return {public_name(s.options.model): s.info for s in slots if s.info is not None}

    @property
    def every(self) -> list[Options]:
        """Options of all models that have a slot, the present one first."""
        return [slot.options for slot in reversed(self._slots)]

    @property
    def options(self) -> Options:
        """Options of the present model."""
        return self.present.options

    @property
    def info(self) -> ModelInfo | None:
        """The present pair; None while it is not loaded."""
        return self.present.info

    def slot_of(self, options: Options | None) -> EngineSlot | None:
        """The slot of a model, None meaning the present one; None where it has none."""
        if options is None:
            return self.present
        return next((s for s in self._slots if s.options.model == options.model), None)

    def info_of(self, options: Options | None) -> ModelInfo | None:
        """The pair of some options, None meaning the present model; None while it is not loaded."""
        slot = self.slot_of(options)
        return slot.info if slot is not None else None

    @property
    def closed(self) -> bool:
        """Whether engines are no longer started."""
        return self.present.closed

    @property
    def loading(self) -> bool:
        """Whether the present model is being loaded."""
        return self.present.loading

    @property
    def error(self) -> LocalspecError | None:
        """Why the last attempt to load the present model failed."""
        return self.present.error

    @property
    def restarts(self) -> int:
        """How often engines that had died were started again."""
        return sum(slot.restarts for slot in self._slots)

    @contextlib.asynccontextmanager
    async def use(self, options: Options | None = None) -> AsyncIterator[OwnEngine]:
        """See `EngineSlot.use`."""
        slot = self.slot_of(options) or await self._place_for(options)
        self._asked(slot)
        async with contextlib.AsyncExitStack() as stack:
            try:
                engine = await stack.enter_async_context(slot.use(options))
            except LocalspecError as error:
                if not await self._remove_failed(slot):
                    raise
                if not isinstance(error, OutOfMemoryError):
                    raise
                # It did not fit beside the others after all: it takes the place of one.
                slot = self._in_place_of(slot)
                self._asked(slot)
                engine = await stack.enter_async_context(slot.use(options))
            yield engine

    async def load(self, *, reports: bool = True) -> ModelInfo:
        """See `EngineSlot.load`, of the present model."""
        return await self.present.load(reports=reports)

    async def close(self) -> None:
        """End all engines."""
        for slot in [*self._slots]:
            await slot.close()

    async def _place_for(self, options: Options | None) -> EngineSlot:
        """The slot for a model that has none."""
        assert options is not None  # the present model has one
        if len(self._slots) < self._most and await self._fits(options):
            known = self.slot_of(options)  # others may have come while the room was measured
            if known is not None:
                return known
            if len(self._slots) < self._most:
                others = " and ".join(public_name(one.model) for one in self.every)
                self._reporter.notice(f"loading {public_name(options.model)} beside {others}")
                self._slots.append(self._made(options))
                return self.present
        return self.slot_of(options) or self._longest_ago()

    def _longest_ago(self) -> EngineSlot:
        """The slot for another model: an empty one, else the one that was asked for longest ago."""
        empty = (slot for slot in self._slots if slot.info is None and not slot.loading)
        return next(empty, self._slots[0])

    def _asked(self, slot: EngineSlot) -> None:
        if slot in self._slots:
            self._slots.remove(slot)
            self._slots.append(slot)

    async def _remove_failed(self, slot: EngineSlot) -> bool:
        """Remove a slot whose model cannot be loaded and is not the first; whether it is gone."""
        if slot not in self._slots:
            return True  # by another request that waited for it
        failed = slot.info is None and not slot.loading
        if not failed or len(self._slots) == 1 or slot.options.model == self.first.model:
            return False
        self._slots.remove(slot)
        await slot.close()
        return True

    def _in_place_of(self, removed: EngineSlot) -> EngineSlot:
        """The slot for the model of one that was removed: all that waited for it take the same."""
        found = self._instead.get(removed)
        if found is None or found not in self._slots:
            found = self._instead[removed] = self._longest_ago()
        return found
