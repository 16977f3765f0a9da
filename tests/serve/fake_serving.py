"""An engine without a process or a model: it answers by script, in the loop of the test."""

from __future__ import annotations

import asyncio

from localspec.core.emitted import Origin, PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.errors import EngineError, Interrupted, LocalspecError, UsageError
from localspec.core.events import (
    Finished,
    ModelInfo,
    Notice,
    Reading,
    Reply,
    ReplyFormat,
    Round,
    Speculation,
    Stats,
    Token,
)
from localspec.core.options import Options
from localspec.core.reply_request import Tokenized
from localspec.engine.messages import FailedEvent, ReplyEvents
from localspec.engine.reply import EngineReply, Inbox
from localspec.serve.app import build_app
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.service import Service
from localspec.serve.http.settings import ServeSettings

ON = Speculation("on")
WORDS = ("Hello", " from", " the", " fake", " engine", ".")


def model_info(name="fake"):
    return ModelInfo(
        f"/models/{name}.gguf", None, "cpu", 512, name, 1, 0, 1, ON, parallel=2, eos="</s>"
    )


class FakeEngine:
    """Says `words`, two a round; the attributes change what it does."""

    def __init__(self, options, on_death, world):
        self.options, self.on_death, self.world = options, on_death, world
        self.info = None
        self.alive = False
        self._cut = asyncio.Event()
        self._inboxes = {}
        self._tasks = set()
        self._next = 1
        self.interrupted = []
        self.adapters = {}

    @property
    def closed(self):
        return self._cut.is_set()

    async def open(self):
        await asyncio.sleep(0)
        if self.world.loading is not None:
            ends = [asyncio.create_task(one.wait()) for one in (self.world.loading, self._cut)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        if self._cut.is_set():
            raise Interrupted("loading was stopped")
        if self.world.load_error is not None:
            raise self.world.load_error
        self.alive = True
        self.info = model_info(self.options.model)
        return self.info

    async def close(self):
        self._cut.set()
        for inbox in self._inboxes.values():
            inbox.fail(EngineError("the engine was closed"))
        if self.world.closing is not None:
            await self.world.closing.wait()
        self.alive = False
        self.info = None

    def die(self, error=None):
        """End as the real client does when its process ends."""
        self.alive = False
        error = error or EngineError("the engine stopped (signal 6); its log is /home/me/x.log")
        for inbox in self._inboxes.values():
            inbox.fail(error)
        self.on_death(error)

    def reply(self, request):
        self.world.requests.append(request)
        number, inbox = self._next, Inbox()
        self._next += 1
        self._inboxes[number] = inbox
        known = {*self.adapters, *(str(one.path) for one in self.options.adapters)}
        if {use.path for use in request.adapters or ()} <= known:
            work = self._play(number, inbox, request)
        else:
            work = self._refuse(number, inbox)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return EngineReply(self, number, inbox)

    def interrupt_reply(self, number):
        self.interrupted.append(number)
        stats = Stats(4, 0, 0, 0, 0, 0, 0, (), {}, 0.01, 0.02, 0.0, 0.0, ON)
        finished = Finished(Reply("", (), (), "interrupt", stats, 7))
        self._inboxes[number].put(ReplyEvents(number, (finished,)))

    def forget_reply(self, number):
        inbox = self._inboxes.pop(number, None)
        if inbox is not None:
            inbox.leave()

    @property
    def running(self):
        return len(self._inboxes)

    async def adapter(self, name, path):
        for _ in range(self.world.adapter_turns):
            await asyncio.sleep(0)
            if not self.alive or self.closed:
                raise EngineError("the engine was closed")
        if self.world.adapter_error is not None:
            raise self.world.adapter_error
        if path is None:
            self.adapters.pop(name, None)
        else:
            self.adapters[name] = path

    async def tokenize(self, request, *, special=True, bos=True):
        if request.prompt_tokens is not None:
            tokens = request.prompt_tokens
        else:
            text = request.prompt or "".join(m.content for m in request.messages)
            tokens = tuple(range(len(text.split())))
        pieces = tuple(f"<{token}>" for token in tokens)
        return Tokenized(request.prompt or "".join(pieces), tuple(tokens), pieces)

    async def _refuse(self, number, inbox):
        inbox.put(FailedEvent.of(number, UsageError("the adapter is not loaded")))

    async def _play(self, number, inbox, request):
        world = self.world
        batches = self._batches(request)
        for i, batch in enumerate(batches):
            if world.error is not None and i == world.error_at:
                inbox.put(FailedEvent.of(number, world.error))
                return
            if world.hold is not None and i == world.hold_at:
                await world.hold.wait()
            await asyncio.sleep(0)
            inbox.put(ReplyEvents(number, tuple(batch)))

    def _batches(self, request):
        n = len(request.prompt_tokens or (1, 2, 3, 4))
        head = [self.world.form] if request.markers else []
        told = [Notice(self.world.told)] if self.world.told else []
        yield [*head, *told, Reading(n, n, self.world.cached)]
        if request.prompt_logprobs is not None:
            places = [None, *(self._place(i, f"p{i}", request) for i in range(1, n))]
            yield [PromptScored(0, tuple(range(n)), tuple(places))]
        words = self.world.words[: request.max_tokens]
        reason = "stop" if len(words) == len(self.world.words) else "length"
        said = []
        for at in range(0, len(words), 2):
            batch = []
            for i, word in enumerate(words[at : at + 2]):
                said.append(at + i)
                places = (
                    self._place(at + i, word, request) if request.logprobs is not None else None
                )
                origin = Origin.CORRECTED if i else Origin.ACCEPTED
                batch.append(Token(at + i, word, origin, None if i else "model", places))
            batch.append(Round(2, 2, 1, len(batch), 0.001, 0.002, 0.003, "model", n + at, ON))
            yield batch
        rounds = (len(words) + 1) // 2
        stats = Stats(
            n, self.world.cached, len(words), rounds, 2 * rounds, 2 * rounds, rounds,
            (1.0, 0.0), {}, 0.01, 0.02, 0.001, 0.002, ON,
        )  # fmt: skip
        origins = tuple(Origin.PLAIN for _ in said)
        text = "".join(words)
        yield [Finished(Reply(text, tuple(said), origins, reason, stats, request.seed or 7))]

    def _place(self, token, text, request):
        chosen = TokenLogprob(token, text, -0.5)
        n = request.logprobs or request.prompt_logprobs or 0
        return TokenLogprobs(
            chosen, tuple(TokenLogprob(50 + i, f"t{i}", -1.0 - i) for i in range(n))
        )


class World:
    """A server on fake engines."""

    def __init__(self, lora="", control_vector="", mmproj=None, **settings):
        self.engines = []
        self.requests = []
        self.words = WORDS
        self.form = ReplyFormat()
        self.cached = 0
        self.told = ""
        self.error: LocalspecError | None = None
        self.error_at = 0
        self.adapter_error: LocalspecError | None = None
        self.adapter_turns = 1
        self.load_error: LocalspecError | None = None
        self.loading: asyncio.Event | None = None
        self.closing: asyncio.Event | None = None
        self.hold: asyncio.Event | None = None
        self.hold_at = 2
        self.lines, self.notices, self.defects = [], [], []
        self.settings = ServeSettings(**settings)
        keep = self.settings.keep_loaded
        self.fits = True
        self.room_asked = []
        options = Options(model="fake", lora=lora, control_vector=control_vector, mmproj=mmproj)
        most = self.settings.models
        self.slots = EngineSlots(options, self, self, self.beside, most=most, keep_loaded=keep)
        self.service = Service(self.settings, self.slots, self)
        self.app = build_app(self.service)

    @property
    def slot(self):
        return self.slots.present

    async def beside(self, options):
        self.room_asked.append(options.model)
        await asyncio.sleep(0)
        return self.fits is True or (bool(self.fits) and options.model in self.fits)

    def engine(self, options, on_death):
        self.engines.append(FakeEngine(options, on_death, self))
        return self.engines[-1]

    def line(self, text):
        self.lines.append(text)

    def notice(self, text):
        self.notices.append(text)

    def defect(self, error):
        self.defects.append(error)
