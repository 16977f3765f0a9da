"""Models of the chat: pulled, chosen, and raced against plain decoding."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content
from textual.worker import Worker, WorkerError

from localspec.core.errors import LocalspecError, ModelNotFoundError, UnsupportedModelError
from localspec.core.in_thread import in_thread
from tui.controllers.chat_context import ChatContext
from tui.render.text import plain
from tui.session import status_text
from tui.session.commands import Value
from tui.session.session_engine import Phase
from tui.session.stats import speculation_text

if TYPE_CHECKING:
    from tui.input.model_list import Picked
    from tui.screens.race import Left
    from tui.session.pull_process import PullProcess
    from tui.session.running_reply import RunningReply
    from tui.session.tool_runs import ToolRun


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull that the user asked for."""

    name: str
    draft: str | None
    force: bool
    """Whether to pull a model that is too big for this machine."""


class PullController:
    """Runs one pull after the other and shows its progress in a bar."""

    def __init__(self, context: ChatContext) -> None:
        self._screen, self._feedback = context.screen, context.feedback
        self._bar = context.widgets.pull_bar
        self.process: PullProcess | None = None
        """Made for the first pull."""
        self._queue: deque[PullRequest] = deque()
        self._now: PullRequest | None = None
        """The one that runs."""
        self._worker: Worker[None] | None = None

    @property
    def running(self) -> bool:
        """Whether something is being pulled."""
        return self.process is not None and self.process.name is not None

    def pull(self, names: str, *, force: bool = False) -> None:
        """Pull a model, and its draft model where the second word names one."""
        from tui.session.pull_process import PullProcess  # not needed for the first frame

        if self.process is None:
            self.process = PullProcess()
            self.process.on_change = self._show
        name, _, draft = names.partition(" ")
        request = PullRequest(name, draft.strip() or None, force)
        asked = [one for one in (self._now, *self._queue) if one is not None]
        if any((one.name, one.draft) == (name, request.draft) for one in asked):
            self._feedback.hint(f"{name} is being downloaded already; Esc stops it")
            return
        self._queue.append(request)
        if self._worker is None or self._worker.is_finished:
            self._worker = self._screen.run_worker(self._pull_all(self.process), group="pull")
        else:
            self._feedback.hint(f"{name} is downloaded next, after {self.process.name}")
            self._show()

    async def _pull_all(self, process: PullProcess) -> None:
        """Pull one after the other: two at once would share the bandwidth."""
        while self._queue:
            request = self._now = self._queue.popleft()
            try:
                outcome = await process.run(request.name, request.draft, force=request.force)
            finally:
                self._now = None
            await self._feedback.note(*outcome.lines, error=outcome.error)

    def stop(self) -> None:
        """End the running pull and keep what has arrived; the next in the queue begins."""
        if self.process is not None:
            self.process.stop()

    async def close(self) -> None:
        """End all pulls; the next pull of the same model continues where this one stopped."""
        if self.process is not None:
            self._queue.clear()
            await self.process.close()

    def _show(self) -> None:
        if self.process is None or not self._screen.is_attached:
            return
        line = self.process.line
        if bool(line) is not self._bar.display:
            self._bar.display = bool(line)
            self._screen.refresh_bindings()
        first = f"1 of {1 + len(self._queue)}: " if self._queue else ""
        line = f"{first}{line}  (Esc stops)" if line else ""
        self._bar.show(Content(plain(line)))


_SHOW = ("show", "--json", "--offline")


