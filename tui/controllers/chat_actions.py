"""The keys and commands of the chat screen by name, and the objects that carry them out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from textual.message import Message

from tui.controllers.attached import AttachedFiles, ContextCosts
from tui.controllers.branches import BranchController
from tui.controllers.chat_context import ChatContext
from tui.controllers.chats import ChatLibrary, ChatSwitcher
from tui.controllers.command_runner import Action, CommandRunner
from tui.controllers.log_tools import LogPointer, MessageFinder
from tui.controllers.models import ModelChooser, PullController, RaceController
from tui.controllers.reply_inspector import ReplyInspector
from tui.controllers.setting_changes import SettingsController
from tui.controllers.status import StatusArea
from tui.controllers.tools import ToolController
from tui.input.attachments import AttachError, picture_named
from tui.input.help_rows import help_rows, pressed_commands, typed_commands
from tui.session.commands import Value
from tui.session.session_engine import Phase
from tui.terminal import theme


@dataclass
class ThemeChosen(Message):
    """The user has chosen a theme by its name."""

    name: str


class ChatActions:
    """Carries out keys, typed commands and the palette's commands."""

    def __init__(self, context: ChatContext, status: StatusArea) -> None:
        self._context, self._screen, self._session = context, context.screen, context.session
        self._status, self._feedback = status, context.feedback
        self._composer = context.widgets.composer
        self.branches = BranchController(context)
        self.chats = ChatSwitcher(context, self.branches)
        self.finder = MessageFinder(context)
        self.library = ChatLibrary(context, self.chats, self.finder)
        self._pointer = LogPointer(context)
        self.pulls = PullController(context)
        self._models = ModelChooser(context, self.pulls)
        self._settings = SettingsController(context, self._models)
        self.inspector = ReplyInspector(context)
        self.races = RaceController(context, self.pulls, self._models)
        self.files = AttachedFiles(context.session)
        self._costs = ContextCosts(context)
        self.tools = ToolController(context)
        self._keys = self._key_actions()
        self.runner = CommandRunner(context, self.branches, self.files, self._command_actions())

    async def press(self, name: str, *arguments: int) -> None:
        """Carry out a key of `keymap.CHAT`."""
        running = self._keys[name](*arguments)
        if inspect.isawaitable(running):
            await running

    def enabled(self, name: object) -> bool:
        """Whether a key does something now; `stop` and `restart` do only now and then."""
        session, phase = self._session, self._session.engine.phase
        if name == "stop":
            busy = session.replying or phase is Phase.LOADING or self.pulls.running
            return busy or self.branches.editing
        if name == "allow":
            return session.chat.question is not None
        return name != "restart" or phase is Phase.DEAD

    def offers(self) -> Iterable[tuple[str, str, Callable[[], object]]]:
        """The commands for the palette, those of /help: name, help and callback."""
        for typed in typed_commands():
            name = typed.line[1:].capitalize()
            yield name, f"{typed.usage}: {typed.does}", partial(self.runner.offer, typed.line)
        for key in pressed_commands(self._context.rebound):
            name, *arguments = key.action
            press = partial(self._keys[name], *map(int, arguments))
            yield key.does[0].upper() + key.does[1:], key.keys, press

    def interrupt(self, *, stopped: bool) -> bool:
        """Clear the composer for Ctrl+C; returns False where it is empty.

        The text stays where a reply was ``stopped`` by the same key, else Up brings it back.
        """
        if not self._composer.text.strip():
            return False
        if stopped:
            self._feedback.hint("stopped; Ctrl+C again clears the line below")
        elif self.branches.editing:
            self.branches.leave_edit()
        else:
            self._composer.put_aside()
            self._feedback.hint("cleared; Up brings it back")
        return True

    def _stop(self) -> None:
        """Leave an edit, or stop the reply, the loading or the pull, whichever comes first."""
        session = self._session
        if self.branches.editing:
            self.branches.leave_edit()
        elif not (session.stop() or session.engine.cancel_loading()):
            self.pulls.stop()

    def _restart(self) -> None:
        if not self._session.restart():
            self._feedback.hint("the engine is running")

    def _compare(self) -> None:
        """Repeat the last reply plainly; where there is none yet, the race shows the same."""
        if self._session.chat.conversation.turns:
            self.inspector.compare(self._status.verifier)
        else:
            self.races.open()

    async def _again(self, model: str) -> None:
        """Answer the last question again, where it is named by another model."""
        chat = self._session.chat
        if not model:
            self.branches.again()
        elif not chat.questions:
            self._feedback.hint("there is no question to answer yet")
        else:  # checking a model takes seconds: another chat may be shown then
            again = partial(self.branches.again_in, chat, chat.questions[-1])
            await self._models.use_model(model, then=again)

    async def _help(self) -> None:
        await self._feedback.show_list("Keys and commands", help_rows(self._context.rebound))

    def _add_image(self, path: str) -> None:
        """Name a picture in front of what was typed meanwhile."""
        try:
            word = picture_named(path.strip('"'))
        except AttachError as error:
            self._feedback.hint(str(error))
            return
        self._composer.put(f"{word} {self._composer.text}")
        self._composer.focus()

    def _find(self) -> None:
        self._pointer.leave()
        self.finder.open()

    def _use_theme(self, name: str) -> None:
        app = self._screen.app
        if not name:
            app.action_change_theme()
        elif name in theme.NAMES:
            self._screen.post_message(ThemeChosen(name))
        else:
            self._feedback.hint(f"there is no theme {name!r}; {theme.there_is(name)}")

    def _key_actions(self) -> dict[str, Callable[..., Awaitable[None] | None]]:
        """The actions of `keymap.CHAT` and of the palette, by name."""
        return {
            "stop": self._stop,
            "help": self._help,
            "colours": self.inspector.toggle_colours,
            "details": self._status.toggle_details,
            "figures": self._status.toggle_expert,
            "compare": self._compare,
            "token": self.inspector.move,
            "models": self._models.open_picker,
            "settings": self._settings.open_panel,
            "again": self.branches.again,
            "continue": self.branches.continue_reply,
            "edit": self.branches.edit,
            "branch": self.branches.branch,
            "chats": self.library.pick,
            "find": self._find,
            "point": self._pointer.move,
            "open_pointed": self._pointer.open,
            "new": self.chats.new,
            "next_chat": self.chats.next_chat,
            "restart": self._restart,
            "older": self._context.transcript.load_older,
            "oldest": self._context.transcript.show_oldest,
            "newest": self._context.transcript.show_newest,
            "allow": self.tools.answer,
        }

    def _command_actions(self) -> dict[str, Action]:
        """The actions of typed commands, by name."""
        keys = self._keys
        without_argument = ("help", "find", "continue", "edit", "settings", "new")
        actions: dict[str, Action] = {
            name: partial(_without_value, keys[name])
            for name in (*without_argument, "colours", "compare", "details", "figures")
        }
        return actions | {
            "again": lambda model: self._again(str(model)),
            "variants": lambda count: self.branches.vary(int(count or 0)),
            "branch": lambda back: self.branches.branch(-1 if back else 1),
            "chats": lambda query: self.library.pick(str(query)),
            "resume": lambda start: self.chats.resume(str(start)),
            "export": lambda name: self.library.export(str(name)),
            "import": lambda name: self.library.import_chats(str(name)),
            "image": lambda path: self._add_image(str(path)),
            "title": lambda title: self.library.rename(str(title)),
            "models": lambda words: self._models.open_picker(str(words)),
            "model": lambda names: self._models.use_model(str(names)),
            "draft": self._models.use_draft,
            "pull": lambda names: self.pulls.pull(str(names)),
            "preset": lambda words: self._settings.preset(str(words)),
            "set": lambda text: self._settings.set(str(text)),
            "temp": lambda value: self._settings.temperature(float(value or 0)),
            "seed": lambda value: self._settings.seed(None if value is None else int(value)),
            "think": lambda text: self._settings.think(str(text)),
            "system": lambda text: self._settings.system(str(text)),
            "schema": lambda text: self._settings.schema(str(text)),
            "delete": lambda _: self.chats.delete(),
            "undo": lambda _: self.chats.undo(),
            "open": lambda words: self.chats.open_chats(str(words)),
            "close": lambda _: self.chats.close(),
            "race": lambda _: self.races.open(),
            "context": lambda _: self._costs.show(),
            "compact": lambda _: self.branches.compact(),
            "mcp": lambda words: self.tools.mcp(str(words)),
            "folder": lambda path: self.tools.folder(str(path)),
            "allow": lambda word: self.tools.allow(str(word)),
            "deny": lambda _: self.tools.allow("no"),
            "copy": lambda code: self.inspector.copy(code=code is True),
            "theme": lambda name: self._use_theme(str(name)),
            "quit": lambda _: self._screen.app.action_quit(),
        }


def _without_value(
    action: Callable[[], Awaitable[None] | None], _: Value
) -> Awaitable[None] | None:
    return action()
