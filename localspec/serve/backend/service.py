"""Shared by all routes: the engine, the settings, the counters and the log."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import time
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from localspec.core.adapter_list import AdapterUse
from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import (
    DefectError,
    EngineError,
    Interrupted,
    LocalspecError,
    MediaError,
)
from localspec.core.events import Examination
from localspec.core.options import Options
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.serve.backend.adapters import ServedAdapters
from localspec.serve.backend.answer_queue import AnswerQueue
from localspec.serve.backend.answering import Answering, require_room
from localspec.serve.backend.downloads import Downloads
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.engine_times import KeepAlive
from localspec.serve.backend.media_places import MediaPlaces
from localspec.serve.backend.metrics import Metrics
from localspec.serve.backend.model_names import ModelNames
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.records import RequestRecord, Tracing, log_line
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.wanted import Wanted
from localspec.serve.http.body_budget import Caller
from localspec.serve.http.errors import (
    ApiError,
    bad_request,
    of_engine,
    stopping,
    too_long,
)
from localspec.serve.http.json_body import shown
from localspec.serve.http.settings import ServeSettings

_T = TypeVar("_T")
_EXAMINED_AT_ONCE = 2
"""Places of earlier replies that are looked at together."""
_SPLIT_AT_ONCE = 4
"""Texts that are split into tokens together."""
_TOKENIZED = 1 << 15
"""Tokens up to which a text is tokenized whatever the context, or while that is not known."""
_MOST_NAMES = 256
"""Unknown fields that were logged, at most: each is logged once."""
_MOST_SHOWN = 8
"""Unknown fields that one line names."""


class Service:
    """One server. All methods belong to one asyncio loop."""

    def __init__(
        self,
        settings: ServeSettings,
        slots: EngineSlots,
        reporter: Reporter,
        embeddings: Embeddings | None = None,
    ) -> None:
        self.settings = settings
        self.slots = slots
        self.reporter = reporter
        self.embeddings = embeddings or Embeddings()
        self._media = MediaPlaces(settings.media)
        self.adapters = ServedAdapters(slots, reporter, settings.lora_folders)
        self.models = ModelNames(settings, slots, self.adapters)
        self.embeddings.others = self.models.known
        self.downloads = Downloads(settings, slots, self.embeddings, self.models, reporter)
        self.metrics = Metrics()
        self.tracing = Tracing()
        self.started = time.time()
        self.queue = AnswerQueue(slots, settings.limits.waiting)
        self._told: dict[tuple[str, str], None] = {}
        self._asked: set[asyncio.Task[Any]] = set()
        """Examinations, texts that are split, and adapters that are loaded or unloaded."""
        self._examining = AsyncPlaces(_EXAMINED_AT_ONCE, spare=1)
        self.splitting = AsyncPlaces(_SPLIT_AT_ONCE, spare=1)

    async def answer(
        self,
        caller: Caller,
        path: str,
        model: str | None,
        requests: Sequence[ReplyRequest],
        *,
        strict: bool = False,
        keep: KeepAlive | None = None,
    ) -> Answering:
        """The replies to requests of one caller, not begun; ``model`` is the name in the request.
        With ``strict`` the engine must compute in strict mode; ``keep`` says how long the model
        stays afterwards.

        Raises:
            ApiError: there is no such model, too many requests wait, or they are too large.
        """
        wanted = await self._wanted(model, requests[0].adapters)
        info = self.slots.info_of(wanted.options)
        context = _TOKENIZED if info is None else info.context
        owned: list[ReplyRequest] = []
        size = in_all = 0
        for before, request in zip((None, *requests), requests, strict=False):
            if before is None or not request.reads_as(before):
                require_room(request, context)
                owned.append(await self._owned(caller, request))
                size = owned[-1].size
            elif request is before:
                owned.append(owned[-1])
            else:  # a choice, which differs in these alone; all else was checked and fetched
                scores = request.prompt_logprobs
                one = dataclasses.replace(owned[-1], seed=request.seed, prompt_logprobs=scores)
                owned.append(one)
                await asyncio.sleep(0)  # all its fields are looked at again
            in_all += size
        if caller.body is not None:  # each choice is a copy on its way to the engine
            caller.body.grow(in_all)
        if strict and not self.slots.first.strict:
            raise bad_request(
                "this server does not compute in strict mode; start it with --strict",
                "localspec.strict",
            )
        record = RequestRecord(caller, path, adapter=wanted.called, adapters=wanted.names)
        return Answering(self, record, wanted, owned, keep)

    async def _wanted(
        self, model: str | None, adapters: Sequence[AdapterUse] | None = None
    ) -> Wanted:
        """What a request wants that names a model, and asks for ``adapters`` by number.

        Raises:
            ApiError: there is no such model or adapter, or the model writes no text.
        """
        if model is not None and self.models.held(model) is None:
            self.embeddings.require_other(model)
        return self.adapters.wanted(await self.models.wanted(model), adapters)

    async def name_of(self, options: Options) -> str:
        """The name that requests find a model by; "" where another one has it."""
        name = public_name(options.model)
        found = await self.models.model(name)
        return name if found is not None and found.model == options.model else ""

    async def require_new(self, name: str) -> None:
        """Refuse the name of a model for an adapter.

        Raises:
            ApiError: 400, it is one.
        """
        if self.embeddings.task_of(name) is not None or await self.models.model(name) is not None:
            raise bad_request(f"{name[:80]!r} is the name of a model here", "lora_name")

    async def keep(self, model: str | None, keep: KeepAlive) -> None:
        """How long a model stays without a request, if it is loaded.

        Raises:
            ApiError: there is no such model.
        """
        self.slots.keep((await self._wanted(model)).options, keep)

    async def load(self, model: str | None, keep: KeepAlive) -> None:
        """Load a model, so that the next request for it need not wait.

        Raises:
            ApiError: there is no such model, or it cannot be loaded.
        """
        wanted = await self._wanted(model)
        try:
            async with self.slots.use(wanted.options, keep):
                pass
        except LocalspecError as error:
            raise self.refused(error) from None

    async def tokenize(
        self,
        caller: Caller,
        model: str | None,
        request: ReplyRequest,
        *,
        special: bool = True,
        bos: bool = True,
    ) -> Tokenized:
        """Text and tokens of a request's prompt, from the engine.

        Raises:
            ApiError: there is no such model, or the engine refuses.
        """
        options = (await self._wanted(model)).options
        info = self.slots.info_of(options)
        most = max(_TOKENIZED, info.context if info else 0)
        require_room(request, most, "what is split into tokens")
        owned = await self._owned(caller, request)

        async def split() -> Tokenized:
            # In this order: replies that use an engine wait for such a place too.
            async with self.slots.use(options) as engine, self.splitting.of(caller.owner):
                return await engine.tokenize(owned, special=special, bos=bos)

        return await self.placed(split())

    async def examine(
        self,
        caller: Caller,
        model: str | None,
        request: ReplyRequest,
        tokens: Sequence[int],
        rival: int | None,
    ) -> Examination:
        """Probabilities at the place of the last of ``tokens``, from the engine.

        Raises:
            ApiError: there is no such model or adapter, the engine refuses, or they are too many.
        """
        wanted = await self._wanted(model, request.adapters)
        info = self.slots.info_of(wanted.options)
        context = _TOKENIZED if info is None else info.context
        require_room(request, context)
        if info is not None and len(tokens) > context:
            raise too_long(f"{len(tokens)} tokens exceed the context size: at most {context}")
        owned = await self._owned(caller, request)

        async def examined() -> Examination:
            # In this order, as in `tokenize`: its adapters stay while it waits for a place.
            async with self.adapters.use(wanted) as used, self._examining.of(caller.owner):
                adapted = dataclasses.replace(owned, adapters=used.adapters)
                return await used.engine.examine(adapted, tokens, rival)

        return await self.placed(examined())

    async def placed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What the engine answers. Work whose client has left keeps its place until the engine has
        ended it: a row of such clients cannot pile it up.

        Raises:
            ApiError: the engine refuses.
        """
        task = self._kept(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise
        except LocalspecError as error:
            raise self.refused(error) from None

    async def alone(
        self, caller: Caller, places: AsyncPlaces, work: Callable[[], Coroutine[Any, Any, _T]]
    ) -> _T:
        """What the engine answers to work that is done to its end once it has one of the
        ``places``, whoever leaves; one whose client leaves before that is not begun.

        Raises:
            ApiError: the engine refuses.
        """
        await places.enter(caller.owner)
        task = self._kept(work())
        task.add_done_callback(lambda _: places.leave(caller.owner))
        try:
            return await asyncio.shield(task)
        except LocalspecError as error:
            raise self.refused(error) from None

    def _kept(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, work: asyncio.Task[Any]) -> None:
        self._asked.discard(work)
        if not work.cancelled():
            work.exception()  # seen: its client may have left

    async def _owned(self, caller: Caller, request: ReplyRequest) -> ReplyRequest:
        """The request as its caller's, with the pictures that it names by address.

        Raises:
            ApiError: a picture cannot be had.
        """
        body, size = caller.body, request.size
        try:
            whole = await self._media.fetched(
                caller.owner,
                request,
                lambda more: None if body is None else body.grow(size + more),
            )
        except MediaError as error:
            raise bad_request(str(error), "image_url") from None
        owner = _owner(caller, whole)
        return whole if owner == whole.owner else dataclasses.replace(whole, owner=owner)

    def entered(self, answering: Answering) -> None:
        """Count an answer that begins.

        Raises:
            ApiError: 429, too many wait.
        """
        try:
            self.queue.enter(answering)
        except ApiError:
            self.metrics.rejected += 1
            raise

    def left(self, answering: Answering) -> None:
        """Count an answer that has ended, and tell of it."""
        if self.queue.leave(answering):
            self.metrics.finished(answering.record)
            self.tracing.ended(answering.record)
            self.reporter.line(log_line(answering.record))

    def refused(self, error: LocalspecError) -> ApiError:
        """The answer to a request that the engine refused; the log has the whole reason."""
        if self.slots.closed and isinstance(error, EngineError | Interrupted):
            return stopping()
        answer = of_engine(error)
        # By its slot, when the engine died.
        told = isinstance(error, EngineError) and not isinstance(error, DefectError)
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not told:
            self.reporter.notice(str(error))
        return answer

    def tell_unknown(self, path: str, names: Sequence[str]) -> None:
        """Tell of fields that have no effect, each once: in one line for a request, so that none
        can fill the log. Of very many, the first ones are looked at.
        """
        seen = dict.fromkeys(map(shown, names[:_MOST_NAMES]))
        fresh = [name for name in seen if (path, name) not in self._told]
        if not fresh:
            return
        told = fresh[:_MOST_SHOWN]
        more = len(fresh) - len(told) + len(names[_MOST_NAMES:])
        for name in fresh:
            self._told[path, name] = None
        while len(self._told) > _MOST_NAMES:  # the oldest is told of again, when it comes
            del self._told[next(iter(self._told))]
        which = ", ".join(map(repr, told)) + (f" and {more} more" if more > 0 else "")
        fields = "the field {} in {} has" if len(fresh) == 1 else "the fields {} in {} have"
        self.reporter.notice(f"{fields.format(which, path)} no effect")


def _owner(caller: Caller, request: ReplyRequest) -> str:
    """The caller, and within it what the request itself asks to be kept apart (``cache_salt``): by
    a digest, since caches that count what they keep have owners as keys.
    """
    if not request.owner:
        return caller.owner
    salt = request.owner.encode("utf-8", "surrogatepass")
    return f"{caller.owner}/{hashlib.sha256(salt).hexdigest()}"
