"""Which model answers, and which draft model helps it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from localspec.errors import LocalspecError, ModelNotFoundError, UnsupportedModelError
from tui.controllers.feedback import Feedback
from tui.controllers.pulls import PullController
from tui.session.commands import Command, Value
from tui.session.session import Session
from tui.session.stats import speculation_text

if TYPE_CHECKING:
    from tui.input.model_list import Picked

_SHOW = ("show", "--json", "--offline")


class ModelChooser:
    """Opens the model picker, checks a model's file, and loads it."""

    def __init__(
        self, screen: Screen[Any], session: Session, feedback: Feedback, pulls: PullController
    ) -> None:
        self._screen, self._session = screen, session
        self._feedback, self._pulls = feedback, pulls
        self._asked: Mapping[str, object] | None = None
        self._then: Callable[[], None] | None = None
        """What would stop a reply, and is done when it is asked for again."""

    def open_picker(self, query: str = "") -> None:
        """Open the list of models and drafts; a server has its own."""
        if self._session.engine.client.server:
            self.load()
            return
        self._screen.run_worker(self._open_picker(query), group="models", exclusive=True)

    async def _open_picker(self, query: str) -> None:
        # The first import takes a tenth of a second, in which a reply should keep streaming.
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

    def use_model(self, names: str, then: Callable[[], None] | None = None) -> None:
        """Answer with another model, and the draft model of the second word; or open the picker.
        ``then`` is called once the model is being loaded.
        """
        if not names:
            self.open_picker()
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
            self._session.tell(self._session.change(Command("draft", value)))

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
        self._then = then
        if self._session.engine.client.server:
            self.load(**changes)
            return
        try:
            self._session.engine.changed(dict(changes))  # at once, not after a check of seconds
        except LocalspecError as error:
            self._feedback.hint(str(error))
            return
        if self._stops_replies(changes):
            return
        self._screen.run_worker(self._check_and_load(changes), group="load", exclusive=True)

    async def _check_and_load(self, changes: Mapping[str, object]) -> None:
        from localspec.processes import children  # not needed for the first frame
        from tui.input.model_list import why_not_alone

        options = self._session.engine.options
        model = changes.get("model", options.model if options is not None else None)
        draft = changes.get("draft", options.draft if options is not None else None)
        words = [str(model), *(("--draft", str(draft)) if draft is not None else ())]
        self._feedback.hint_briefly(f"checking {' with '.join(words[::2])} …")
        try:
            if model is not None:
                facts = await asyncio.to_thread(children.ask, "localspec", *_SHOW, *words)
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
        self._load(changes)

    def _stops_replies(self, changes: Mapping[str, object]) -> bool:
        """Whether loading would stop a reply, and this was not asked for twice."""
        if not self._session.replies.running or changes == self._asked:
            return False
        self._asked = changes
        self._feedback.hint("a reply is being made; the same again stops it and loads the model")
        return True

    def load(self, **changes: object) -> None:
        """Load with other options."""
        if self._session.engine.client.server or not self._stops_replies(changes):
            self._load(changes)

    def _load(self, changes: Mapping[str, object]) -> None:
        self._asked, stopped = None, self._session.replies.chats
        try:
            self._session.load(**changes)
        except LocalspecError as error:
            self._feedback.hint(str(error))
            return
        then, self._then = self._then, None
        if then is not None:
            then()
        for chat in stopped:
            self._session.tell_in(chat, "stopped: another model is loaded; F9 continues the reply")
