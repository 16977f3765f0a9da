"""What the interface does with the engine, without any widget.

One task opens the engine and answers what is queued, message by message. It writes into the
conversation and the meter as tokens come; the screen looks at them when its timer ticks, and takes
the few things that happen once from `take_happenings`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from localspec.errors import EngineError, Interrupted, LocalspecError, UsageError
from localspec.events import (
    Examination,
    Finished,
    Loading,
    Message,
    ModelInfo,
    Notice,
    Reading,
    Round,
    Token,
)
from localspec.parameters import Sampling
from tui.commands import Command
from tui.comparison import Comparison, examine
from tui.conversation import Conversation, Made, Turn
from tui.kept import Kept
from tui.meter import Meter

if TYPE_CHECKING:
    from localspec.options import Options

ReplyEvent = Reading | Token | Round | Notice | Finished


class Engine(Protocol):
    """What the interface needs of localspec.engine.client.EngineClient."""

    on_death: Callable[[EngineError], None] | None

    @property
    def pid(self) -> int | None: ...

    async def open(self, on_loading: Callable[[Loading], None] | None = None) -> ModelInfo: ...

    def reply(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> AsyncIterator[ReplyEvent]: ...

    async def examine(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
        max_tokens: int | None = None,
        rival: int | None = None,
    ) -> Examination: ...

    def interrupt(self) -> None: ...

    async def close(self) -> None: ...


class Phase(enum.Enum):
    """What the engine is doing."""

    LOADING = "loading"
    READY = "ready"
    REPLYING = "replying"
    DEAD = "dead"
    """It died, or did not come up; `Session.restart` starts it again."""


@dataclass(slots=True)
class Settings:
    """What a reply is asked with; the person changes it while chatting."""

    sampling: Sampling
    max_tokens: int | None = None
    seed: int | None = None
    draft: bool = True


@dataclass(frozen=True, slots=True)
class Opened:
    """The model is ready."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class Asked:
    """A message left the queue and is now part of the conversation; its reply begins."""

    question: Turn | None
    """None where one that is there already is answered again."""
    reply: Turn


@dataclass(frozen=True, slots=True)
class Ended:
    """A reply is over, one way or another."""

    reply: Turn


@dataclass(frozen=True, slots=True)
class Turned:
    """The turns to show are others now: another chat, or another branch of it."""


