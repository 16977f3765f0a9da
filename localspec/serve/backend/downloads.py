"""Downloads and removals that requests ask for: models of the catalogue and of the Hub, no files of
this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from localspec.core.errors import (
    AccessError,
    DraftIncompatibleError,
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    OutOfMemoryError,
    UsageError,
)
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.files_in_use import FilesInUse
from localspec.serve.backend.model_names import ModelNames, hub_name, pairs
from localspec.serve.backend.reporter import Reporter
from localspec.serve.http.errors import RETRY_SECONDS, ApiError, without_folders
from localspec.serve.http.settings import ServeSettings

if TYPE_CHECKING:
    from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress

AT_ONCE = 2
"""Downloads of a server; each has several connections."""
_STATUS: tuple[tuple[type[LocalspecError] | tuple[type[LocalspecError], ...], int], ...] = (
    (ModelNotFoundError, HTTPStatus.NOT_FOUND),
    (AccessError, HTTPStatus.FORBIDDEN),
    (
        (UsageError, DraftIncompatibleError, ModelFileError, OutOfMemoryError),
        HTTPStatus.BAD_REQUEST,
    ),
)
"""Errors whose text is about the name that was asked for."""

Progress = dict[str, Any]
"""A message in Ollama's names: ``status``, and of a file ``digest``, ``total``, ``completed``."""


class Downloads:
    """All downloads of a server."""

    def __init__(
        self,
        settings: ServeSettings,
        slots: EngineSlots,
        embeddings: Embeddings,
        models: ModelNames,
        reporter: Reporter,
    ) -> None:
        self._settings, self._slots, self._models = settings, slots, models
        self._embeddings = embeddings
        self._reporter = reporter
        self._running = 0

    async def pull(self, name: str) -> AsyncIterator[Progress]:
        """Download a model and its draft; leaving early stops it, and the next one goes on there.

        Raises:
            ApiError: it is not allowed, there is no such model, or it fails.
        """
        wanted = await self._allowed(name)
        if self._running >= AT_ONCE:
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{AT_ONCE} downloads run already, which is the most",
                retry_after=RETRY_SECONDS,
            )
        self._running += 1
        pull = _Pull(wanted)
        working = asyncio.create_task(asyncio.to_thread(pull.run), name="pulling a model")
        working.add_done_callback(lambda _: pull.messages.put_nowait(None))
        try:
            while (message := await pull.messages.get()) is not None:
                yield message
            await working
            yield {"status": "success"}
        except LocalspecError as error:
            raise self._refused(error) from None
        finally:
            pull.stopped.set()
            try:
                with contextlib.suppress(LocalspecError, asyncio.CancelledError):
                    await asyncio.shield(working)
            finally:  # whatever else it ended with
                self._running -= 1
                self._models.look_again()

    async def delete(self, name: str) -> None:
        """Remove a model from the cache.

        Raises:
            ApiError: it is not allowed, or not there, or a file of it is in use.
        """
        if not self._settings.deletes:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "this server removes no models; start it with --allow-delete, or use "
                "`localspec rm`",
            )
        wanted = await self._on_disk(name)
        in_use = FilesInUse.of(self._slots, self._embeddings)
        try:
            await asyncio.to_thread(_remove, wanted, in_use)
        except LocalspecError as error:
            raise self._refused(error) from None
        self._models.look_again()

    async def _allowed(self, name: str) -> str:
        settings = self._settings
        if not (settings.pulls and settings.switch) or self._slots.first.offline:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "this server downloads no models (--no-pull, --no-switch or --offline); use "
                "`localspec pull` on its machine",
            )
        return await self._on_disk(name)

    async def _on_disk(self, name: str) -> str:
        """The name as the catalogue or the Hub has it.

        Raises:
            ApiError: it is neither's.
        """
        found = await asyncio.to_thread(_known, name)
        if found is None:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "there is no such model: name one of `localspec models`, or user/repo:QUANT of the "
                "Hugging Face Hub",
                code="model_not_found",
            )
        return found

    def _refused(self, error: LocalspecError) -> ApiError:
        for kinds, status in _STATUS:
            if isinstance(error, kinds):
                return ApiError(status, without_folders(error))
        self._reporter.notice(str(error))
        return ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the model could not be fetched or removed; the server's log has the reason",
            retry_after=RETRY_SECONDS,
        )


class _Pull:
    """One download, in a thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self.stopped = threading.Event()
        self.messages: asyncio.Queue[Progress | None] = asyncio.Queue()
        """What happens; None at the end."""

    def run(self) -> None:
        """Check and fetch everything.

        Raises:
            LocalspecError: it cannot be had, or was stopped.
        """
        from localspec.models.hub.download_jobs import WaitNotices
        from localspec.models.hub.pull_plan import require_space
        from localspec.models.hub.pull_planner import prepare
        from localspec.models.hub.transfers import obtain_all

        self._tell({"status": "pulling manifest"})
        plan = prepare(self._name, None, WaitNotices(self.stopped))
        for notice in plan.notices:
            self._tell({"status": without_folders(notice)})
        require_space(plan, force=False)
        told: dict[int, Progress] = {}

        def watch(files: Sequence[DownloadProgress]) -> None:
            for at, file in enumerate(files):
                message = _message(plan.jobs[at], file)
                if message != told.get(at):
                    told[at] = message
                    self._tell(message)

        obtain_all(plan.jobs, watch, self.stopped.is_set)
        self._tell({"status": "verifying sha256 digest"})

    def _tell(self, message: Progress | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.messages.put_nowait, message)


def _message(job: DownloadJob, file: DownloadProgress) -> Progress:
    status = file.pause or f"pulling {job.entry.etag[:12]}"
    digest = f"sha256:{job.entry.etag}"
    return {"status": status, "digest": digest, "total": file.size, "completed": file.done}


def _known(name: str) -> str | None:
    """The name as the catalogue or the Hub has it; None otherwise, as for files."""
    return name if name in pairs() else hub_name(name)


def _remove(name: str, in_use: FilesInUse) -> None:
    from localspec.models.hub.remove import plan_removal

    removal = plan_removal(name)
    if in_use.met_by(removal.files):
        raise ApiError(
            HTTPStatus.CONFLICT,
            "this model, or a file of it, is in use: it is loaded or being loaded, or this server "
            "was started with it",
        )
    try:
        removal.carry_out()
    except OSError as error:
        raise LocalspecError(f"cannot remove {error.filename}: {error.strerror}") from None
