"""One run of the server: it binds, loads, tells where it is, serves, ends on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Protocol

from localspec.config import running_servers
from localspec.config.running_servers import RunningServer
from localspec.core.errors import EngineError, LocalspecError
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.core.processes import garbage, starts
from localspec.engine.client import EngineClient
from localspec.engine.embedding_process import EmbeddingProcess
from localspec.engine.port import EngineFactory, OwnEngine
from localspec.models.catalog.portable import portable
from localspec.serve.app import build_app
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.reporter import Reporter
from localspec.serve.backend.service import Service
from localspec.serve.http.settings import ServeSettings
from localspec.serve.server import Listener, SocketFile, bind, listener, with_descriptors

_AFTER_CUT = 1.0
"""Seconds in which the clients of replies that were cut hear of it, before connections end."""
_CODES: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes by signal."""
LOG_FOLDER = "serve"


class EngineProcesses:
    """Engines as child processes, which log in the state folder."""

    def engine(self, options: Options, on_death: Callable[[EngineError], None]) -> OwnEngine:
        """An engine for a model, not started."""
        return EngineClient(options, log_dir=paths.state_dir() / LOG_FOLDER, on_death=on_death)


async def beside(options: Options) -> bool:
    """Whether a model fits into the memory of this machine beside all that is loaded now. Whatever
    its devices have: a model that a device has no room for is computed by the processor.
    """
    return await asyncio.to_thread(_fits, options)


def _fits(options: Options) -> bool:
    from localspec.models.catalog.resolve import resolve
    from localspec.models.memory.fit import TOO_BIG, verdict
    from localspec.models.memory.machine import host_only

    try:
        pair = resolve(options.model, options.draft)
        sizes = [0 if file is None else file.n_bytes for file in (pair.target, pair.draft)]
    except (LocalspecError, OSError):  # loading it says what is wrong
        return False
    return verdict(host_only(), *sizes) != TOO_BIG


class Front(Reporter, Protocol):
    """The user's side of the server."""

    def ready(self, service: Service, address: str) -> None:
        """The model is loaded and the server takes requests."""
        ...


