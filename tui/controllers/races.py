"""The race of drafting against plain decoding, and the ways out of it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from textual.screen import Screen
from textual.worker import Worker, WorkerError

from tui.controllers.feedback import Feedback
from tui.controllers.model_chooser import ModelChooser
from tui.controllers.pulls import PullController
from tui.input import keymap
from tui.session import status_text
from tui.session.ports import Phase
from tui.session.session import Session
from tui.widgets.composer import Composer

if TYPE_CHECKING:
    from tui.screens.race import Left


class RaceController:
    """Starts a race in an engine of its own, and stops it when it is left."""

    def __init__(
        self,
        screen: Screen[Any],
        session: Session,
        feedback: Feedback,
        composer: Composer,
        pulls: PullController,
        models: ModelChooser,
        rebound: Mapping[str, str],
    ) -> None:
        """``rebound`` maps ids of `keymap` to other keys."""
        self._screen, self._session, self._feedback = screen, session, feedback
        self._composer, self._pulls, self._models = composer, pulls, models
        self._rebound = rebound
        self._running: Worker[None] | None = None

    def open(self) -> None:
        """Start a race, unless the engine is needed for something else."""
        if self._session.engine.phase is not Phase.READY or self._session.replying:
            self._feedback.hint(
                status_text.why_not(self._session) or "wait until the model is loaded"
            )
            return
        self._screen.run_worker(self._open(), group="open race", exclusive=True)

    async def _open(self) -> None:
        # The first import takes a moment, in which the interface should not stand still.
        await asyncio.to_thread(importlib.import_module, "tui.screens.race")
        from localspec.race.race import Race
        from tui.screens.race import RaceScreen

        await self.close()
        race = Race()
        self._running = self._screen.run_worker(race.run(), group="race")
        keys = (
            keymap.key_of(name, self._rebound)
            for name in ("race.models", "race.take", "race.again")
        )
        self._screen.app.push_screen(RaceScreen(race, *keys), self._left)

    def _left(self, how: Left | None) -> None:
        from tui.screens.race import Again, ListModels, TakeBest, Typed

        if self._running is not None:
            self._running.cancel()
        match how:
            case Typed(text):
                self._composer.insert(text)
            case TakeBest(offer) if offer.installed:
                self._models.check_and_load({"model": offer.name, "draft": None})
            case TakeBest(offer):
                self._pulls.pull(offer.name)
            case ListModels():
                self._models.open_picker()
            case Again():
                self.open()

    async def close(self) -> None:
        """Stop a running race, and wait until its engine and its files are gone."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with contextlib.suppress(WorkerError):
                await running.wait()
