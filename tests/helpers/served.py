"""A real server in a thread of the test: its own loop, its own engine process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from localspec.core.options import Options
from localspec.engine.port import EngineFactory
from localspec.serve.app import build_app
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.service import Service
from localspec.serve.http.settings import ServeSettings
from localspec.serve.server import bind, listener
from localspec.serve.serving import EngineProcesses, address_of, beside, text_models

DEMO = Options(model="demo", threads=1)
"""One thread: several of llama.cpp spin while they wait for each other."""


@dataclass
class Notes:
    """A reporter that remembers."""

    lines: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    defects: list[BaseException] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def defect(self, error: BaseException) -> None:
        self.defects.append(error)


@dataclass
class Served:
    """A server that listens."""

    url: str
    service: Service
    notes: Notes


@contextlib.contextmanager
def served(
    settings: ServeSettings | None = None,
    options: Options | None = None,
    factory: EngineFactory | None = None,
) -> Iterator[Served]:
    """A server on a free port; by default of the demo pair."""
    settings = settings or ServeSettings(port=0)
    began, stop = threading.Event(), threading.Event()
    found: list[Served] = []
    failed: list[BaseException] = []

    async def run() -> None:
        notes = Notes()
        first, made = options or DEMO, factory or EngineProcesses()
        slot = EngineSlots(first, made, notes, beside, most=settings.models)
        texts = text_models(settings, first, notes)
        service = Service(settings, slot, notes, texts)
        socket = bind(settings)
        server = listener(build_app(service), settings, grace=1.0)
        serving = asyncio.create_task(server.serve([socket]))
        try:
            await texts.start()
            await slot.load()
            await server.listening.wait()
            found.append(Served(address_of(settings, socket.getsockname()), service, notes))
            began.set()
            await asyncio.to_thread(stop.wait)
        finally:
            server.stop()
            await serving
            await texts.close()
            await slot.close()
            socket.close()

    def thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            failed.append(error)
        finally:
            began.set()

    running = threading.Thread(target=thread, name="served")
    running.start()
    try:
        began.wait()
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        stop.set()
        running.join()
    if failed:
        raise failed[0]
