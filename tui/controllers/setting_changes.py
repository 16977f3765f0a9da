"""Settings and presets of the chat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from localspec.config import allow_tools, edit, presets
from localspec.config import settings as config
from localspec.config.presets import Preset
from localspec.core.errors import LocalspecError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.in_thread import in_thread
from localspec.core.setting_spec import Scope
from localspec.core.setting_spec import Value as Saved
from localspec.core.settings_schema import TOOLS
from tui.controllers.chat_context import ChatContext
from tui.controllers.models import ModelChooser
from tui.input import setting_fields

_OTHER_OPTIONS = {"model", "draft", "kv_type", "gpu_layers", "draft_gpu_layers", "cpu_experts"}
"""Options that a preset may name in addition to the settings of the panel."""


class SettingsController:
    """Lists and changes settings, loading the model again where they need it."""

    def __init__(self, context: ChatContext, models: ModelChooser) -> None:
        self._screen, self._session = context.screen, context.session
        self._feedback, self._models = context.feedback, models
        self._composer = context.widgets.composer
        self._given: dict[str, Saved] = {}
        """Settings that were changed here one by one, and not saved for later chats."""

    def temperature(self, value: float) -> None:
        """Sample with another temperature; 0 is greedy."""
        settings = self._session.settings
        settings.sampling = replace(settings.sampling, temperature=value)
        self._note("temperature")
        self._session.tell(f"temperature {value:g} from the next reply on")

    def seed(self, value: int | None) -> None:
        """Fix the seed, or have a new one each time."""
        self._session.settings.seed = value
        self._note("seed")
        said = "a new seed each time" if value is None else f"seed {value} from now on"
        self._session.tell(said)

    def think(self, text: str) -> None:
        """Switch thinking, or say how it is."""
        names = {None: "auto", True: "on", False: "off"}
        settings, info = self._session.settings, self._session.engine.info
        if text in {"on", "off"} and info is not None and info.switches_thinking is False:
            self._feedback.hint(f"{info.name} has no switch for thinking; it is left to the model")
            return
        if text:
            settings.thinking = {name: switch for switch, name in names.items()}[text]
        when = " from the next reply on" if text else ""
        self._session.tell(f"thinking {names[settings.thinking]}{when}")

    def system(self, text: str) -> None:
        """Set the system prompt, have none, or show it."""
        system = self._session.chat.conversation.system
        if text:
            self._session.chat.system(None if text == "none" else text)
            said = "no system prompt from now on" if text == "none" else "system prompt set"
        elif system:
            said = f"system prompt: {system}\n/system TEXT sets another, /system none has none"
        else:
            said = "no system prompt; /system TEXT sets one"
        self._session.tell(said)

    async def schema(self, text: str) -> None:
        """Have replies fit a schema, or any text, or say what they fit."""
        settings = self._session.settings
        if text == "off":
            settings.grammar, settings.grammar_name = None, ""
            said = "replies may be any text from the next one on"
        elif text:
            try:
                settings.grammar = await in_thread(lambda _: _read_schema(text))
            except LocalspecError as error:
                self._session.tell(str(error))
                return
            # The name of its file, or what it is.
            written = text.lstrip().startswith("{")
            settings.grammar_name = "a schema" if written else Path(text).name
            said = f"replies fit {settings.grammar_name} from the next one on"
        elif settings.grammar is None:
            said = "replies may be any text; /schema FILE asks for JSON that fits a schema"
        else:
            said = f"replies fit {settings.grammar_name}; /schema off ends that"
        self._session.tell(said)
        self._composer.placeholder = settings.invitation

    # -- by name -------------------------------------------------------------------------------

    def _values(self) -> dict[str, Saved]:
        return setting_fields.values(self._session.settings, self._session.engine.options)

    async def set(self, text: str) -> None:
        """List the settings, explain one, or change one."""
        settings, options = self._session.settings, self._session.engine.options
        if not text:
            await self._feedback.show_list(
                "Settings: /set NAME VALUE changes one", setting_fields.rows(settings, options)
            )
            return
        try:
            name, typed = setting_fields.read(text)
            field = setting_fields.BY_NAME[name]
            if not typed:
                value = setting_fields.text_of(self._values().get(name))
                self._feedback.hint(f"{name} is {value}: {field.help}")
                return
            if self._is_theirs(name):
                self._models.load()
                return
            change = setting_fields.change({name: field.parse(typed)}, settings, options)
        except (setting_fields.SettingError, LocalspecError) as error:
            self._feedback.hint(str(error))
            return
        if self._apply(change, f"{name} {typed} from the next reply on"):
            self._note(name)

    def _note(self, *names: str) -> None:
        """The user has chosen these values, which are in effect."""
        values = self._values()
        self._given |= {name: values[name] for name in names}

    @property
    def _unsaved(self) -> frozenset[str]:
        """What was chosen here, and is so still: a preset may have changed it, or the model that it
        was for could not be loaded.
        """
        values = self._values()
        return frozenset(n for n, given in self._given.items() if values.get(n) == given)

    def _is_theirs(self, name: str) -> bool:
        """Whether a setting says how a model is loaded, and a server has loaded it."""
        field = setting_fields.BY_NAME[name]
        return field.scope is Scope.LOAD and bool(self._session.engine.client.server)

    def _apply(self, change: setting_fields.Change, line: str) -> bool:
        """Use a change, and say ``line``; whether all of it is in effect. What is not loaded says
        why itself.
        """
        settings = self._session.settings
        settings.sampling, settings.seed = change.sampling, change.seed
        settings.max_tokens = change.max_tokens
        if change.options.keys() & {"model", "draft"}:
            self._models.check_and_load(change.options)
            return False
        if change.options:
            return self._models.load(**change.options)
        self._feedback.hint(line)
        return True

    def open_panel(self) -> None:
        """Open the panel of all settings."""
        from tui.screens.settings import Chosen, SettingsScreen  # not needed for the first frame

        def closed(chosen: Chosen | None) -> None:
            if chosen is None:
                return
            for name in (*unsaved, *chosen.changed) if chosen.saved is not None else ():
                self._given.pop(name, None)
            try:
                self._use(chosen.changed, chosen.saved)
            except (setting_fields.SettingError, LocalspecError) as error:
                self._feedback.hint(str(error))

        session, unsaved = self._session, self._unsaved
        panel = SettingsScreen(session.settings, session.engine.options, unsaved)
        self._screen.app.push_screen(panel, closed)

    def _use(self, changed: Mapping[str, Saved], path: Path | None) -> None:
        """Use what was changed in the panel, and saved in ``path``; the rest stays as a command has
        set it meanwhile.

        Raises:
            SettingError, LocalspecError: that does not fit together any more.
        """
        settings, options = self._session.settings, self._session.engine.options
        change = setting_fields.change(changed, settings, options)
        done = self._apply(change, "settings from the next reply on")
        if path is None:
            fields = setting_fields.BY_NAME
            self._note(*(n for n in changed if done or fields[n].scope is not Scope.LOAD))
        elif done:
            self._feedback.hint(f"in effect from the next reply on, and saved in {path}")
        else:  # the hint says what keeps the model from being loaded
            self._session.tell(f"saved in {path}")

    # -- presets -------------------------------------------------------------------------------

    async def preset(self, words: str) -> None:
        """List presets, use one, or save the present settings as one."""
        config.settings.cache_clear()  # the file may have been edited since
        first, _, name = words.partition(" ")
        try:
            if not words:
                self._pick_preset()
            elif words == "save":
                self._feedback.hint("/preset save NAME: the preset needs a name")
            elif first == "save":
                await self._save_preset(name.strip())
            else:
                self._use_preset(presets.called(words))
        except (setting_fields.SettingError, LocalspecError) as error:
            self._feedback.hint(str(error))

    def _pick_preset(self) -> None:
        from tui.screens.picking import PresetsScreen  # not needed for the first picture

        def closed(chosen: Preset | None) -> None:
            if chosen is None:
                return
            try:
                self._use_preset(chosen)
            except (setting_fields.SettingError, LocalspecError) as error:
                self._feedback.hint(str(error))

        self._screen.app.push_screen(PresetsScreen(list(presets.presets().values())), closed)

    def _use_preset(self, preset: Preset) -> None:
        session, options = self._session, self._session.engine.options
        wanted = {
            name: setting_fields.BY_NAME[name].parse(setting_fields.text_of(value))
            for name, value in preset.values.items()
            if name in setting_fields.BY_NAME and not self._is_theirs(name)
        }
        change = setting_fields.change(wanted, session.settings, options)
        others: dict[str, object] = {}
        server = session.engine.client.server
        for key in set() if server else _OTHER_OPTIONS & preset.values.keys():
            value = presets.KEYS[key].check(preset.values[key])
            if options is None or getattr(options, key) != value:
                others[key] = value
        if "model" in others and "draft" not in preset.values:
            others["draft"] = None
        if preset.system is not None:
            session.chat.system(preset.system or None)
        if TOOLS.name in preset.values:
            session.tools.only = allow_tools.offered(preset.values)
        said = f"preset {preset.name}" + (", without what is set on the server" if server else "")
        self._apply(replace(change, options={**change.options, **others}), said)

    async def _save_preset(self, name: str) -> None:
        usual = setting_fields.defaults() | config.settings()  # what a chat without the preset has
        values: dict[str, Saved] = {
            key: value if value != usual[key] else None for key, value in self._values().items()
        }
        values["system"] = self._session.chat.conversation.system
        if (only := self._session.tools.only) is not None:
            values[TOOLS.name] = ", ".join(only) or "none"
        if not any(value is not None for value in values.values()):
            self._feedback.hint("all settings are as they are without a preset: nothing to save")
            return
        path = await asyncio.to_thread(edit.save, presets.to_save(name, values))
        kept = ", ".join(key for key, value in values.items() if value is not None)
        self._feedback.hint(f"preset {name} saved in {path}: {kept}")


def _read_schema(text: str) -> GrammarSpec:
    """A schema, tried out in another process.

    Raises:
        LocalspecError: it is none, or cannot be followed.
    """
    from localspec.grammar import reading  # not needed for the first picture

    return reading.schema(text, pipes=False)