class ModelChooser:
    """Opens the model picker, checks a model's file, and loads it."""

    def __init__(self, context: ChatContext, pulls: PullController) -> None:
        self._screen, self._session = context.screen, context.session
        self._feedback, self._pulls = context.feedback, pulls
        self._asked: Mapping[str, object] | None = None
        """What would stop replies or tools, and is done when it is asked for again meanwhile."""
        self._stopping: list[RunningReply | ToolRun] = []
        """Those replies, and calls of tools."""

    async def open_picker(self, query: str = "") -> None:
        """Open the list of models and drafts; a server has its own."""
        if self._session.engine.client.server:
            self.load()
            return
        # The first import takes a tenth of a second, in which the loop goes on; keys typed
        # meanwhile are for the list.
        await asyncio.to_thread(importlib.import_module, "tui.screens.models")
        from tui.screens.models import ModelsScreen

        engine = self._session.engine
        screen = ModelsScreen(engine.options, engine.info, query, drafts=False)
        self._screen.app.push_screen(screen, self._picked)

    def _picked(self, picked: Picked | None) -> None:
        from tui.input.model_list import Pull, Use, UseDraft

        match picked:
            case Use(model):  # the picker has checked the file
                self.load(model=model, draft=None)
            case UseDraft(draft):
                self.load(draft=draft)
            case Pull(name, force):
                self._pulls.pull(name, force=force)

    async def use_model(self, names: str, then: Callable[[], None] | None = None) -> None:
        """Answer with another model, and the draft model of the second word; or open the picker.
        ``then`` is called once the model is being loaded.
        """
        if not names:
            await self.open_picker()
            return
        model, _, draft = names.partition(" ")
        self.check_and_load({"model": model, "draft": draft.strip() or None}, then)

    def use_draft(self, value: Value) -> None:
        """Switch drafting, load another draft model, or say what drafts now."""
        if isinstance(value, str):
            self.check_and_load({"draft": None if value == "auto" else value})
        elif value is None:
            self._session.tell(self._drafting())
        else:
            self._session.tell(self._switched(on=value is True))

    def _switched(self, *, on: bool) -> str:
        if not on and (why := self._session.engine.client.why_not_plain):
            return why
        self._session.settings.draft = on
        return "drafting from now on" if on else "plain decoding from now on"

    def _drafting(self) -> str:
        session = self._session
        if not session.settings.draft:
            return "drafting is switched off; /draft on switches it on"
        state = session.chat.meter.state
        line = "drafting is on" if state is None else speculation_text(state)
        info = session.engine.info
        by = "" if info is None or not info.draft else f", draft model {Path(info.draft).name}"
        return f"{line}{by}; /draft off switches it off, /draft NAME uses another draft model"

    def check_and_load(
        self, changes: Mapping[str, object], then: Callable[[], None] | None = None
    ) -> None:
        """Load a model after its file was checked; the present one stays where that fails.
        ``then`` is called once it is being loaded.
        """
        if self._session.engine.client.server:
            self._load(changes, then)
            return
        try:
            self._session.engine.changed(dict(changes))  # at once, not after a check of seconds
        except LocalspecError as error:
            self._feedback.hint(str(error))
            return
        if self._stops_replies(changes):
            return
        self._screen.run_worker(self._check_and_load(changes, then), group="load", exclusive=True)

    async def _check_and_load(
        self, changes: Mapping[str, object], then: Callable[[], None] | None
    ) -> None:
        from localspec.core.processes import children  # not needed for the first frame
        from tui.input.model_list import why_not_alone

        options = self._session.engine.options
        model = changes.get("model", options.model if options is not None else None)
        draft = changes.get("draft", options.draft if options is not None else None)
        words = [str(model), *(("--draft", str(draft)) if draft is not None else ())]
        self._feedback.hint_briefly(f"checking {' with '.join(words[::2])} …")
        try:
            if model is not None:
                facts = await in_thread(lambda _: children.ask("localspec", *_SHOW, *words))
                if facts.get("installed") is False:
                    raise ModelNotFoundError(f"{model} is not here; /pull {model} fetches it")
                reason = why_not_alone(facts)
                if reason is not None:
                    raise UnsupportedModelError(reason)
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
            self._feedback.unhint()
            return
        self._feedback.unhint()
        if not self._stops_replies(changes):  # one may have begun while the file was checked
            self._load(changes, then)

    def _stops_replies(self, changes: Mapping[str, object]) -> bool:
        """Whether loading would stop a reply, and this was not asked for twice."""
        running = self._running
        again = changes == self._asked and any(work in running for work in self._stopping)
        if not running or again:
            return False
        self._asked, self._stopping = changes, running
        what = "a reply is being made" if self._session.replies.running else "a tool runs or asks"
        self._feedback.hint(f"{what}; the same again stops it and loads the model")
        return True

    @property
    def _running(self) -> list[RunningReply | ToolRun]:
        """What another model would stop, in any chat."""
        return [*self._session.replies.running, *self._session.tools.runs]

    def load(self, **changes: object) -> bool:
        """Load with other options; False, and a hint that says why, where that is not done."""
        if not self._session.engine.client.server and self._stops_replies(changes):
            return False
        return self._load(changes)

    def _load(self, changes: Mapping[str, object], then: Callable[[], None] | None = None) -> bool:
        self._asked, self._stopping = None, []
        stopped = dict.fromkeys(work.chat for work in self._running)
        try:
            self._session.load(**changes)
        except LocalspecError as error:
            self._feedback.hint(str(error))
            return False
        if then is not None:
            then()
        for chat in stopped:
            self._session.tell_in(chat, "stopped: another model is loaded; F9 goes on")
        return True


class RaceController:
    """Starts a race in an engine of its own, and stops it when it is left."""

    def __init__(self, context: ChatContext, pulls: PullController, models: ModelChooser) -> None:
        self._context, self._screen, self._session = context, context.screen, context.session
        self._pulls, self._models = pulls, models
        self._running: Worker[None] | None = None

    def open(self) -> None:
        """Start a race, unless the engine is needed for something else."""
        if self._session.engine.phase is not Phase.READY or self._session.replying:
            tool = "a tool runs or asks in this chat; Esc stops it"
            why = status_text.why_not(self._session) or tool
            self._context.feedback.hint(why)
            return
        self._screen.run_worker(self._open(), group="open race", exclusive=True)

    async def _open(self) -> None:
        # The first import takes a moment, in which the interface should not stand still.
        await asyncio.to_thread(importlib.import_module, "tui.screens.race")
        from localspec.demo.race import Machine, Race
        from tui.screens.race import RaceScreen

        await self.close()
        race = Race(Machine(self._session.engine.info))
        self._running = self._screen.run_worker(race.run(), group="race")
        keys = map(self._context.key, ("race.models", "race.take", "race.again"))
        self._screen.app.push_screen(RaceScreen(race, *keys), self._left)

    async def _left(self, how: Left | None) -> None:
        from tui.screens.race import Again, ListModels, TakeBest

        if self._running is not None:
            self._running.cancel()
        match how:
            case TakeBest(offer) if offer.installed:
                self._models.check_and_load({"model": offer.name, "draft": None})
            case TakeBest(offer):
                self._pulls.pull(offer.name)
            case ListModels():
                await self._models.open_picker()
            case Again():
                self.open()

    async def close(self) -> None:
        """Stop a running race, and wait until its engine and its files are gone."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with contextlib.suppress(WorkerError):
                await running.wait()
