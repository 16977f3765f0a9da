"""Models side by side: a slot for each, as long as the memory has room.

A model that has no slot gets a new one where there may be another and it fits beside those that are
loaded; else it is loaded in place of another one. Engines compute with the same processors: replies
of two models at the same time slow each other.

`EngineSlots._advance` alone decides which slot a request gets, and when. While one waits for a
model that has none, later ones for the model that is to leave wait too, so that it gets its turn;
all that wait for the same model come in with it, so that requests in turns do not cost a load each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.events import ModelInfo
from localspec.core.options import Options
from localspec.engine.port import EngineFactory, OwnEngine
from localspec.serve.backend.engine_slot import EngineSlot
from localspec.serve.backend.engine_times import KeepAlive, RestartPause, RestartPauses
from localspec.serve.backend.held_models import HeldModels
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.requested_adapters import RequestedAdapters
from localspec.serve.backend.waiting_list import Waiting, WaitingList
from localspec.serve.http.errors import NotLoadedError, load_failure

Fits = Callable[[Options], Awaitable[bool]]
"""Says whether the model of some options fits into the memory beside all that is loaded now."""


class EngineSlots(HeldModels):
    """The slots of a server."""

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
        self._factory, self._reporter = factory, reporter
        self._fits, self._most, self._keep_loaded = fits, most, keep_loaded
        self.adapters, self._pauses = RequestedAdapters(), RestartPauses()
        super().__init__(self._made(options))
        self._waiting = WaitingList()
        self._wanted = Counter[str]()
        """By their models, the requests that have no engine yet."""
        self._large = set[str]()
        """Models that did not fit beside others: while one is wanted, there is no slot more."""
        self._asked: dict[str, asyncio.Task[None]] = {}
        """By their models, the running questions whether they have room beside others."""
        self._look: asyncio.TimerHandle | None = None
        """Looks again who may come in, once a model need not stay any more."""
        self.closed = False
        """Whether engines are no longer started."""

    def _made(self, options: Options) -> EngineSlot:
        given = (self._factory, self._reporter, self.adapters, self._pauses)
        return EngineSlot(options, *given, keep_loaded=self._keep_loaded)

    @contextlib.asynccontextmanager
    async def use(
        self, options: Options | None = None, keep: KeepAlive | None = None
    ) -> AsyncIterator[OwnEngine]:
        """The engine of a model, loaded if it is not; it stays while the block runs, and then as
        long as ``keep`` says. ``options`` None means whatever model is loaded, else the first one.

        Raises:
            LocalspecError: as `EngineSlot.ready`.
        """
        slot, engine = await self._ready(options)
        try:
            assert options is None or options.model == slot.options.model
            if keep is not None:
                slot.keep(keep.seconds)
            yield engine
        finally:
            self._leave(slot)

    async def load(self, *, reports: bool = True) -> tuple[Options, ModelInfo]:
        """Load the present model now, and tell which it is. A failure is raised, and reported
        besides if ``reports``; else it ends the server.

        Raises:
            LocalspecError: it cannot be loaded.
        """
        slot = self.present
        slot.reports &= reports
        try:
            async with self.use() as engine:
                slot.reports = True
                assert engine.info is not None
                return self.options_of(engine), engine.info
        except NotLoadedError as error:
            raise error.reason from None

    def keep(self, options: Options | None, keep: KeepAlive) -> None:
        """How long a model stays that a request names without using it."""
        slot = self.slot_of(options)
        if slot is not None:
            slot.keep(keep.seconds)

    def pause_of(self, options: Options) -> RestartPause:
        """How long the next attempt to load a model waits."""
        return self._pauses.of(options)

    async def close(self) -> None:
        """End all engines."""
        self.closed = True
        for slot in [*self._slots]:
            await slot.close()
        self._advance()  # those that wait hear of it

    # -- inside --------------------------------------------------------------------------------

    def _ask_for_room(self, options: Options) -> None:
        """Ask, once for all who wait for a model, whether it has room beside the others."""
        if self._may_add(options) and options.model not in self._asked:
            work = self._beside(options)
            self._asked[options.model] = asyncio.create_task(work, name="looking for room")

    async def _beside(self, options: Options) -> None:
        """A new slot for a model that has none, where it fits beside others; those who wait for the
        model get it.
        """
        fits = await self._fit(options)
        del self._asked[options.model]
        # Others may have come while the room was measured, or all have left.
        wait = self._waiting.of(options)
        if fits and wait and self._may_add(options):
            others = [public_name(s.options.model) for s in reversed(self._slots) if not s.empty]
            name = public_name(options.model)
            self._reporter.notice(f"loading {name} beside {' and '.join(others)}")
            slot = self._made(options)
            self._slots.append(slot)
            for one in wait:
                self._let_in(one, slot)
        self._advance()

    async def _fit(self, options: Options) -> bool:
        """Whether a model has room beside the others; not where that cannot be found out, since
        somebody waits for the answer.
        """
        try:
            return await self._fits(options)
        except LocalspecError as error:
            self._reporter.notice(f"the room for {public_name(options.model)} is unknown: {error}")
        except Exception as error:  # noqa: BLE001 - reported
            self._reporter.defect(error)
        return False

    def _may_add(self, options: Options) -> bool:
        """Whether there may be a slot more, for a model that none has. Where nothing is loaded it
        takes the place of nothing instead.
        """
        known = self.slot_of(options) is not None or self._leaves(options)
        beside = len(self._slots) < self._most and not all(slot.empty for slot in self._slots)
        return beside and not known and not self._large and not self.closed

    def _leaves(self, options: Options) -> bool:
        """Whether another model is being loaded in place of that one, which may come back."""
        before = [slot.before for slot in self._slots]
        return any(one is not None and one.model == options.model for one in before)

    async def _ready(self, options: Options | None) -> tuple[EngineSlot, OwnEngine]:
        """The slot of a request, and its engine."""
        if options is None:
            return await self._loaded(None)
        self._wanted[options.model] += 1
        try:
            return await self._loaded(options)
        finally:
            self._wanted[options.model] -= 1
            if not self._wanted[options.model]:
                del self._wanted[options.model]
                if options.model in self._large:
                    self._large.remove(options.model)
                    self._offer_room()

    async def _loaded(self, options: Options | None) -> tuple[EngineSlot, OwnEngine]:
        beside = True
        while True:
            self._require_no_pause(options)
            slot = await self._turn(options, beside=beside)
            alone = len(self._slots) == 1
            try:
                return slot, await self._engine(slot, options)
            except OutOfMemoryError:
                if alone and slot in self._slots:
                    raise
            # It did not fit beside the others after all: it takes the place of one, once an
            # exchange that ends in this instant has said so.
            beside = False
            if options is not None:
                self.pause_of(options).end()
            await asyncio.sleep(0)

    def _require_no_pause(self, options: Options | None) -> None:
        """Refuse a request for a model that has no slot, and could not be loaded just now: no other
        one leaves for it.

        Raises:
            LocalspecError: as `EngineSlot.ready`.
        """
        if options is not None and self.slot_of(options) is None:
            try:
                self.pause_of(options).require_over()
            except LocalspecError as error:
                raise load_failure(error) from None

    async def _engine(self, slot: EngineSlot, options: Options | None) -> OwnEngine:
        """The engine of a slot that a request has been given; the request leaves it where there is
        none, and it is removed where it was made for a model that cannot be loaded.
        """
        try:
            return await slot.ready()
        except BaseException as error:
            failed = isinstance(error, LocalspecError) and slot.info is None and not slot.loading
            own = options is None or options.model == slot.options.model  # else it was exchanged
            if failed and own:
                large = isinstance(error, OutOfMemoryError)
                self._remove(slot, slot.options.model if large else "")
            self._leave(slot)
            if slot not in self._slots:
                await slot.close()
            elif slot.attempt is not None:  # it goes on, maybe for nobody
                slot.attempt.add_done_callback(lambda _: self._advance())
            raise

    def _remove(self, slot: EngineSlot, large: str = "") -> None:
        """Remove a slot that has no engine, unless it is the only one; ``large`` is the model that
        was to be loaded there and did not fit beside the others.
        """
        if slot in self._slots and len(self._slots) > 1:
            self._slots.remove(slot)
            self._removed_restarts += slot.restarts
            if self._wanted[large]:
                self._large.add(large)
            self._offer_room()

    def _offer_room(self) -> None:
        """Ask whether there is room for those who wait for it, where there may be a slot more."""
        for options in self._waiting.beside:
            self._ask_for_room(options)

    async def _turn(self, options: Options | None, *, beside: bool) -> EngineSlot:
        """The slot of a request, when it is its turn; the request leaves it by `_leave`."""
        one = self._waiting.join(options, beside=beside)
        if options is not None and beside:
            self._ask_for_room(options)
        self._advance()
        try:
            return await one.turn
        except BaseException:
            self._waiting.leave(one)
            if one.turn.done() and not one.turn.cancelled():
                one.turn.result().leave()  # the turn came, and the request is cancelled
            self._advance()
            raise

    def _leave(self, slot: EngineSlot) -> None:
        """A request needs the engine of a slot no more."""
        slot.leave()
        self._advance()

    def _advance(self) -> None:
        """Let in those whose turn it is, and begin to load the models that they need."""
        leaving: dict[str, EngineSlot] = {}
        self._remove_vacant()
        waiting = set[str]()
        for one in self._waiting:
            if one.options is not None and one.options.model in waiting:
                continue  # nothing that others get makes it the turn of those behind one of these
            slot = self.slot_of(one.options)
            if slot is None:
                assert one.options is not None  # there is always a present model
                slot = self._place_for(one.options, leaving)
            elif slot.exchanging:
                slot = None if one.options is None else slot
            elif slot in leaving.values() and slot.stays <= 0:
                slot = None
            if slot is not None:
                self._let_in(one, slot)
            elif one.options is not None:
                waiting.add(one.options.model)
        # One that nobody uses leaves after its stay, which may have ended in this instant.
        self._look_again([max(0.0, slot.stays) for slot in leaving.values() if not slot.users])

    def _remove_vacant(self) -> None:
        """Remove slots of models that were unloaded, or could not be loaded for those who have left
        since: who asks for one again asks for room.
        """
        for slot in [*self._slots]:
            if slot.vacant:
                self._remove(slot)

    def _let_in(self, one: Waiting, slot: EngineSlot) -> None:
        self._waiting.admit(one, slot)
        if slot in self._slots:
            self._slots.remove(slot)
            self._slots.append(slot)

    def _place_for(self, options: Options, leaving: dict[str, EngineSlot]) -> EngineSlot | None:
        """The slot of another model for one that has none, which is loaded there from now on. None
        while it has to wait: ``leaving`` says for which slot each model does, and no other model
        gets that.
        """
        if options.model in leaving or options.model in self._asked or self._leaves(options):
            return None
        free = [s for s in self._slots if s not in leaving.values() and not s.exchanging]
        if not free:
            return None
        # An empty one, else an unused one, of those the one that was used longest ago.
        slot = min(free, key=lambda slot: (not slot.empty, slot.users > 0))
        if slot.users or slot.stays > 0:
            leaving[options.model] = slot
            return None
        if slot.info is not None and not self.closed:
            n, before = self._waiting.count(options), public_name(slot.options.model)
            self._reporter.notice(
                f"loading {public_name(options.model)} in place of {before}: "
                f"{n} {'request waits' if n == 1 else 'requests wait'} for it"
            )
        task = slot.exchange(options)
        task.add_done_callback(lambda _: self._exchanged(slot, task, options.model))
        return slot

    def _exchanged(self, slot: EngineSlot, task: asyncio.Task[None], model: str) -> None:
        """A model was loaded in place of another one, or could not be. One that does not even fit
        so takes the place of a further one.
        """
        if not task.cancelled() and isinstance(task.exception(), OutOfMemoryError):
            self._remove(slot, model)
        self._advance()

    def _look_again(self, stays: Sequence[float]) -> None:
        """Advance once one of these times is over."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if stays:
            self._look = asyncio.get_running_loop().call_later(min(stays), self._advance)
