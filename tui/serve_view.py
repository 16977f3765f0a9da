"""The status view of ``localspec serve --tui``: running requests, speed over time, the log."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Sparkline, Static

from localspec.core.files import defects
from localspec.core.safe_text import safe_line
from localspec.core.units import size
from localspec.serve.backend.records import RequestRecord
from tui.render.text import plain

if TYPE_CHECKING:
    from localspec.serve.backend.service import Service
    from localspec.serve.serving import Front, Serving

_SECONDS = 0.5
"""Between two looks at the counters."""
_SPAN = 120
"""Looks that the line of speeds goes back."""
_LINES = 200
_ROWS = 8
"""Running requests that are shown."""


class ServeLog:
    """Keeps what the server tells, for the view."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES)
        self.address = ""
        self.service: Service | None = None

    def line(self, text: str) -> None:
        """One line about a request."""
        self.lines.append(text)

    def notice(self, text: str) -> None:
        """Something that the user should know."""
        self.lines.append(f"{time.strftime('%H:%M:%S')}  {text}")

    def defect(self, error: BaseException) -> None:
        """A fault of localspec."""
        self.notice(defects.report(error))

    def ready(self, service: Service, address: str) -> None:
        """The server takes requests."""
        self.service, self.address = service, address
        info = service.slots.info
        for text in info.notices if info is not None else ():
            self.notice(text)


class ServeView(App[None]):
    """Shows a server; q and Ctrl-C stop it."""

    CSS = """
    Static { height: auto; padding: 0 1; }
    #running { min-height: 3; }
    #log { height: 1fr; color: $text-muted; }
    Sparkline { height: 2; margin: 0 1; }
    """
    BINDINGS = [  # noqa: RUF012 - Textual's own type
        Binding("q", "leave", "Stop the server"),
        Binding("ctrl+c", "leave", "Stop the server", priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, log: ServeLog, stop: Callable[[], None]) -> None:
        super().__init__()
        self._told = log
        self._stop = stop
        self._speeds: deque[float] = deque([0.0] * _SPAN, maxlen=_SPAN)
        self._emitted, self._at = 0, time.monotonic()
        self._speed = 0.0

    def compose(self) -> ComposeResult:
        """The parts from top to bottom."""
        yield Static(id="head", markup=False)
        yield Static(id="figures", markup=False)
        yield Sparkline(list(self._speeds), id="speeds")
        yield Static(id="running", markup=False)
        yield Static(id="log", markup=False)

    def on_mount(self) -> None:
        """Look at the counters from now on."""
        self.look()
        self.set_interval(_SECONDS, self.look)

    def action_leave(self) -> None:
        """Stop the server, at once the second time; the view ends with it."""
        self._stop()

    def look(self) -> None:
        """Show the counters as they are."""
        self._show("log", "\n".join(self._log_lines()))
        service = self._told.service
        if service is None:
            self._show("head", "localspec serve  loading the model    q stops")
            return
        now, emitted = time.monotonic(), service.metrics.emitted
        if now > self._at:
            self._speed = (emitted - self._emitted) / (now - self._at)
            self._speeds.append(self._speed)
        self._emitted, self._at = emitted, now
        self._show("head", self._head(service))
        self._show("figures", self._figures(service))
        self.query_one("#speeds", Sparkline).data = list(self._speeds)
        self._show("running", "\n".join(_rows(service)))

    def _show(self, name: str, text: str) -> None:
        self.query_one(f"#{name}", Static).update(plain(text))

    def _log_lines(self) -> list[str]:
        room = max(1, self.query_one("#log", Static).size.height or 10)
        return [safe_line(line) for line in list(self._told.lines)[-room:]]

    def _head(self, service: Service) -> str:
        info = service.slots.info
        state = service.models.present
        if info is None:
            state += "  loading" if service.slots.loading else "  not loaded"
        else:
            state += f"  {info.backend}  {size(info.target_bytes)}  context {info.context}"
        return f"{safe_line(self._told.address)}  {safe_line(state)}    q stops"

    def _figures(self, service: Service) -> str:
        metrics = service.metrics
        running = service.queue.size - service.queue.waiting
        parts = [
            f"{self._speed:.0f} tok/s",
            f"{running}/{service.queue.parallel} running",
            f"{service.queue.waiting} waiting",
            f"KV {service.queue.cache_use:.0%}",
        ]
        if metrics.verified:
            parts.append(f"accepted {metrics.accepted / metrics.verified:.0%}")
        if metrics.rounds:
            parts.append(f"{metrics.emitted / metrics.rounds:.1f} tok/round")
        if metrics.prompt_tokens:
            parts.append(f"cache hits {metrics.cached_tokens / metrics.prompt_tokens:.0%}")
        parts.append(f"{metrics.requests} answered")
        if service.slots.restarts:
            parts.append(f"{service.slots.restarts} restarts")
        return " · ".join(parts)


def _rows(service: Service) -> list[str]:
    """The running requests, the oldest first."""
    found = service.queue.requests
    rows = [_row(record) for record in found[:_ROWS]]
    if len(found) > _ROWS:
        rows.append(f"and {len(found) - _ROWS} more")
    return rows or ["no requests"]


def _row(record: RequestRecord) -> str:
    verified = sum(reply.verified for reply in record.replies)
    accepted = sum(reply.accepted for reply in record.replies)
    rate = f"{accepted / verified:4.0%}" if verified else "    "
    seconds = time.monotonic() - record.arrived
    state = f"{record.emitted:6} tokens" if record.emitted else "      reading"
    return f"{record.caller.label:8} {record.path:24} {state}  {rate}  {seconds:6.1f} s"


def run(make: Callable[[Front], Serving]) -> int:
    """Serve with the view until the server ends; its exit code.

    Raises:
        LocalspecError: as `Serving.run`.
    """

    async def both() -> int:
        log = ServeLog()
        serving = make(log)
        view = ServeView(log, lambda: serving.stop(0))
        server = asyncio.create_task(serving.run())
        server.add_done_callback(lambda _: view.exit())
        try:
            await view.run_async()
        finally:
            if not server.done():
                serving.stop(0)
            await asyncio.wait({server})
        return server.result()

    return asyncio.run(both())
