"""A pull in a process of its own, and its progress."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass

from localspec.core.errors import LocalspecError
from localspec.core.processes import children
from localspec.core.units import duration, size
from localspec.models.hub import pull_process as pulling
from localspec.models.hub.download_jobs import Rate
from localspec.models.hub.pull_process import (
    PullDone,
    PullFailed,
    PullPlanned,
    PullProgress,
    PullWaiting,
)

_PATIENCE = 5.0
"""Seconds that the process has to end by itself."""
_MODULE = "localspec.models.hub.pull_process"
_LONGEST_LINE = 1 << 20
"""Bytes."""


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line; none at the end.

    Raises:
        LocalspecError: it is longer than any that the process writes.
    """
    try:
        return await stream.readline()
    except ValueError:  # asyncio's own
        raise LocalspecError(
            f"the pull process wrote a line of more than {_LONGEST_LINE >> 20} MB; pull it again"
        ) from None


@dataclass(frozen=True, slots=True)
class PullOutcome:
    """How a pull ended, in lines for the user."""

    lines: tuple[str, ...]
    error: bool


class PullProcess:
    """One pull at a time."""

    def __init__(self) -> None:
        self.name: str | None = None
        """Name of the model that is being pulled; None while none is."""
        self.on_change: Callable[[], None] = lambda: None
        self._process: Process | None = None
        self._planned: PullPlanned | None = None
        self._going: PullProgress | None = None
        self._waiting = ""
        self._rate = Rate()
        self._speed: float | None = None
        self._stopping = False

    @property
    def line(self) -> str:
        """The progress in one line; empty while nothing is pulled."""
        if self.name is None:
            return ""
        going = self._going
        if self._stopping:
            rest = "stopping …"
        elif going is None:
            asking = self._waiting or "asking the Hub …"
            rest = asking if self._planned is None else "beginning …"
        else:
            share = f"{going.done / max(1, going.total):.0%} of {size(going.total)}"
            rest = f"{share}  checking what is here" if going.checking else share
            if going.pause:
                rest += f"  {going.pause}"
            elif self._speed is not None and not going.checking:
                left = duration((going.total - going.done) / self._speed)
                rest += f"  {size(int(self._speed))}/s  {left} left"
        return f"pulling {self.name}  {rest}"

    def stop(self) -> bool:
        """End the running pull and keep what has arrived; whether there was one."""
        if self.name is None:
            return False
        self._stopping = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self.on_change()
        return True

    async def close(self) -> None:
        """Stop, and wait until the process is gone."""
        if self.stop():
            await self._end()

    async def run(self, name: str, draft: str | None = None, *, force: bool = False) -> PullOutcome:
        """Pull a model, with ``force`` even one that is too big; returns when it is over.

        Cancelled, it keeps what has arrived.
        """
        self.name, self._planned, self._going, self._process = name, None, None, None
        self._rate, self._speed, self._stopping, self._waiting = Rate(), None, False, ""
        self.on_change()
        try:
            return await self._run(name, pulling.arguments(name, draft, force=force))
        except LocalspecError as error:
            return PullOutcome((f"pulling {name}: {error}",), error=True)
        finally:
            await self._end()
            self.name = None
            self.on_change()

    async def _run(self, name: str, words: list[str]) -> PullOutcome:
        command, environment = children.command(_MODULE, *words)
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=environment,
                limit=_LONGEST_LINE,
                start_new_session=True,  # Ctrl+C in the terminal must not reach it
            )
        except OSError as error:
            raise LocalspecError(error.strerror or str(error)) from None
        assert process.stdout is not None
        if self._stopping:
            self.stop()
        while line := await _line(process.stdout):
            match pulling.decode(line):
                case PullWaiting(why):
                    self._waiting = why
                case PullPlanned() as planned:
                    self._planned = planned
                case PullProgress() as going:
                    self._going = going
                    self._speed = self._rate.now(going.fetched)
                case PullDone(fetched):
                    return self._pulled(name, fetched)
                case PullFailed(why, stopped):
                    return self._refused(name, why, stopped=stopped)
            self.on_change()
        status = await process.wait()
        raise LocalspecError(f"it ended unexpectedly (exit status {status}); pull it again")

    def _pulled(self, name: str, fetched: int) -> PullOutcome:
        planned = self._planned
        lines = [*(planned.notices if planned is not None else ())]
        how = f"{size(fetched)} fetched" if fetched else "it was already complete"
        lines.append(f"{name} is here ({how}); /model {name} answers with it")
        if planned is not None and planned.suggestion is not None:
            also = planned.suggestion
            lines.append(f"the draft of {also} fits it: /pull {name} {also} brings that as well")
        return PullOutcome(tuple(lines), error=False)

    def _refused(self, name: str, why: str, *, stopped: bool) -> PullOutcome:
        if not stopped:
            return PullOutcome((f"pulling {name}: {why}",), error=True)
        going = self._going
        at = f" at {going.done / max(1, going.total):.0%}" if going is not None else ""
        return PullOutcome((f"stopped{at}; /pull {name} continues from there",), error=False)

    async def _end(self) -> None:
        """Wait until the process has ended; kill it where it does not."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await children.ended(process, _PATIENCE)
