"""The application: themes, settings that are kept, copying and quitting."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import unicodedata
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import App, SystemCommand
from textual.driver import Driver
from textual.screen import Screen
from textual.worker import Worker

from localspec.chats.values import Chat
from localspec.config import edit
from localspec.core.errors import LocalspecError
from localspec.core.files import defects
from localspec.core.settings_schema import FIGURES
from localspec.engine.port import Engine
from tui.controllers.chat_actions import ThemeChosen
from tui.controllers.reply_inspector import Copied
from tui.controllers.status import ExpertChosen
from tui.input import keymap
from tui.render.text import SafeLines
from tui.screens.chat import MAKES_REPLIES, ChatScreen
from tui.session.archive import SavedChat
from tui.session.commands import SPECS
from tui.session.recorder import ChatRecorder
from tui.session.session import Session
from tui.session.settings import Settings
from tui.session.tool_shelf import ToolShelf
from tui.terminal import desktop, textual_private
from tui.terminal.theme import ANSI_DARK, ANSI_LIGHT, DARK, LIGHT, borrowed, default
from tui.widgets.composer import Composer

if TYPE_CHECKING:
    from localspec.core.options import Options
    from localspec.tools.values import OfferedTool
    from tui.session.open_chat import OpenChat

_TWICE_SECONDS = 2.0
_REPORTS = "report"
"""Name of workers that tell of the fault of another one."""
_GIVE_WAY_SECONDS = 0.001
"""Switch interval of Python's threads: soon the event loop runs again after a thread that typesets
or saves. Python's default is five times that, and the loop may wait several times in a row."""


