"""Pulls of models while the chat goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.screen import Screen
from textual.worker import Worker

from tui.controllers.feedback import Feedback
from tui.render.text import plain
from tui.widgets.bars import Bar

if TYPE_CHECKING:
    from tui.session.pull_process import PullProcess


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull that the user asked for."""

    name: str
    draft: str | None
    force: bool
    """Whether to pull a model that is too big for this machine."""


class PullController:
    """Runs one pull after the other and shows its progress in a bar."""

    def __init__(self, screen: Screen[Any], feedback: Feedback, bar: Bar) -> None:
        self._screen, self._feedback, self._bar = screen, feedback, bar
        self.process: PullProcess | None = None
        """Made for the first pull."""
        self._queue: deque[PullRequest] = deque()
        self._worker: Worker[None] | None = None

    @property
    def running(self) -> bool:
        """Whether something is being pulled."""
        return self.process is not None and self.process.name is not None

    def pull(self, names: str, *, force: bool = False) -> None:
        """Pull a model, and its draft model where the second word names one."""
        from tui.session.pull_process import PullProcess  # not needed for the first frame

        if self.process is None:
            self.process = PullProcess()
            self.process.on_change = self._show
        name, _, draft = names.partition(" ")
        request = PullRequest(name, draft.strip() or None, force)
        if name == self.process.name or request in self._queue:
            self._feedback.hint(f"{name} is being downloaded already; Esc stops it")
            return
        self._queue.append(request)
        if self._worker is None or self._worker.is_finished:
            self._worker = self._screen.run_worker(self._pull_all(self.process), group="pull")
        else:
            self._feedback.hint(f"{name} is downloaded next, after {self.process.name}")
            self._show()

    async def _pull_all(self, process: PullProcess) -> None:
        """Pull one after the other: two at once would share the bandwidth."""
        while self._queue:
            request = self._queue.popleft()
            outcome = await process.run(request.name, request.draft, force=request.force)
            await self._feedback.note(*outcome.lines, error=outcome.error)

    def stop(self) -> None:
        """End the running pull and keep what has arrived; the next in the queue begins."""
        if self.process is not None:
            self.process.stop()

    async def close(self) -> None:
        """End all pulls; the next pull of the same model continues where this one stopped."""
        if self.process is not None:
            self._queue.clear()
            await self.process.close()

    def _show(self) -> None:
        if self.process is None or not self._screen.is_attached:
            return
        line = self.process.line
        if bool(line) is not self._bar.display:
            self._bar.display = bool(line)
            self._screen.refresh_bindings()
        first = f"1 of {1 + len(self._queue)}: " if self._queue else ""
        line = f"{first}{line}  (Esc stops)" if line else ""
        self._bar.show(Content(plain(line)))
