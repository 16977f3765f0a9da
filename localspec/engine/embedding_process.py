"""An embedding model or a reranker in a process of its own: where native code aborts there, nothing
else ends, and the next request starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from localspec.core import embedded
from localspec.core.async_places import AsyncPlaces
from localspec.core.embedded import Embedded, EmbeddingInfo
from localspec.core.errors import EngineError, LocalspecError, QueueFullError
from localspec.core.files import paths
from localspec.core.processes import children
from localspec.engine.spawn import started

MODULE = "localspec.loading.embedding_child"
LOG = "embedding-process.log"
MOST_WAITING = 128
_MAX_LINE = 1 << 28
"""Bytes of a line."""
_CLOSED = "the embedding model was closed"
_END_S = 5.0
_PAUSE_S = 5.0
"""After an attempt to load that failed, until there is another: loading may read gigabytes."""
_PART_TEXTS, _PART_LENGTH = 64, 16_384
"""Most texts that are sent together, and most of their characters or tokens, each with the query,
unless one text has more."""


class EmbeddingProcess:
    """One model. Belongs to one asyncio loop."""

    def __init__(
        self,
        model: str,
        *,
        gpu_layers: int | None = None,
        threads: int | None = None,
        module: str = MODULE,
    ) -> None:
        """``model`` as in `Embedder`; ``module`` answers in its place in tests."""
        self.model = model
        self._module = module
        self._flags: list[str] = []
        for flag, value in (("--gpu-layers", gpu_layers), ("--threads", threads)):
            self._flags += [] if value is None else [flag, str(value)]
        self.info: EmbeddingInfo | None = None
        """None while no process runs."""
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._asking = Counter[str]()
        """How many requests of each caller are not answered."""
        self._turn = AsyncPlaces(1)
        self._asked: asyncio.Future[dict[str, Any]] | None = None
        """The answer that the process computes."""
        self._starting: asyncio.Task[EmbeddingInfo] | None = None
        """The running attempt to load."""
        self._failed: LocalspecError | None = None
        """Why the last attempt failed."""
        self._again_at = 0.0
        """When the next one may begin."""
        self._closed = False

    async def start(self) -> EmbeddingInfo:
        """Load the model, unless it is loaded. The attempt outlives the request that began it:
        clients that give up sooner than loading takes would never have it loaded.

        Raises:
            LocalspecError: it cannot be loaded, for the reason that loading it here would have; or
                it could not some seconds ago, and is not tried again yet.
        """
        if self._closed:
            raise EngineError(_CLOSED)
        if self.info is not None:
            return self.info
        if self._starting is None:
            if self._failed is not None and time.monotonic() < self._again_at:
                raise self._failed
            self._starting = asyncio.create_task(self._start(), name="loading a model of texts")
            self._starting.add_done_callback(self._attempted)
        await asyncio.shield(self._starting)
        return await self._loaded()

    async def embed(
        self, texts: Sequence[str | Sequence[int]], *, truncate: bool = False, caller: str = ""
    ) -> Embedded:
        """The vectors of texts, or of their tokens, of length 1; callers have the process in turn.

        Raises:
            UsageError, ContextError, DecodeError: as `Embedder.embed`.
            QueueFullError: too many requests wait.
            EngineError: the process ended.
        """
        return await self._ask(caller, {"texts": [*texts], "truncate": truncate})

    async def rank(
        self, query: str, documents: Sequence[str], *, truncate: bool = False, caller: str = ""
    ) -> Embedded:
        """The scores of documents for a query, as `Embedder.rank`, and raises as `embed`."""
        asked = {"query": query, "texts": [*documents], "truncate": truncate}
        return await self._ask(caller, asked)

    async def close(self) -> None:
        """End the process; requests that wait fail."""
        self._closed = True
        if self._starting is not None:
            if self._process is not None:
                _kill(self._process)
            await asyncio.wait({self._starting})
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            await children.ended(process, _END_S)
        if self._reader is not None:
            await self._reader

    def _attempted(self, task: asyncio.Task[EmbeddingInfo]) -> None:
        self._starting = None
        error = None if task.cancelled() else task.exception()  # raised by those who wait
        self._failed = error if isinstance(error, LocalspecError) else None
        self._again_at = time.monotonic() + _PAUSE_S

    async def _start(self) -> EmbeddingInfo:
        log = paths.make(paths.state_dir()) / LOG
        arguments = (self._module, self.model, *self._flags)
        what = f"the process for {self.model}"
        process = await started(arguments, log, what, mode="wb", limit=_MAX_LINE)
        self._process = process
        assert process.stdout is not None
        if self._closed:  # while it was started
            _kill(process)
        try:
            line = await process.stdout.readline()
        except BaseException:
            _kill(process)
            raise
        if not line:
            raise EngineError(_CLOSED if self._closed else await self._end(process))
        message = json.loads(line)
        if "info" not in message:
            await process.wait()
            raise children.read_failed(message)
        self.info = info = EmbeddingInfo(**message["info"])
        self._reader = asyncio.create_task(self._read(process))
        return info

    async def _loaded(self) -> EmbeddingInfo:
        """The facts of the process that was started, unless it ended in the instant in which it was
        ready.
        """
        if self.info is None:
            assert self._process is not None
            raise EngineError(_CLOSED if self._closed else await self._end(self._process))
        return self.info

    async def _end(self, process: Process) -> str:
        status = await process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"the process for {self.model} stopped ({how}); its log is {paths.state_dir() / LOG}"

    async def _read(self, process: Process) -> None:
        """Hand over answers until the process ends."""
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # a line that is too long
            while line := await process.stdout.readline():
                answer = json.loads(line)
                asked, self._asked = self._asked, None
                if asked is not None:
                    asked.set_result(answer)
        self.info = None
        asked, self._asked = self._asked, None
        await children.ended(process, _END_S)  # it may have closed its side only
        error = EngineError(await self._end(process))
        if asked is not None:
            asked.set_exception(error)

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return self._asking.total()

    async def _ask(self, caller: str, message: dict[str, Any]) -> Embedded:
        """The answer to a message, which is sent in parts, each once those before it are answered:
        what nobody waits for any more is not computed, and a short message waits for a part of a
        long one.
        """
        # A fourth more for callers that have none, as in a server's queue.
        most = MOST_WAITING if self._asking[caller] else MOST_WAITING * 5 // 4
        if self.waiting >= most:
            raise QueueFullError(f"{self.waiting} requests are waiting; try again later")
        self._asking[caller] += 1
        try:
            found, first = list[Embedded](), 0
            for texts in _parts(message["texts"], len(message.get("query", ""))):
                found.append(await self._part(caller, {**message, "texts": texts, "first": first}))
                first += len(texts)
        finally:
            self._asking[caller] -= 1
            self._asking = +self._asking
        return found[0] if len(found) == 1 else embedded.joined(found)

    async def _part(self, caller: str, message: dict[str, Any]) -> Embedded:
        await self._turn.enter(caller)
        try:
            await self.start()
            future = self._send(caller, message)
        except BaseException:
            self._turn.leave(caller)
            raise
        answer = await asyncio.shield(future)
        if "error" in answer:
            raise children.read_failed(answer)
        return embedded.unpacked(answer)

    def _send(self, caller: str, message: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Send a message, whose turn lasts until the process has answered or ended, even where
        nobody waits for the answer any more: the process cannot be stopped within a text.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        line = embedded.line(message)
        future = self._asked = asyncio.get_running_loop().create_future()

        def over(future: asyncio.Future[dict[str, Any]]) -> None:
            self._turn.leave(caller)
            future.exception()  # seen, whether or not somebody waits

        future.add_done_callback(over)
        self._process.stdin.write(line)
        return future


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _parts(
    texts: Sequence[str | Sequence[int]], query: int
) -> Iterator[Sequence[str | Sequence[int]]]:
    """The texts in their order, in parts; one part if there is none. ``query`` is the length of
    what is read with each of them.
    """
    begin, length = 0, 0
    for at, text in enumerate(texts):
        length += query + len(text)
        if at > begin and (at - begin == _PART_TEXTS or length > _PART_LENGTH):
            yield texts[begin:at]
            begin, length = at, query + len(text)
    yield texts[begin:]