class Serving:
    """A server, from its start to its end."""

    def __init__(
        self,
        settings: ServeSettings,
        options: Options,
        front: Front,
        factory: EngineFactory | None = None,
    ) -> None:
        self._settings = settings
        self._front = front
        self._slot = EngineSlots(
            options,
            factory or EngineProcesses(),
            front,
            beside,
            most=settings.models,
            keep_loaded=settings.keep_loaded,
        )
        self._embeddings = text_models(settings, options, front)
        self.service = Service(settings, self._slot, front, self._embeddings)
        self._code = 0
        self._stopping = asyncio.Event()
        self._server: Listener | None = None

    async def run(self) -> int:
        """Serve until a signal; the exit code: 130 after Ctrl-C, 143 after SIGTERM.

        Raises:
            LocalspecError: the address cannot be used, or a model cannot be loaded or is none for
                its flag.
        """
        socket, unix = bind(self._settings), self._settings.unix
        file = None if unix is None else SocketFile.at(unix)
        try:
            address = address_of(self._settings, socket.getsockname())
            app, drain = build_app(self.service), self._settings.drain_seconds
            settings = self._with_descriptors()
            self._server = server = listener(app, settings, grace=drain + _AFTER_CUT)
            with self._signals():
                serving = asyncio.create_task(server.serve([socket]))
                try:
                    await server.listening.wait()
                    await self._serve(address)
                finally:
                    server.stop()
                    cutting = asyncio.get_running_loop().call_later(drain, self.service.queue.cut)
                    await serving
                    cutting.cancel()
                    await self._embeddings.close()
                    await self._slot.close()
        finally:
            socket.close()
            if file is not None:  # while replies ended, another server may have taken the path
                try:
                    file.remove()
                except LocalspecError as error:  # the server has served, and ends as it was to
                    self._front.notice(str(error))
        return self._code

    def stop(self, code: int) -> None:
        """End orderly; at once when it is called again."""
        self._code = code
        server = self._server
        if not self._stopping.is_set():
            self._stopping.set()
            running, drain = self.service.queue.size, self._settings.drain_seconds
            if running:
                self._front.notice(
                    f"stopping; {running} running replies have {drain:g} seconds to end "
                    "(Ctrl-C again: at once)"
                )
        elif server is not None:
            server.stop_now()

    def _with_descriptors(self) -> ServeSettings:
        """The settings with as many connections as there can be, which the user is told of."""
        asked = self._settings.limits
        limits = with_descriptors(asked)
        if limits.connections < asked.connections:
            self._front.notice(
                f"at most {limits.connections} connections at a time: the system allows too few "
                "open files for more (ulimit -n)"
            )
        return replace(self._settings, limits=limits)

    async def _load(self) -> None:
        """Load the models of texts, then the chat model, whose plan counts the memory that is left.

        Raises:
            LocalspecError: one cannot be loaded.
        """
        await self._embeddings.start()
        await self._slot.load(reports=False)

    async def _serve(self, address: str) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            if self._settings.load_first:
                loading = asyncio.create_task(self._load())
                await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not loading.done():
                    await self._embeddings.close()
                    await self._slot.close()
                    loading.cancel()
                    with contextlib.suppress(BaseException):
                        await loading
                    return
                loading.result()
            else:
                await self._embeddings.check()
            garbage.collect_new()
            self._front.ready(self.service, address)
            described, announced = self._described(address), None
            try:
                while not stopping.done():
                    announced = running_servers.announce(described) or announced
                    await asyncio.wait({stopping}, timeout=running_servers.REFRESH_S)
            finally:
                running_servers.withdraw(announced)
        finally:
            stopping.cancel()

    def _described(self, address: str) -> RunningServer:
        """The server, for chats of this user that look for one."""
        options, info = self._slot.options, self._slot.info
        return RunningServer(
            address=address,
            model=portable(options.model) or options.model,
            draft=portable(options.draft),
            target=info.target if info is not None else "",
            key=bool(self._settings.keys),
            pid=os.getpid(),
            began=starts.began(os.getpid()),
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM in the loop."""
        loop = asyncio.get_running_loop()

        def handle(number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.stop, _CODES[number])

        before = {number: signal.signal(number, handle) for number in _CODES}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def text_models(settings: ServeSettings, options: Options, reporter: Reporter) -> Embeddings:
    """The models of texts that the settings name, not started; notices go to the reporter."""

    def process(name: str | None) -> EmbeddingProcess | None:
        if name is None:
            return None
        return EmbeddingProcess(name, gpu_layers=options.gpu_layers, threads=options.threads)

    embedding, reranker = process(settings.embedding), process(settings.reranker)
    return Embeddings(embedding, reranker, settings.aliases, reporter)


def address_of(settings: ServeSettings, name: object) -> str:
    """The address that clients use, from a socket's name."""
    if settings.unix is not None:
        return f"unix:{settings.unix}"
    host, port = settings.host, settings.port
    if isinstance(name, tuple) and len(name) >= 2:
        port = int(name[1])
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - shown
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://{host}:{port}{settings.root_path}"


def banner(service: Service, address: str, *, quote: Callable[[str], str]) -> list[str]:
    """The lines that say where the server is, and how to ask it."""
    name, info = service.models.present, service.slots.info
    key = bool(service.settings.keys)
    about = name if info is None else f"{name}, {info.parallel} at a time"
    lines = [f"localspec serves {about} at {address}"]
    socket = ""
    base = address
    if service.settings.unix is not None:
        socket, base = f" --unix-socket {quote(str(service.settings.unix))}", "http://localhost"
    header = ' -H "Authorization: Bearer $LOCALSPEC_API_KEY"' if key else ""
    body = f'{{"model":"{name}","messages":[{{"role":"user","content":"Hello"}}]}}'
    keys = "your key" if key else "none"
    lines += ["", f"  curl{socket} {base}/v1/chat/completions{header} -d {quote(body)}", ""]
    if not socket:
        lines += [
            f"  OpenAI clients: base_url={base}/v1  api_key={keys}  model={name}",
            f"  variables:      OPENAI_BASE_URL={base}/v1  OPENAI_API_KEY={keys}",
            "",
        ]
    lines.append("Ctrl-C stops the server.")
    return lines
