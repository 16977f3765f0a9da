"""The LoRA adapters that requests use which wait: what is unloaded meanwhile stays for them.

An engine knows what a request's adapters are once it has the request, and keeps them until the
reply has ended. Until then the server keeps them: a request may wait for its model to be loaded,
and all choices but the first wait until that one has read the prompt for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from localspec.core.adapter_list import AdapterUse
from localspec.core.errors import DefectError, EngineError
from localspec.core.options import Options
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.reporter import Reporter


class HeldAdapters:
    """Unloads adapters as soon as no request needs them that the engine does not have."""

    def __init__(self, slots: EngineSlots, reporter: Reporter) -> None:
        self._slots, self._reporter = slots, reporter
        self._holds = Counter[str]()
        """Requests that hold an adapter, by the name that the engine knows."""
        self._unwanted: dict[str, Options] = {}
        """The held adapters that are to be unloaded, and their models."""
        self._unloading = set[asyncio.Task[None]]()

    @contextlib.contextmanager
    def hold(self, uses: Sequence[AdapterUse] | None) -> Iterator[None]:
        """Keep the adapters of a request, which are loaded, for a block."""
        names = [use.path for use in uses or ()]
        self._holds.update(names)
        try:
            yield
        finally:
            self._let_go(names)

    async def unload(self, options: Options, name: str) -> None:
        """Unload one of a model: now, or when the last request lets it go.

        Raises:
            LocalspecError: the engine refuses.
        """
        if self._holds[name]:
            self._unwanted[name] = options
        else:
            await self._unload(options, name)

    # -- inside --------------------------------------------------------------------------------

    def _let_go(self, names: Sequence[str]) -> None:
        self._holds.subtract(names)
        for name in names:
            if not self._holds[name]:
                del self._holds[name]
                options = self._unwanted.pop(name, None)
                if options is not None:
                    work = self._unload(options, name)
                    task = asyncio.create_task(work, name="unloading an adapter")
                    self._unloading.add(task)
                    task.add_done_callback(self._unloaded)

    async def _unload(self, options: Options, name: str) -> None:
        self._slots.adapters.remove(options, name)  # engines to come do not load it
        slot = self._slots.slot_of(options)
        if slot is None:
            return
        try:
            await slot.unload_adapter(name)
        except EngineError as error:
            if isinstance(error, DefectError):
                raise
            # Of an engine that stopped, its slot tells; the adapter has gone with it.

    def _unloaded(self, task: asyncio.Task[None]) -> None:
        self._unloading.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._reporter.notice(f"an adapter was not unloaded: {error}")