class ChatApp(textual_private.OwnEnds, App[None]):
    """localspec's terminal interface."""

    TITLE = "localspec"
    CSS_PATH = [  # noqa: RUF012 - Textual's own type
        f"screens/{name}.tcss"
        for name in ("chat", "settings", "models", "compare", "listing", "chats", "picking", "race")
    ]
    """Every style sheet: adding one later makes Textual read all of them again."""
    BINDINGS = keymap.APP
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        name: str,
        verifier: str = "match",
        system: str | None = None,
        recorder: ChatRecorder | None = None,
        tools: ToolShelf | None = None,
        resume: Chat | None = None,
        keys: Mapping[str, str] | None = None,
        options: Options | None = None,
        reopen: Callable[[Options], Engine] | None = None,
        theme: str = DARK.name,
        expert: bool = False,
        race: bool = False,
        notify: str = "auto",
        titles: str = "auto",
    ) -> None:
        """Continue the chat ``resume``; its system prompt stays unless ``system`` is given.

        ``keys`` binds ids of `tui.input.keymap` to other keys; ``expert`` shows all figures in the
        bottom line. With ``race``, the race is the first thing shown. ``notify`` and ``titles``
        are the settings.
        """
        super().__init__()
        textual_private.teach_keys()
        textual_private.teach_narrowness()
        textual_private.teach_forgetting()
        self.add_filter(SafeLines())
        self._rebound = dict(keys or {})
        self.set_keymap(self._rebound)
        self.session = Session(
            engine, settings, system, recorder, tools, options=options, reopen=reopen
        )
        if resume is not None:
            chat = self.session.chat
            chat.recorder.resume(SavedChat.of(resume), chat.conversation)
            if system is not None:
                self.session.chat.conversation.system = system
            self.session.note_window(self.session.chat)
        self.session.replies.on_long_end = lambda chat: self.attend("reply ended", chat.title)
        self.session.tools.on_question = self._asked_for
        self.session.replies.titles.when = titles
        self._notify_by = notify
        self._model_name = name
        self._verifier = verifier
        self._expert = expert
        self._race = race
        self._last_ctrl_c = 0.0
        self._typed_early: list[events.Event] = []
        """What was typed before the screen that it is for could take it."""
        self._takes_keys = False
        self.in_terminal = False
        """Whether it runs in a terminal, not in a test."""
        self._faults = set[str]()
        """Faults of workers that were reported since the user sent something."""
        self.failure: LocalspecError | None = None
        """Why the interface could not start."""
        self.unsaved: tuple[str, ...] = ()
        """Lines about messages that could not be saved."""
        for own in (DARK, LIGHT, ANSI_DARK, ANSI_LIGHT):
            self.register_theme(own)
        if "TEXTUAL_THEME" not in os.environ:
            self._begin_with(theme)
        self.watch_theme()

    def _begin_with(self, name: str) -> None:
        """Use a theme from the start: setting it later parses every style sheet a second time."""
        self.set_reactive(App.theme, name)
        theme = self.current_theme
        self.set_class(True, f"-theme-{theme.name}", update=False)
        self.set_class(theme.dark, "-dark-mode", update=False)
        self.set_class(not theme.dark, "-light-mode", update=False)
        self.choose_truecolor()
        self.stylesheet.set_variables(self.get_css_variables())

    def watch_theme(self) -> None:
        """Without colour, themes in terminal colours need another filter than all others."""
        self.choose_monochrome()

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver; on Linux one that does not wait for a closed terminal."""
        driver = super().get_driver_class()
        if sys.platform != "win32":
            from textual.drivers.linux_driver import LinuxDriver

            from tui.terminal.driver import TerminalDriver

            if driver is LinuxDriver:
                return TerminalDriver
        return driver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our variables, for themes that do not define them."""
        return borrowed(self.current_theme)

    def get_default_screen(self) -> Screen[None]:
        """The chat."""
        return ChatScreen(
            self.session,
            self._model_name,
            self._verifier,
            self._rebound,
            expert=self._expert,
            race=self._race,
        )

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette."""
        if isinstance(screen, ChatScreen):
            for name, does, callback in screen.actions.offers():
                yield SystemCommand(name, does.replace("[", r"\["), callback)  # it is markup
        else:
            yield SystemCommand("Theme", SPECS["theme"].help, self.action_change_theme)
            yield SystemCommand("Quit", SPECS["quit"].help, self.action_quit)
        if self.suspendable:
            suspend = self.action_suspend_process
            yield SystemCommand("Suspend", keymap.BY_ID["app.suspend"].tooltip, suspend)

    def action_command_palette(self) -> None:
        """Show the palette."""
        from tui.screens.palette import Palette  # not needed for the first frame

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    async def on_load(self) -> None:
        """Listen to signals that end the interface, before the terminal becomes full screen: a
        process that one of them ended at once would leave it so.
        """
        if sys.platform != "win32" and self.in_terminal:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._terminated, number)

    async def on_mount(self) -> None:
        """Listen to the saver."""
        sys.setswitchinterval(_GIVE_WAY_SECONDS)
        self.session.chat.recorder.listen()
        self.app_resume_signal.subscribe(self, self._resumed)

    def _resumed(self, _: object) -> None:
        """Draw all again after the shell had the terminal, which may have the size that is known:
        screens take each size once.
        """
        self.screen.refresh()

    def action_change_theme(self) -> None:
        """Choose a theme; the chat has the colours of the one under the cursor meanwhile."""
        from tui.screens.picking import ThemesScreen  # not needed for the first frame

        before = self.theme

        def closed(name: str | None) -> None:
            if name is None:
                self._show_theme(before)
            else:
                self.use_theme(name)

        self.push_screen(ThemesScreen(before, self._show_theme), closed)

    def _show_theme(self, name: str) -> None:
        self.theme = name

    def use_theme(self, name: str) -> None:
        """Use a theme from now on, and save it."""
        self._show_theme(name)
        value = None if name == default() else name
        self.run_worker(self._save("theme", value), group="theme", exclusive=True)

    @on(ThemeChosen)
    def _use_chosen_theme(self, event: ThemeChosen) -> None:
        self.use_theme(event.name)

    @on(ExpertChosen)
    def _keep_figures(self, event: ExpertChosen) -> None:
        value = "all" if event.expert else None
        self.run_worker(self._save(FIGURES.name, value), group="figures", exclusive=True)

    async def _save(self, name: str, value: str | None) -> None:
        """Save a choice of the user in config.toml; None removes it."""
        try:
            await asyncio.to_thread(edit.save, {(name,): value})
        except LocalspecError as error:
            if isinstance(self.screen, ChatScreen):
                self.screen.feedback.hint(f"the setting {name} is not saved: {error}")

    def outlives(self, worker: Worker[Any], error: BaseException) -> bool:
        """Go on after a fault of localspec in a worker, and report it in the chat; not where
        nothing would answer any more, or nothing can be shown.
        """
        if not self.is_running or worker.name in {MAKES_REPLIES, _REPORTS}:
            return False
        if (fault := repr(error)) in self._faults:  # of what is tried with every token
            return True
        self._faults.add(fault)
        # Begun at once: where the interface ends meanwhile, it is written all the same.
        report = asyncio.get_running_loop().run_in_executor(None, defects.report, error)
        self.run_worker(self._tell_of(report), name=_REPORTS)
        return True

    async def _tell_of(self, report: Awaitable[str]) -> None:
        said, chat = await report, self.screen_stack[0]
        assert isinstance(chat, ChatScreen)
        await chat.feedback.note(said, error=True)

    @on(Composer.Sent)
    def _sent(self) -> None:
        """What the user does again is reported again."""
        self._faults.clear()

    def _terminated(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number)

    @on(Copied)
    def _copied(self, event: Copied) -> None:
        self.copy(event.text, event.what)

    @on(ChatScreen.CannotStart)
    def _cannot_start(self, event: ChatScreen.CannotStart) -> None:
        self.failure = event.error
        self.exit(return_code=event.error.exit_code)

    async def on_unmount(self) -> None:
        """End the engine and save, however the interface ended."""
        try:
            await self.session.engine.client.close()
            await self.session.tools.close()
        finally:
            self.session.presence.close()
            for message in self.session.unasked:
                if message.chat in self.session.chats.all:
                    message.chat.ask(message.text)
                elif message.read:
                    self.session.chat.ask(message.text)
            for chat in self.session.chats.all:
                chat.save_pending()
            self.unsaved = await asyncio.to_thread(self.session.chat.recorder.close)

    async def on_ready(self) -> None:
        """Hand over what was typed while the first screen was being made."""
        self._takes_keys = True
        await self._hand_over()

    async def _hand_over(self) -> None:
        """Pass on what was typed early, as far as there is a screen for it."""
        while self._typed_early and not self._opens:
            await self._take(self._typed_early.pop(0))
        if self._typed_early:  # once it is mounted, it carries out what it was asked to
            self.screen.call_later(self.call_later, self._hand_over)

    @property
    def _opens(self) -> bool:
        """Whether the screen that is to be shown cannot take keys yet: nothing in it has the focus,
        which chooses the field that they are for.
        """
        return self.has_screen and not self.screen.is_mounted

    async def on_event(self, event: events.Event) -> None:
        """Handle an event; keys wait for the screen that they are for."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self._typed_early.append(event)
            if self._takes_keys:
                await self._hand_over()
            return
        await self._take(event)

    async def _take(self, event: events.Event) -> None:
        """Handle an event; keys and clicks find everything laid out where it is drawn."""
        moved = isinstance(event, events.MouseMove) and not event.button
        if isinstance(event, events.InputEvent) and not moved and self.has_screen:
            screen = self.screen
            if isinstance(screen, ChatScreen):
                screen.catch_up()
        await super().on_event(event)

    async def action_quit(self) -> None:
        """End the interface; `on_unmount` ends the engine."""
        self.exit()

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        """Open a web page in the user's browser.

        Raises:
            webbrowser.Error: there is none.
        """
        webbrowser.get()
        super().open_url(url, new_tab=new_tab)

    def _asked_for(self, chat: OpenChat, tool: OfferedTool) -> None:
        """A tool asks to run: said here where its chat is not the one that is shown."""
        if chat is not self.session.chat:
            self.session.tell(f'"{chat.title}": {tool.place} asks to run')
        self.attend(f"{tool.place} asks to run", chat.title)

    def attend(self, what: str, text: str) -> None:
        """Ring the bell, and notify the desktop, where the terminal is not looked at."""
        if self.app_focus or self._notify_by == "off" or not self.has_terminal:
            return
        told = desktop.notification(f"localspec: {what}", text)
        self.write_to_terminal("\x07" if self._notify_by == "bell" else told)

    def copy(self, text: str, what: str) -> None:
        """Copy by the terminal and by programs, and confirm it. Control characters are left out but
        for tabs and line feeds: the text of a model may be pasted into a shell, which obeys them.
        """
        text = "".join(c for c in text if c in "\t\n" or unicodedata.category(c) != "Cc")
        self.copy_to_clipboard(text)
        self.run_worker(self._copy(text, what), group="copy", exclusive=True)

    async def _copy(self, text: str, what: str) -> None:
        program = await asyncio.to_thread(desktop.copy, text)
        how = "" if program else " by the terminal (OSC 52), if it can"
        if isinstance(self.screen, ChatScreen):
            self.screen.feedback.hint(f"copied {what}{how}")

    def action_copy_or_quit(self) -> None:
        """Copy the selection; else stop the reply; else clear the composer; twice more: quit."""
        selected = self.screen.get_selected_text()
        focused = self.focused
        if not selected and isinstance(focused, Composer):
            selected = focused.selected_text
        if selected:
            self.copy(selected, "the selection")
            return
        stopped = self.session.stop()
        screen = self.screen if isinstance(self.screen, ChatScreen) else None
        if screen is not None and screen.actions.interrupt(stopped=stopped):
            return
        now = time.monotonic()
        if now - self._last_ctrl_c < _TWICE_SECONDS:
            self.exit()
            return
        self._last_ctrl_c = now
        if screen is not None:
            screen.feedback.hint("press Ctrl+C again to quit")
