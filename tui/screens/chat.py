"""The chat screen: what the person can do in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from textual import events, on
from textual.message import Message
from textual.worker import Worker

from localspec.errors import ChatsError
from tui.input import keymap
from tui.input.attachments import AttachError, NoFileError, attach
from tui.input.completion import Known, wants_chats
from tui.render.markdown import code_blocks
from tui.screens.chat_branches import ID_SHOWN
from tui.screens.chat_tokens import TokensView
from tui.screens.compare import CompareScreen
from tui.session import commands, status_text
from tui.session.commands import Command, CommandError, Value
from tui.session.ports import Phase
from tui.session.session import Session
from tui.terminal import theme
from tui.widgets.bars import SuggestBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.lines import Lines
from tui.widgets.message import Columns, Note

_TYPING = frozenset({"enter", "tab", "backspace", "delete", "ctrl+u", "ctrl+w", "ctrl+j"})
"""Keys that are meant for the composer even where a click has taken the focus from it."""
_ELSEWHERE = frozenset({"theme", "quit"})
"""Commands that the palette offers from every screen."""


class ChatScreen(TokensView):
    """The chat, with its keys and commands."""

    class Copied(Message):
        """The person wants something in the clipboard."""

        def __init__(self, text: str, what: str) -> None:
            super().__init__()
            self.text = text
            self.what = what

    def __init__(
        self, session: Session, name: str, verifier: str, rebound: Mapping[str, str]
    ) -> None:
        super().__init__(session, name, verifier, rebound)
        self._to_do: asyncio.Queue[str | Command] = asyncio.Queue()
        """What was sent and commanded, in its order."""
        self._doing: Worker[None] | None = None
        self._chats_known = False
        """Whether the composer was told the chats for what is typed now."""
        self._no_file: str | None = None
        """The message that was refused last since a file that it names is not there."""

    # -- what the person does ------------------------------------------------------------------

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        try:
            command = commands.parse(event.text.strip())
            as_words = event.text == self._no_file
            self._no_file = None
            text = attach(event.text.strip("\n"), as_words=as_words) if command is None else ""
        except (CommandError, AttachError) as error:
            self._composer.refuse()
            line = str(error)
            if isinstance(error, NoFileError):
                self._no_file = event.text
                line += "; Enter again sends it as words"
            self.hint(line)
            return
        self.unhint()
        self._composer.accept()
        self._log.anchor()
        self._do(text if command is None else command)

    def _do(self, what: str | Command) -> None:
        """Say something, or obey a command, after all that came before."""
        free = self._doing is None or self._doing.is_finished
        if free and isinstance(what, str):
            self.ask(what)  # at once, so that it is of the chat that is looked at now
            return
        self._to_do.put_nowait(what)
        if free:
            self._doing = self.run_worker(self._do_all(), group="doing")

    async def _do_all(self) -> None:
        # Not in the handler of a message: a disk that is slow would hold up the drawing as well.
        while not self._to_do.empty():
            what = self._to_do.get_nowait()
            if isinstance(what, str):
                self.ask(what)
            else:
                await self._run_command(what)

    async def _run_command(self, command: Command) -> None:
        does = self._commands().get(command.name)
        if does is None:
            await self._below(Note(self.session.change(command)))
            self._timer.resume()
            return
        running = does(command.value)
        if running is not None:
            await running

    def _commands(self) -> dict[str, Callable[[Value], Awaitable[None] | None]]:
        """What a command does; all others change how replies are asked for."""
        return {
            "help": lambda _: self.action_help(),
            "again": lambda _: self.action_again(),
            "continue": lambda _: self.action_continue(),
            "edit": lambda _: self.action_edit(),
            "branch": lambda back: self.action_branch(-1 if back else 1),
            "chats": lambda query: self.list_chats(str(query)),
            "resume": lambda start: self.resume(str(start)),
            "export": lambda name: self.export(str(name)),
            "import": lambda name: self.import_chats(str(name)),
            "models": lambda words: self.action_models(str(words)),
            "draft": self.use_draft,
            "model": lambda names: self.use_model(str(names)),
            "pull": lambda names: self.pull(str(names)),
            "preset": lambda words: self.preset(str(words)),
            "settings": lambda _: self.action_settings(),
            "set": lambda text: self.set(str(text)),
            "delete": lambda _: self.delete(),
            "undo": lambda _: self.undo(),
            "title": lambda title: self.rename(str(title)),
            "open": lambda words: self.open_chats(str(words)),
            "close": lambda _: self.close_chat(),
            "new": lambda _: self.action_new(),
            "colours": lambda _: self.action_colours(),
            "compare": lambda _: self.action_compare(),
            "details": lambda _: self.action_details(),
            "copy": lambda code: self.action_copy(code is True),
            "theme": lambda name: self.use_theme(str(name)),
            "quit": lambda _: self.app.action_quit(),
        }

    def offers(self) -> Iterable[tuple[str, str, Callable[[], object]]]:
        """Every command for the palette: its name, what it does, and how to do it.

        One that needs an argument is put into the composer.
        """
        for name, spec in commands.SPECS.items():
            if name in _ELSEWHERE:
                continue
            yield name.capitalize(), spec.help, partial(self._offered, name)
        yield "Code", "copy the last code block", partial(self.action_copy, code=True)
        yield "Stop", keymap.BY_ID["chat.stop"].tooltip, self.action_stop
        yield "Next chat", "of those that are open", self.action_next_chat
        yield "Branch before", "look at the branch before", partial(self.action_branch, -1)
        yield "Older", "load older messages", self.action_older
        yield "Restart", "start the engine again after it died", self.action_restart

    def _offered(self, name: str) -> None:
        try:
            command = commands.parse(f"/{name}")
        except CommandError:
            self._composer.put(f"/{name} ")
            self._composer.focus()
            return
        assert command is not None
        self._do(command)

    async def use_theme(self, name: str) -> None:
        """List the themes, or use one."""
        if not name:
            rows = [("●" if known == self.app.theme else "", known) for known in theme.NAMES]
            await self._list_below(Columns([*rows, ("", "/theme NAME uses one")]))
        elif name in theme.NAMES:
            self.app.theme = name
        else:
            self.hint(f"there is no theme {name!r}; {theme.there_is(name)}")

    @on(Composer.Changed)
    def _typed(self) -> None:
        wanted = wants_chats(self._composer.text)
        if wanted and not self._chats_known:
            self.run_worker(self._know_chats(), group="know", exclusive=True)
        self._chats_known = wanted

    async def _know_chats(self) -> None:
        """Let the composer complete chats; what cannot be read is told by the command itself."""
        try:
            kept = await self.session.kept.chats()
        except ChatsError:
            kept = []
        titles = {listed.info.id[:ID_SHOWN]: listed.info.title for listed in kept}
        opened = {str(number): chat.title for number, chat in enumerate(self.session.chats.all, 1)}
        self._composer.know(Known(titles, opened))

    @on(Composer.Suggested)
    def _suggested(self, event: Composer.Suggested) -> None:
        self._suggest_bar.show(event.found, event.chosen)

    @on(SuggestBar.Picked)
    def _suggestion_picked(self, event: SuggestBar.Picked) -> None:
        self._composer.take(event.index)

    @on(Composer.Refused)
    def _refused(self, event: Composer.Refused) -> None:
        self.hint(event.text)

    @on(Composer.Paged)
    def _paged(self, event: Composer.Paged) -> None:
        if event.direction < 0:
            self._log.scroll_page_up()
        else:
            self._log.scroll_page_down()

    @on(ChatLog.OlderWanted)
    async def action_older(self) -> None:
        """Load older messages."""
        async with self._changing:
            await self._log.load_older()

    @on(Lines.LinkClicked)
    def _link(self, event: Lines.LinkClicked) -> None:
        # A model writes the links; only pages are opened, never files or programs.
        if event.href.startswith(("https://", "http://")):
            self.app.open_url(event.href)

    def on_key(self, event: events.Key) -> None:
        """Typing goes to the composer, wherever the focus is."""
        if self._composer.has_focus:
            return
        if event.is_printable:
            event.stop()
            self._composer.type(event)
        elif event.key in _TYPING:
            event.stop()
            self._composer.focus()
            self._composer.post_message(events.Key(event.key, event.character))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show keys only where they do something."""
        del parameters
        self._keyed_phase = phase = self.session.phase
        if action == "stop":
            busy = self.session.speaking or phase is Phase.LOADING or self.pulling
            return busy or self.session.chat.editing is not None
        if action == "restart":
            return phase is Phase.DEAD
        return True

    def interrupt(self, *, stopped: bool) -> bool:
        """Keep what is typed from being lost by Ctrl+C; whether something was typed.

        While a reply is stopped it stays, else it is put where Up finds it.
        """
        if not self._composer.text.strip():
            return False
        if stopped:
            self.hint("stopped; Ctrl+C again empties the line below")
        elif self.session.chat.editing is not None:
            self.leave_edit()
        else:
            self._composer.put_aside()
            self.hint("emptied; Up brings it back")
        return True

    def action_stop(self) -> None:
        """Leave a question that is edited; stop the reply and keep what was said, or loading."""
        if self.session.chat.editing is not None:
            self.leave_edit()
        elif not (self.session.stop() or self.session.cancel_loading()):
            self.stop_pull()

    def action_details(self) -> None:
        """Show or hide the details."""
        self._detailed = not self._detailed
        self._show_parts()

    def action_compare(self) -> None:
        """Make the last reply again without drafting, beside it."""
        comparison = self.session.compare()
        if comparison is None:
            self.hint(
                status_text.why_not(self.session) or "there is no reply that can be made again"
            )
            return

        def closed(_: None) -> None:
            comparison.left = True
            if not comparison.over:
                self.session.stop()

        self.app.push_screen(CompareScreen(comparison, self.verifier), closed)

    def action_restart(self) -> None:
        """Start the engine again."""
        if not self.session.restart():
            self.hint("the engine is running")

    async def action_help(self) -> None:
        """List keys and commands in the conversation."""
        typed = [(spec.usage, spec.help) for spec in commands.SPECS.values()]
        keys = [(row.keys, row.does) for row in keymap.rows(self._rebound, keymap.IN_THE_CHAT)]
        await self._list_below(Columns([*keys, *keymap.FIXED, ("", ""), *typed]))

    def action_copy(self, code: bool = False) -> None:
        """Copy the last reply, or its last code block, to the clipboard."""
        reply = self.session.conversation.last_reply
        blocks = code_blocks(reply.text) if reply is not None and code else []
        if reply is None:
            self.hint("there is no reply to copy yet")
        elif code and not blocks:
            self.hint("the last reply has no code block")
        else:
            text = blocks[-1] if code else reply.text
            self.post_message(self.Copied(text, f"the last {'code block' if code else 'reply'}"))

    async def action_oldest(self) -> None:
        """To the oldest message."""
        async with self._changing:
            await self._log.show_oldest()

    def action_scroll_end(self) -> None:
        """To the newest message."""
        self._log.anchor()