@dataclass(frozen=True, slots=True)
class Told:
    """The engine has something to say."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A reply failed; the engine lives."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class Died:
    """The engine is gone, or its loading was stopped."""

    error: LocalspecError


@dataclass(frozen=True, slots=True)
class NotOpened:
    """The engine did not come up."""

    error: LocalspecError


Happening = Opened | Asked | Ended | Turned | Told | Failed | Died | NotOpened


class Session:
    """A conversation with an engine."""

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
        self.engine = engine
        self.options = options
        self._reopen = reopen
        self.settings = settings
        self.conversation = Conversation(system)
        self.kept = kept or Kept()
        """The chat on disk; keeps nothing where none is given."""
        self.kept.on_news = lambda line: self._happen(Told(line))
        self.meter = Meter()
        self.phase = Phase.LOADING
        self.queue: deque[str] = deque()
        self.loading: Loading | None = None
        self.reading: Reading | None = None
        self.info: ModelInfo | None = None
        self.on_activity: Callable[[], None] = lambda: None
        """Called when the screen should start to look again."""
        self._closing: asyncio.Future[None] | None = None
        self._before: Options | None = None
        """What answered before another model was chosen; it comes back if that cannot be loaded."""
        self._again = False
        """Whether the last question is to be answered once more."""
        self._onward = False
        """Whether the last reply is to go on where it stopped."""
        self._comparing: Comparison | None = None
        """The one to make next, or the one that is being made."""
        self._happenings: deque[Happening] = deque()
        self._wake = asyncio.Event()
        engine.on_death = self._died

    @property
    def idle(self) -> bool:
        """Whether nothing will change by itself."""
        asked = self.queue or self._again or self._onward or self._comparing
        waiting = asked and self.phase is Phase.READY
        return self.phase in (Phase.READY, Phase.DEAD) and not waiting and not self._happenings

    def take_happenings(self) -> list[Happening]:
        """What has happened since the last call."""
        happenings = list(self._happenings)
        self._happenings.clear()
        return happenings

    def send(self, text: str) -> None:
        """Ask the model when it is free."""
        self.queue.append(text)
        self._activity()

    def stop(self) -> bool:
        """End the running reply; whether there was one."""
        if self.phase is not Phase.REPLYING:
            return False
        self.engine.interrupt()
        return True

    def cancel_loading(self) -> bool:
        """Do not load the model after all; whether it was being loaded."""
        if self.phase is not Phase.LOADING:
            return False
        self._closing = asyncio.ensure_future(self.engine.close())
        return True

    def new(self) -> None:
        """Begin another chat; this one is kept, what is queued is not."""
        self._leave()
        self.conversation.clear()
        self.kept.begin()
        self._activity()

    def _leave(self) -> None:
        self.stop()
        self.queue.clear()
        self._again = self._onward = False
        self.meter.forget()

    async def resume(self, start: str | None = None) -> None:
        """Go on with the chat whose id begins so, or with the last one.

        Raises:
            ChatsError: there is none, or it cannot be read; all stays as it is.
        """
        chat = await self.kept.load(start)
        self._leave()
        self.kept.resume(chat, self.conversation)
        self._happen(Turned())

    def edit(self, turn: Turn, text: str) -> None:
        """Say something else in place of ``turn``, on a branch beside it."""
        self.stop()
        self.conversation.rewind(turn)
        self.queue.appendleft(text)
        self._happen(Turned())

    def regenerate(self) -> bool:
        """Have the last question answered once more, beside its reply; whether there is one."""
        turns = self.conversation.turns
        question = next((t for t in reversed(turns) if t.role == "user"), None)
        if question is None:
            return False
        self.stop()
        while turns[-1] is not question:
            self.conversation.rewind(turns[-1])
        self._again = True
        self._happen(Turned())
        return True

    def go_on(self) -> bool:
        """Have the last reply go on where it was stopped; whether it was."""
        turns = self.conversation.turns
        stopped = turns and turns[-1].role == "assistant" and turns[-1].text
        if not stopped or turns[-1].end in (None, "stop") or self.phase is not Phase.READY:
            return False
        turns[-1].end = None
        self._onward = True
        self._happen(Turned())
        return True

    def switch(self, turn: Turn, step: int) -> bool:
        """Look at the branch ``step`` places beside ``turn``; whether there is one."""
        siblings = self.conversation.siblings(turn)
        place = siblings.index(turn) + step
        if not 0 <= place < len(siblings):
            return False
        self.stop()
        self.conversation.switch(siblings[place])
        self.kept.look(self.conversation)
        self._happen(Turned())
        return True

    def compare(self) -> Comparison | None:
        """Make the last reply once more without drafting; None where there is none to make."""
        reply = self.conversation.last_reply
        if reply is None or reply.made is None or self.phase is not Phase.READY:
            return None
        self._comparing = Comparison(reply, reply.made)
        self._activity()
        return self._comparing

    async def examine(self, turn: Turn, index: int) -> Examination | None:
        """What stood behind a token of a reply; None where that cannot be known any more.

        Raises:
            LocalspecError: it cannot be looked at.
        """
        if turn.made is None or self.phase is not Phase.READY:
            return None
        return await examine(self.engine, turn.made, turn.made.reply.tokens[: index + 1])

    def restart(self) -> bool:
        """Start a dead engine again; whether it was dead."""
        if self.phase is not Phase.DEAD:
            return False
        self.phase = Phase.LOADING
        self._activity()
        return True

    def load(self, **changes: object) -> None:
        """Answer with other load-time options, another model say; the conversation stays.

        Raises:
            UsageError: options that cannot be meant, or a model that is still being loaded.
        """
        if self.options is None or self._reopen is None or self.phase is Phase.LOADING:
            raise UsageError("wait until the model is loaded")
        options = dataclasses.replace(self.options, **changes)  # type: ignore[arg-type]
        self.stop()
        if self.phase is not Phase.DEAD:
            self._before = self.options
        self._exchange(options)
        for turn in self.conversation.turns:
            turn.made = None  # another model cannot be asked about it
        self.kept.use_model(options.model)
        self.phase = Phase.LOADING
        self._activity()

    def _exchange(self, options: Options) -> None:
        """Another engine in place of this one, which is closed first."""
        assert self._reopen is not None
        self.engine.on_death = None
        self._closing = asyncio.ensure_future(self.engine.close())
        self.options, self.engine = options, self._reopen(options)
        self.engine.on_death = self._died

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
                settings.draft = (not settings.draft) if value is None else bool(value)
                return "drafting from now on" if settings.draft else "plain decoding from now on"
            case "system":
                self.conversation.system = str(value) or None
                self.kept.look(self.conversation)
                return "system prompt set" if value else "no system prompt"
        raise AssertionError(command)

    async def run(self) -> None:
        """Open the engine and answer, for as long as the interface lives."""
        while True:
            if self.phase is Phase.LOADING:
                await self._open()
            elif self.phase is Phase.READY and self._again:
                self._again = False
                await self._answer(None)
            elif self.phase is Phase.READY and self._onward:
                self._onward = False
                await self._answer(None, self.conversation.turns[-1])
            elif self.phase is Phase.READY and self._comparing is not None:
                await self._compare(self._comparing)
            elif self.phase is Phase.READY and self.queue:
                await self._answer(self.queue.popleft())
            else:
                self._wake.clear()
                await self._wake.wait()

    def _activity(self) -> None:
        self._wake.set()
        self.on_activity()

    def _happen(self, happening: Happening) -> None:
        self._happenings.append(happening)
        self._activity()

    def _died(self, error: EngineError) -> None:
        self.phase = Phase.DEAD
        self._happen(Died(error))

    def _loads(self, loading: Loading) -> None:
        self.loading = loading

    async def _open(self) -> None:
        self.loading = None
        self._activity()
        if self._closing is not None:  # two models at once may not fit
            await self._closing
            self._closing = None
        try:
            info = await self.engine.open(self._loads)
        except LocalspecError as error:
            if self._before is not None:
                self._go_back(error, self._before)
                return
            self.phase = Phase.DEAD
            stopped = isinstance(error, Interrupted)
            self._happen(Died(error) if stopped else NotOpened(error))
            return
        self._before = None
        self.info = info
        self.meter.opened(info)
        self.phase = Phase.READY
        self._happen(Opened(info))

    def _go_back(self, error: LocalspecError, before: Options) -> None:
        """What was chosen cannot be loaded: load what was there before."""
        self._before = None
        self._exchange(before)
        self.kept.use_model(before.model)
        self._happen(Failed(error))
        self._happen(Told(f"{before.model} is loaded again"))

    async def _answer(self, text: str | None, unfinished: Turn | None = None) -> None:
        question = None if text is None else self.conversation.say(text)
        messages = self.conversation.messages()
        reply = unfinished or self.conversation.answer()
        said, reply.made = reply.text, None
        ended = self.kept.follow(self.conversation, question, reply)
        self.meter.start()
        self.phase = Phase.REPLYING
        self._happen(Asked(question, reply))
        settings = self.settings
        try:
            events = self.engine.reply(
                messages,
                sampling=settings.sampling,
                seed=settings.seed,
                max_tokens=settings.max_tokens,
                draft=settings.draft,
            )
            async for event in events:
                if isinstance(event, Finished) and said:
                    whole = dataclasses.replace(event.reply, text=said + event.reply.text)
                    self._take(reply, Finished(whole))
                    continue
                self._take(reply, event)
                if isinstance(event, Finished):
                    reply.made = Made(messages, settings.sampling, settings.max_tokens, event.reply)
        except LocalspecError as error:
            reply.end = "failed"
            if self.phase is Phase.REPLYING:  # else its death has been told
                self._happen(Failed(error))
        finally:
            self.reading = None
            if self.phase is Phase.REPLYING:
                self.phase = Phase.READY
            ended()
        self._happen(Ended(reply))

    async def _compare(self, comparison: Comparison) -> None:
        self.phase = Phase.REPLYING
        self.on_activity()
        try:
            await comparison.run(self.engine)
        except LocalspecError as error:
            comparison.failure = error
        finally:
            self._comparing = None
            comparison.over = True
            if self.phase is Phase.REPLYING:
                self.phase = Phase.READY
        if comparison.plain is not None:
            self.meter.plain_speed = comparison.plain.stats.tokens_per_second or None
        self._activity()

    def _take(self, reply: Turn, event: ReplyEvent) -> None:
        match event:
            case Token():
                self.reading = None
                self.meter.token()
                reply.add(event)
            case Round():
                self.meter.add(event)
            case Reading():
                self.reading = self.meter.reading = event
            case Notice(text):
                self._happen(Told(text))
            case Finished(whole):
                reply.finish(whole)
                self.meter.finish(whole.stats)
