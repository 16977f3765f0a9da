"""The chat screen's dealings with models and settings."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work
from textual.content import Content
from textual.worker import Worker

from localspec.config import edit, presets
from localspec.config import settings as config
from localspec.config.presets import Preset
from localspec.core.sampling_params import Sampling
from localspec.core.setting_spec import Value as Saved
from localspec.errors import LocalspecError, ModelNotFoundError, UnsupportedModelError
from localspec.loading.options import Options
from tui.input import setting_fields
from tui.render.block_splitter import plain
from tui.screens.chat_branches import KeepingView
from tui.session.commands import Command, Value
from tui.session.ports import Settings
from tui.session.stats import speculation_text
from tui.widgets.message import Columns, Note

if TYPE_CHECKING:
    from tui.input.model_list import Picked
    from tui.session.pull_process import Puller


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pull that was asked for."""

    name: str
    draft: str | None
    force: bool
    """Even if it is too big for this machine."""


_SHOW = ("show", "--json", "--offline")
_OTHER_OPTIONS = {"model", "draft", "kv_type", "gpu_layers", "draft_gpu_layers"}
"""What a preset may hold beside the settings of the panel, and a load may change."""


class ChoosingView(KeepingView):
    """Which model answers, and how."""

    _puller: Puller | None = None
    """Made for the first pull."""
    _pulls: deque[Wanted]
    """What is pulled after the present one."""
    _pulling: Worker[None] | None = None

    def action_models(self, query: str = "", *, drafts: bool = False) -> None:
        """Choose a model, or a draft for the present one."""
        self._open_models(query, drafts=drafts)

    @work(exclusive=True, group="models")
    async def _open_models(self, query: str, *, drafts: bool) -> None:
        # The first time takes a tenth of a second, in which a reply should go on.
        await asyncio.to_thread(importlib.import_module, "tui.screens.models")
        from tui.screens.models import ModelsScreen

        session = self.session
        screen = ModelsScreen(session.options, session.info, query, drafts=drafts)
        self.app.push_screen(screen, self._picked)

    def _picked(self, picked: Picked | None) -> None:
        from tui.input.model_list import Pull, Use, UseDraft

        match picked:
            case Use(model):  # the picker has looked into the file
                self._load(model=model, draft=None)
            case UseDraft(draft):
                self._load(draft=draft)
            case Pull(name, force):
                self.pull(name, force=force)

    # -- pulls ---------------------------------------------------------------------------------

    @property
    def pulling(self) -> bool:
        """Whether something is being pulled."""
        return self._puller is not None and self._puller.name is not None

    def pull(self, names: str, *, force: bool = False) -> None:
        """Fetch a model while one goes on chatting."""
        from tui.session.pull_process import Puller  # later than the first picture

        if self._puller is None:
            self._puller, self._pulls = Puller(), deque()
            self._puller.on_change = self._show_pull
        name, _, draft = names.partition(" ")
        wanted = Wanted(name, draft.strip() or None, force)
        if name == self._puller.name or wanted in self._pulls:
            self.hint(f"{name} is being pulled already; Esc stops that")
            return
        self._pulls.append(wanted)
        if self._pulling is None or self._pulling.is_finished:
            self._pulling = self._pull_all(self._puller)
        else:
            self.hint(f"{name} is pulled next, after {self._puller.name}")
            self._show_pull()

    @work(group="pull")
    async def _pull_all(self, puller: Puller) -> None:
        """One after the other: two at once would only share the line."""
        while self._pulls:
            wanted = self._pulls.popleft()
            outcome = await puller.run(wanted.name, wanted.draft, force=wanted.force)
            await self._below(*(Note(line, error=outcome.error) for line in outcome.lines))

    def stop_pull(self) -> None:
        """End the pull; what has arrived is kept. What was to follow is pulled next."""
        if self._puller is not None:
            self._puller.stop()

    async def on_unmount(self) -> None:
        """A pull ends with the interface; the next one goes on where it stopped."""
        if self._puller is not None:
            self._pulls.clear()
            await self._puller.close()

    def _show_pull(self) -> None:
        if self._puller is None or not self.is_attached:
            return
        line = self._puller.line
        if bool(line) is not self._pull_bar.display:
            self._pull_bar.display = bool(line)
            self.refresh_bindings()
        first = f"1 of {1 + len(self._pulls)}: " if self._pulls else ""
        line = f"{first}{line}  (Esc stops)" if line else ""
        self._pull_bar.show(Content(plain(line)))

    # -- models and settings -------------------------------------------------------------------

    def use_model(self, names: str) -> None:
        """Answer with another model from now on; without a name, choose one."""
        if not names:
            self.action_models()
            return
        model, _, draft = names.partition(" ")
        self._look_and_load({"model": model, "draft": draft.strip() or None})

    async def use_draft(self, value: Value) -> None:
        """Draft or do not, or load another draft model for the present target."""
        if isinstance(value, str):
            self._look_and_load({"draft": None if value == "auto" else value})
            return
        await self._below(Note(self._drafting() if value is None else self._switched(value)))
        self._timer.resume()

    def _switched(self, value: Value) -> str:
        return self.session.change(Command("draft", value))

    def _drafting(self) -> str:
        """Whether replies are drafted for now, by what, and how to change that."""
        session = self.session
        if not session.settings.draft:
            return "drafting is switched off; /draft on switches it on"
        state = session.meter.state
        told = "drafting is on" if state is None else speculation_text(state)
        info = session.info
        by = "" if info is None or not info.draft else f", draft model {Path(info.draft).name}"
        return f"{told}{by}; /draft off switches it off, /draft NAME uses another draft model"

    async def set(self, text: str) -> None:
        """List the settings, or change one."""
        session = self.session
        if not text:
            await self._list_below(Columns(setting_fields.rows(session.settings, session.options)))
            return
        try:
            name, typed = setting_fields.read(text)
            if not typed:
                held = setting_fields.values(session.settings, session.options).get(name)
                self.hint(
                    f"{name} is {setting_fields.text_of(held)}: {setting_fields.BY_NAME[name].help}"
                )
                return
            wanted = {name: setting_fields.BY_NAME[name].parse(typed)}
            change = setting_fields.change(wanted, session.settings, session.options)
        except (setting_fields.SettingError, LocalspecError) as error:
            self.hint(str(error))
            return
        self.apply(change, f"{name} {typed} from the next reply on")

    def apply(self, change: setting_fields.Change, line: str) -> None:
        """Take settings over, loading the model again where they need it."""
        settings = self.session.settings
        settings.sampling, settings.seed = change.sampling, change.seed
        settings.max_tokens = change.max_tokens
        if change.options.keys() & {"model", "draft"}:
            self._look_and_load(change.options)
        elif change.options:
            self._load(**change.options)
        else:
            self.hint(line)

    def action_settings(self) -> None:
        """See and change all settings."""
        from tui.screens.settings import SettingsScreen  # later than the first picture

        def closed(chosen: tuple[setting_fields.Change, Path | None] | None) -> None:
            if chosen is not None:
                change, path = chosen
                self.apply(change, "settings from the next reply on")
                if path is not None:
                    self.hint(f"used from the next reply on, and saved in {path}")

        self.app.push_screen(SettingsScreen(self.session.settings, self.session.options), closed)

    # -- presets -------------------------------------------------------------------------------

    async def preset(self, words: str) -> None:
        """List presets, use one, or save how this chat is held as one."""
        config.settings.cache_clear()  # the file may have been edited since
        first, _, name = words.partition(" ")
        try:
            if not words:
                await self._list_presets()
            elif words == "save":
                self.hint("/preset save NAME: the preset needs a name")
            elif first == "save":
                await self._save_preset(name.strip())
            else:
                self._use_preset(presets.called(words))
        except (setting_fields.SettingError, LocalspecError) as error:
            self.hint(str(error))

    async def _list_presets(self) -> None:
        found = presets.presets()
        listed = [(preset.name, plain(preset.about)) for preset in found.values()]
        hint = "/preset NAME uses one" if found else "there are none; /preset save NAME makes one"
        await self._list_below(Columns([*listed, ("", hint)]))

    def _use_preset(self, preset: Preset) -> None:
        session = self.session
        wanted = {
            name: setting_fields.BY_NAME[name].parse(setting_fields.text_of(value))
            for name, value in preset.values.items()
            if name in setting_fields.BY_NAME
        }
        change = setting_fields.change(wanted, session.settings, session.options)
        others: dict[str, object] = {}
        for key in _OTHER_OPTIONS & preset.values.keys():
            value = presets.KEYS[key].check(preset.values[key])
            if session.options is None or getattr(session.options, key) != value:
                others[key] = value
        if "model" in others and "draft" not in preset.values:
            others["draft"] = None
        if preset.system is not None:
            session.chat.system(preset.system or None)
        self.apply(replace(change, options={**change.options, **others}), f"preset {preset.name}")

    async def _save_preset(self, name: str) -> None:
        session = self.session
        usual = setting_fields.values(Settings(Sampling()), Options())
        held = setting_fields.values(session.settings, session.options)
        named = config.settings()  # what the file sets otherwise has to be said as well
        values: dict[str, Saved] = {
            key: value if value != usual[key] or key in named else None
            for key, value in held.items()
        }
        values["system"] = session.conversation.system
        if not any(value is not None for value in values.values()):
            self.hint("all is as usual here: there is nothing to save")
            return
        path = await asyncio.to_thread(edit.save, presets.to_save(name, values))
        self.hint(f"preset {name} saved in {path}")

    @work(exclusive=True, group="load")
    async def _look_and_load(self, changes: Mapping[str, object]) -> None:
        """Load a model that is there; the present one is given up for no other."""
        from localspec.processes import children  # later than the first picture
        from tui.input.model_list import why_not_alone

        options = self.session.options
        model = changes.get("model", options.model if options is not None else None)
        draft = changes.get("draft", options.draft if options is not None else None)
        words = [str(model), *(("--draft", str(draft)) if draft is not None else ())]
        self.hint_briefly(f"looking into {' with '.join(words[::2])} …")
        try:
            if model is not None:
                facts = await asyncio.to_thread(children.ask, "localspec", *_SHOW, *words)
                if facts.get("installed") is False:
                    raise ModelNotFoundError(f"{model} is not here; /pull {model} fetches it")
                unfit = why_not_alone(facts)
                if unfit is not None:
                    raise UnsupportedModelError(unfit)
        except LocalspecError as error:
            await self._below(Note(str(error), error=True))
            self.unhint()
            return
        self.unhint()
        self._load(**changes)

    def _load(self, **changes: object) -> None:
        try:
            self.session.load(**changes)
        except LocalspecError as error:
            self.hint(str(error))
