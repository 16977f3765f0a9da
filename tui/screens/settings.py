"""The settings panel: every value with its help, checked while it is typed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from localspec.config import edit
from localspec.core.errors import LocalspecError
from localspec.core.options import Options
from localspec.core.setting_spec import Value
from tui.input import keymap, setting_fields
from tui.input.setting_fields import BY_NAME, Change, SettingError
from tui.render.text import plain
from tui.screens.sized import SizedScreen
from tui.widgets.key_bar import KeyBar

if TYPE_CHECKING:
    from tui.session.settings import Settings

_LINES = {
    False: "Enter: from the next reply on",
    True: "Enter: load the model again; the chat stays",
}


_UNCHANGED = "nothing was changed in this chat, and only what was is saved; Esc leaves"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the panel was closed with."""

    changed: Mapping[str, Value]
    """Settings that were changed there."""
    saved: Path | None
    """The file that they were saved in, with what was changed in this chat before."""


_WIDE = 112
"""Columns from which every help has room."""


class SettingRows(VerticalScroll, inherit_bindings=False):
    """Scrolls to the field with the focus; Up and Down move to another field."""


class SettingsScreen(SizedScreen[Chosen | None], ModalScreen[Chosen | None]):
    """Shows, changes and saves settings; returns what was chosen, if anything."""

    BINDINGS = keymap.of_screen("settings")
    AUTO_FOCUS = "Input"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-medium"), (_WIDE, "-wide")]  # noqa: RUF012 - Textual's type
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012 - as above

    def __init__(
        self,
        settings: Settings,
        options: Options | None,
        unsaved: frozenset[str] = frozenset(),
    ) -> None:
        """``unsaved`` are the settings that were changed in this chat and not saved."""
        super().__init__()
        self._settings, self._options, self._unsaved = settings, options, unsaved
        self._values = setting_fields.values(settings, options)

    def compose(self) -> ComposeResult:
        """A row for each setting, and a line with the error or the effect of Enter."""
        self.take_size(self.app.size)
        yield Static("Settings", markup=False, id="title")
        # Names and helps are one widget a column: three widgets a setting opened noticeably slower.
        with SettingRows(can_focus=False):
            names = "\n".join(BY_NAME[name].label for name in self._values)
            yield Static(names, markup=False, classes="names")
            with Vertical():
                for name, value in self._values.items():
                    choices = setting_fields.suggestions(BY_NAME[name])
                    hints = SuggestFromList(choices) if choices else None
                    text = setting_fields.text_of(value)
                    with self.prevent(Input.Changed):  # each would check all fields
                        field = Input(
                            text,
                            name=name,
                            suggester=hints,
                            id=name,
                            validate_on=(),  # else each field computes its styles twice
                        )
                    yield field
            yield Static(self._helps(self.app.size.width), markup=False, classes="helps")
        yield Static(markup=False, id="verdict")
        yield KeyBar()

    def _helps(self, width: int) -> str:
        """A line for each setting; without what follows a semicolon where that has no room. All of
        it is below the list for the setting with the focus.
        """
        helps = (BY_NAME[name].help for name in self._values)
        return "\n".join(helps if width >= _WIDE else (line.partition(";")[0] for line in helps))

    def fit(self, size: Size) -> None:
        """Use the available columns."""
        super().fit(size)
        self.query_one(".helps", Static).update(self._helps(size.width))

    def on_mount(self) -> None:
        """Check the values at the start."""
        self._verdict = self.query_one("#verdict", Static)
        self._check()

    @on(Input.Changed)
    @on(DescendantFocus)
    def _changed(self) -> None:
        self._check()

    def _check(self) -> Change | None:
        """The change of the typed values; None where one is invalid, with a line that says why."""
        wanted: dict[str, Value] = {}
        wrong: str | None = None
        for field in self.query(Input).results(Input):
            try:
                value = wanted[field.name or ""] = BY_NAME[field.name or ""].parse(field.value)
                # Alone first, so that the one that is out of range can be marked.
                setting_fields.change({field.name or "": value}, self._settings, self._options)
            except (SettingError, LocalspecError) as error:
                wrong = wrong or str(error)
                field.add_class("-wrong")
            else:
                field.remove_class("-wrong")
        self._wanted = wanted
        if wrong is None:
            try:
                change = setting_fields.change(wanted, self._settings, self._options)
            except (SettingError, LocalspecError) as error:
                wrong = str(error)
            else:
                lines = f"{self._help}\n{_LINES[bool(change.options)]}"
                self._verdict.update(Content.styled(lines, "$quiet"))
                return change
        self._verdict.update(Content.styled(plain(wrong), "$text-error"))
        return None

    @property
    def _help(self) -> str:
        """Help of the focused setting."""
        focused = self.focused
        return BY_NAME[focused.name].help if focused is not None and focused.name else ""

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Use these settings."""
        if self._check() is not None:
            self.dismiss(Chosen(self._changed_here, None))

    async def action_save(self) -> None:
        """Use these settings and save those that were changed in this chat for later ones."""
        if self._check() is None:
            return
        changed = self._changed_here
        if not (wanted := self._unsaved_values | changed):
            self._verdict.update(Content.styled(_UNCHANGED, "$quiet"))
            return
        defaults = setting_fields.defaults()  # for which None removes the key
        keys: dict[edit.Place, Value] = {
            (name,): None if value == defaults[name] else value for name, value in wanted.items()
        }
        try:
            path = await asyncio.to_thread(edit.save, keys)
        except LocalspecError as error:
            self._verdict.update(Content.styled(plain(f"not saved: {error}"), "$text-error"))
            return
        self.dismiss(Chosen(changed, path))

    @property
    def _changed_here(self) -> dict[str, Value]:
        """What was changed in this panel. The rest may come from flags or a preset, or another
        window may have saved it otherwise since.
        """
        before, text_of = self._values, setting_fields.text_of
        changed = {n for n, value in self._wanted.items() if text_of(value) != text_of(before[n])}
        return {name: self._wanted[name] for name in changed}

    @property
    def _unsaved_values(self) -> dict[str, Value]:
        """What was changed in this chat before, as it is now."""
        now = setting_fields.values(self._settings, self._options)
        return {name: now[name] for name in self._unsaved}

    def action_leave(self) -> None:
        """Close without a change."""
        self.dismiss(None)
