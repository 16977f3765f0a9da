"""What the interface does with the engine, without any widget.

`Answering` writes into conversations and meters as tokens come; the screen looks at them when its
timer ticks, and takes the few things that happen once from `take_happenings`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.core.events import Examination, Loading, ModelInfo, Reading
from tui.session.commands import Command
from tui.session.comparison import Comparison, examine
from tui.session.conversation import Conversation, Turn
from tui.session.engine_slot import Engines
from tui.session.notifications import Failed, Happening, Told, Turned
from tui.session.open_chat import OpenChat
from tui.session.open_chats import OpenChats
from tui.session.persistence import Kept
from tui.session.ports import Engine, Phase, Settings
from tui.session.reply_task import Answering
from tui.session.stats import Meter

if TYPE_CHECKING:
    from localspec.loading.options import Options


class Session:
    """Open chats and the engine that answers in them."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        system: str | None = None,
        kept: Kept | None = None,
        *,
        options: Options | None = None,
        reopen: Callable[[Options], Engine] | None = None,
    ) -> None:
        """``options`` are those of the engine; with them ``reopen`` makes another."""
        self.engines = Engines(engine, options, reopen, self._happen)
        self.settings = settings
        self.chats = OpenChats(OpenChat(Conversation(system), kept or Kept()))
        self.kept.on_news = lambda line: self._happen(Told(line))
        self.on_activity: Callable[[], None] = lambda: None
        """Called when the screen should start to look again."""
        self._happenings: deque[Happening] = deque()
        self._answering = Answering(
            self.engines, self.chats, settings, self._happen, self._activity
        )

    # -- what the screen looks at --------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The one there is."""
        return self.engines.engine

    @property
    def phase(self) -> Phase:
        """What the engine is doing, in whichever chat."""
        return self.engines.phase

    @property
    def options(self) -> Options | None:
        """What the model is loaded with, if that is known."""
        return self.engines.options

    @property
    def info(self) -> ModelInfo | None:
        """The model that was loaded last."""
        return self.engines.info

    @property
    def loading(self) -> Loading | None:
        """How far the model is loaded."""
        return self.engines.loading

    @property
    def reading(self) -> Reading | None:
        """How far the prompt is read, until the reply begins."""
        return self._answering.reading

    @property
    def chat(self) -> OpenChat:
        """The one that is looked at."""
        return self.chats.current

    @property
    def conversation(self) -> Conversation:
        """What was said in it."""
        return self.chat.conversation

    @property
    def kept(self) -> Kept:
        """It, on disk."""
        return self.chat.kept

    @property
    def meter(self) -> Meter:
        """The figures of its replies."""
        return self.chat.meter

    @property
    def queue(self) -> deque[str]:
        """What was typed while the model spoke."""
        return self.chat.queue

    @property
    def answered(self) -> OpenChat | None:
        """The chat in which the model speaks."""
        return self._answering.chat

    @property
    def speaking(self) -> bool:
        """Whether the model speaks in the chat that is looked at, or compares a reply of it."""
        return self.phase is Phase.REPLYING and self.answered in (None, self.chat)

    @property
    def idle(self) -> bool:
        """Whether nothing will change by itself."""
        asked = self._answering.comparing or self.chats.next_to_answer
        waiting = asked and self.phase is Phase.READY
        return self.phase in (Phase.READY, Phase.DEAD) and not waiting and not self._happenings

    def take_happenings(self) -> list[Happening]:
        """What has happened since the last call."""
        happenings = list(self._happenings)
        self._happenings.clear()
        return happenings

    def tell(self, line: str) -> None:
        """Show a line to the user in the chat that is looked at."""
        self._happen(Told(line))

    # -- in the chat that is looked at ---------------------------------------------------------

    def send(self, text: str) -> None:
        """Ask the model when it is free."""
        self.queue.append(text)
        self._activity()

    def stop(self) -> bool:
        """End the reply that is made here; whether there was one."""
        if not self.speaking:
            return False
        self.engine.interrupt()
        return True

    def edit(self, turn: Turn, text: str) -> None:
        """Say something else in place of ``turn``, on a branch beside it."""
        self.stop()
        self.chat.edit(turn, text)
        self._happen(Turned())

    def regenerate(self) -> bool:
        """Have the last question answered once more, beside its reply; whether there is one."""
        self.stop()
        return self._turned(self.chat.regenerate())

    def go_on(self) -> bool:
        """Have the last reply go on where it was stopped; whether it was."""
        free = self.phase in (Phase.READY, Phase.REPLYING) and not self.speaking
        return self._turned(free and self.chat.go_on())

    def branch(self, step: int) -> bool:
        """Look at another branch, ``step`` further; whether there is one."""
        if not self.chat.branch(step):
            return False
        self.stop()
        return self._turned(True)

    def take_back(self) -> str | None:
        """What was typed last and waits for the model, which now does not get it; or None."""
        return self.queue.pop() if self.queue else None

    def _turned(self, done: bool) -> bool:
        if done:
            self._happen(Turned())
        return done

    def compare(self) -> Comparison | None:
        """Make the last reply once more without drafting; None where there is none to make."""
        reply = self.conversation.last_reply
        if reply is None or reply.made is None or self.phase is not Phase.READY:
            return None
        self._answering.comparing = comparison = Comparison(reply, reply.made)
        self._activity()
        return comparison

    async def examine(self, turn: Turn, index: int) -> Examination | None:
        """What stood behind a token of a reply; None where that cannot be known any more.

        Raises:
            LocalspecError: it cannot be looked at.
        """
        made = turn.made
        if made is None or index < made.start or self.phase is not Phase.READY:
            return None
        known = made.reply.tokens[: index - made.start + 1]
        return await examine(self.engine, made, known)

    def change(self, command: Command) -> str:
        """Change how the next replies are asked for; the line that says so."""
        settings, value = self.settings, command.value
        match command.name:
            case "temp":
                assert isinstance(value, float)
                settings.sampling = dataclasses.replace(settings.sampling, temperature=value)
                return f"temperature {value:g} from the next reply on"
            case "seed":
                settings.seed = value if isinstance(value, int) else None
                return "a new seed each time" if value is None else f"seed {value} from now on"
            case "draft":
                settings.draft = bool(value)
                return "drafting from now on" if settings.draft else "plain decoding from now on"
            case "system":
                return self._system(str(value))
        raise AssertionError(command)

    def _system(self, text: str) -> str:
        if not text:
            held = self.conversation.system
            return f"system prompt: {held}" if held else "no system prompt; /system TEXT sets one"
        self.chat.system(None if text == "none" else text)
        return "no system prompt from now on" if text == "none" else "system prompt set"

    # -- which chat is looked at ---------------------------------------------------------------

    def new(self) -> None:
        """Open another chat; what the others wait for goes on."""
        if self.chat.untouched:
            self.show(self.chat)
            return
        chat = self.chats.fresh()
        self.chats.add(chat)
        self.show(chat)

    async def resume(self, start: str | None = None) -> None:
        """Go on with the chat whose id begins so, or with the last one.

        Raises:
            ChatsError: there is none, or it cannot be read; all stays as it is.
        """
        loaded = await self.kept.load(start)
        chat = self.chats.find(loaded.info.id)
        if chat is None:
            chat = self.chats.beside(Conversation(), self.kept)
            chat.kept.resume(loaded, chat.conversation)
            self.chats.add(chat)
        self.show(chat)

    def show(self, chat: OpenChat) -> None:
        """Look at another open chat."""
        left = self.chats.current
        for happening in self.take_happenings():
            # What the screen has not shown yet of the chat that is left waits for its return.
            theirs = chat is not left and isinstance(happening, Failed | Told)
            (left.missed if theirs else self._happenings).append(happening)
        self.chats.current = chat
        self._happenings.appendleft(Turned())
        for happening in chat.missed:
            self._happen(happening)
        chat.missed.clear()
        self._activity()

    def close(self) -> None:
        """Close the chat that is looked at: its reply ends, what it waits for is not asked."""
        self.stop()
        self.chat.forget_plans()
        self.show(self.chats.remove())

    # -- the engine ----------------------------------------------------------------------------

    def restart(self) -> bool:
        """Start a dead engine again; whether it was dead."""
        restarts = self.engines.restart()
        if restarts:
            self._activity()
        return restarts

    def cancel_loading(self) -> bool:
        """Do not load the model after all; whether it was being loaded."""
        return self.engines.cancel_loading()

    def load(self, **changes: object) -> None:
        """Answer with other load-time options, another model say; the conversations stay.

        Raises:
            UsageError: options that cannot be meant, or a model that is still being loaded.
        """
        options = self.engines.changed(changes)
        if self.phase is Phase.REPLYING:
            self.engine.interrupt()
        self.engines.exchange(options)
        self.chats.forget_how()
        self._activity()

    async def run(self) -> None:
        """Open the engine and answer, for as long as the interface lives."""
        await self._answering.run()

    def _activity(self) -> None:
        self._answering.wake()
        self.on_activity()

    def _happen(self, happening: Happening) -> None:
        self._happenings.append(happening)
        self._activity()
