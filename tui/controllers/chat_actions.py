"""The keys and commands of the chat screen by name, and the objects that carry them out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from textual.message import Message
from textual.screen import Screen

from tui.controllers.attached import AttachedFiles, ContextCosts
from tui.controllers.branches import BranchController
from tui.controllers.chats import ChatLibrary, ChatSwitcher
from tui.controllers.command_runner import Action, CommandRunner
from tui.controllers.log_tools import LogPointer, MessageFinder
from tui.controllers.models import ModelChooser, PullController, RaceController
from tui.controllers.reply_inspector import ReplyInspector
from tui.controllers.setting_changes import SettingsController
from tui.controllers.status import Feedback, StatusArea
from tui.controllers.tools import ToolController
from tui.controllers.transcript import Transcript
from tui.controllers.widgets import ChatWidgets
from tui.input import keymap
from tui.input.attachments import AttachError, picture_named
from tui.input.help_rows import help_rows, pressed_commands, typed_commands
from tui.session.commands import Value
from tui.session.engine_slot import Phase
from tui.session.session import Session
from tui.terminal import theme


class ThemeChosen(Message):
    """The user has chosen a theme by its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ChatActions:
    """Carries out keys, typed commands and the palette's commands."""

    def __init__(
        self,
        screen: Screen[Any],
        session: Session,
        widgets: ChatWidgets,
        status: StatusArea,
        transcript: Transcript,
        feedback: Feedback,
        rebound: Mapping[str, str],
        copy: Callable[[str, str], object],
    ) -> None:
        """``rebound`` maps ids of `keymap` to other keys; ``copy`` takes a text and its name."""
        self._screen, self._session = screen, session
        self._composer, self._log = widgets.composer, widgets.log
        self._status, self._transcript, self._feedback = status, transcript, feedback
        self._rebound, self._copy_text = rebound, copy
        self._branches = BranchController(
            session,
            feedback,
            widgets.composer,
            widgets.log,
            edit_key=keymap.key_of("chat.edit", rebound),
            branch_keys=" and ".join(
                keymap.key_of(f"chat.branch_{way}", rebound) for way in ("before", "after")
            ),
            on_editing=screen.refresh_bindings,
        )
        self.chats = ChatSwitcher(screen, session, feedback, widgets.composer, self._branches)
        self.finder = MessageFinder(screen, session, transcript, widgets.composer, widgets.find_bar)
        self.library = ChatLibrary(screen, session, feedback, widgets.log, self.chats, self.finder)
        self._pointer = LogPointer(
            screen, feedback, widgets.log, keymap.key_of("chat.open_pointed", rebound)
        )
        self.pulls = PullController(screen, feedback, widgets.pull_bar)
        self._models = ModelChooser(screen, session, feedback, self.pulls)
        self._settings = SettingsController(screen, session, feedback, self._models)
        self.inspector = ReplyInspector(screen, session, feedback, transcript, widgets)
        self.races = RaceController(
            screen, session, feedback, widgets.composer, self.pulls, self._models, rebound
        )
        self.files = AttachedFiles(session)
        self._costs = ContextCosts(session, feedback)
        self.tools = ToolController(session, feedback, rebound)
        self._keys = self._key_actions()
        self._runner = CommandRunner(
            screen,
            session,
            feedback,
            widgets.composer,
            widgets.log,
            branches=self._branches,
            files=self.files,
            actions=self._command_actions(),
        )

    def send(self, text: str, pasted: tuple[str, ...]) -> None:
        """Carry out what the composer sends: a command, or a message to the model; ``pasted`` are
        parts of it that the composer does not show.
        """
        self._runner.send(text, pasted)

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
            return busy or self._branches.editing
        if name == "allow":
            return session.chat.question is not None
        return name != "restart" or phase is Phase.DEAD

    @property
    def leaves_edit(self) -> bool:
        """Whether the key that stops a reply leaves an edit now."""
        return self._branches.editing

    def offers(self) -> Iterable[tuple[str, str, Callable[[], object]]]:
        """The commands for the palette, those of /help: name, help and callback."""
        for typed in typed_commands():
            name = typed.line[1:].capitalize()
            yield name, f"{typed.usage}: {typed.does}", partial(self._runner.offer, typed.line)
        for key in pressed_commands(self._rebound):
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
        elif self._branches.editing:
            self._branches.leave_edit()
        else:
            self._composer.put_aside()
            self._feedback.hint("cleared; Up brings it back")
        return True

    def _stop(self) -> None:
        """Leave an edit, or stop the reply, the loading or the pull, whichever comes first."""
        session = self._session
        if self._branches.editing:
            self._branches.leave_edit()
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
            self._branches.again()
        elif not chat.questions:
            self._feedback.hint("there is no question to answer yet")
        else:  # checking a model takes seconds: another chat may be shown then
            again = partial(self._branches.again_in, chat, chat.questions[-1])
            await self._models.use_model(model, then=again)

    async def _help(self) -> None:
        await self._feedback.show_list("Keys and commands", help_rows(self._rebound))

    def _copy(self, *, code: bool) -> None:
        self.inspector.copy(self._copy_text, code=code)

    def _add_image(self, path: str) -> None:
        try:
            word = picture_named(path.strip('"'))
        except AttachError as error:
            self._feedback.hint(str(error))
            return
        self._composer.put(f"{word} ")
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
            "again": self._branches.again,
            "continue": self._branches.continue_reply,
            "edit": self._branches.edit,
            "branch": self._branches.branch,
            "chats": self.library.pick,
            "find": self._find,
            "point": self._pointer.move,
            "open_pointed": self._pointer.open,
            "new": self.chats.new,
            "next_chat": self.chats.next_chat,
            "restart": self._restart,
            "older": self._transcript.load_older,
            "oldest": self._transcript.show_oldest,
            "newest": self._transcript.show_newest,
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
            "variants": lambda count: self._branches.vary(int(count or 0)),
            "branch": lambda back: self._branches.branch(-1 if back else 1),
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
            "delete": lambda _: self.chats.delete(),
            "undo": lambda _: self.chats.undo(),
            "open": lambda words: self.chats.open_chats(str(words)),
            "close": lambda _: self.chats.close(),
            "race": lambda _: self.races.open(),
            "context": lambda _: self._costs.show(),
            "compact": lambda _: self._branches.compact(),
            "mcp": lambda words: self.tools.mcp(str(words)),
            "folder": lambda path: self.tools.folder(str(path)),
            "allow": lambda word: self.tools.allow(str(word)),
            "deny": lambda _: self.tools.allow("no"),
            "copy": lambda code: self._copy(code=code is True),
            "theme": lambda name: self._use_theme(str(name)),
            "quit": lambda _: self._screen.app.action_quit(),
        }


def _without_value(
    action: Callable[[], Awaitable[None] | None], _: Value
) -> Awaitable[None] | None:
    return action()
