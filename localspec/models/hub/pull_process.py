"""A pull in a separate process, for interfaces: its messages, and the process itself.

``python -m localspec.models.hub.pull_process [--force] NAME [DRAFT]`` writes one JSON object a
line: `PullWaiting` where the Hub asks to wait, `PullPlanned`, then `PullProgress` a few times a
second, then `PullDone` or `PullFailed`. It stops, and keeps what has arrived, when its stdin ends:
the interface closed it, or is gone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.errors import Interrupted, LocalspecError
from localspec.models.hub.download_jobs import DownloadProgress, WaitNotices, wait_text

_FORCE = "--force"
"""Flag that pulls even models too big for this machine."""
_REPORT_EVERY = 0.25
"""Seconds between reports of the progress."""
_GRACE = 1.5
"""Seconds from the end of stdin to a forced exit."""


@dataclass(frozen=True, slots=True)
class PullPlanned:
    """The files to fetch are chosen and checked."""

    n_bytes: int
    missing: int
    """Bytes to fetch."""
    licence: str
    notices: tuple[str, ...]
    suggestion: str | None
    """Name of a pair whose draft would fit; None if the pull has a draft or none fits."""


@dataclass(frozen=True, slots=True)
class PullWaiting:
    """Planning waits because the Hub asks to wait."""

    why: str
    """The reason with the seconds left; empty when the wait is over."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """Progress of the downloads."""

    done: int
    """Bytes on disk."""
    total: int
    fetched: int
    """Bytes received."""
    checking: bool
    """Whether nothing is fetched at the moment, only hashed."""
    pause: str = ""
    """Why nothing arrives and for how much longer; empty while bytes arrive."""


@dataclass(frozen=True, slots=True)
class PullDone:
    """All files are complete."""

    fetched: int


@dataclass(frozen=True, slots=True)
class PullFailed:
    """The pull has failed or was stopped."""

    line: str
    stopped: bool
    """Whether the user stopped it."""


PullEvent = PullWaiting | PullPlanned | PullProgress | PullDone | PullFailed
_KINDS: dict[str, type[PullEvent]] = {
    t.__name__: t for t in (PullWaiting, PullPlanned, PullProgress, PullDone, PullFailed)
}


def arguments(name: str, draft: str | None, *, force: bool) -> list[str]:
    """Arguments of the process."""
    return [*([_FORCE] if force else []), name, *([draft] if draft is not None else [])]


def encode(event: PullEvent) -> bytes:
    """One line of the protocol."""
    facts = {"event": type(event).__name__, **dataclasses.asdict(event)}
    return json.dumps(facts).encode() + b"\n"


def decode(line: bytes) -> PullEvent:
    """The event of a line.

    Raises:
        LocalspecError: the line is not one of this protocol.
    """
    try:
        facts = json.loads(line)
        kind = _KINDS[facts.pop("event")]
        if kind is PullPlanned:
            facts["notices"] = tuple(facts["notices"])
        return kind(**facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        shown = line.decode("utf-8", "replace").strip()
        raise LocalspecError(f"the pull process wrote an unknown line: {shown[:200]}") from None


class _Reporter:
    """Writes events to stdout; progress at most every `_REPORT_EVERY` seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def write(self, event: PullEvent) -> None:
        sys.stdout.buffer.write(encode(event))
        sys.stdout.buffer.flush()

    def __call__(self, files: Sequence[DownloadProgress]) -> None:
        now = time.monotonic()
        if now - self._last < _REPORT_EVERY:
            return
        self._last = now
        busy = {file.state for file in files if file.state != "done"}
        self.write(
            PullProgress(
                sum(file.done for file in files),
                sum(file.size for file in files),
                sum(file.fetched for file in files),
                "checking" in busy and "fetching" not in busy,
                next((file.pause for file in files if file.pause), ""),
            )
        )


class _ReportedWaits(WaitNotices):
    """Reports waits to the interface."""

    def __init__(self, reporter: _Reporter, stop: threading.Event) -> None:
        super().__init__(stop)
        self._reporter = reporter

    def show(self, why: str, left: float) -> None:
        """Report a wait."""
        self._reporter.write(PullWaiting(wait_text(why, left)))

    def clear(self) -> None:
        """Report the end of a wait."""
        self._reporter.write(PullWaiting(""))


def _pull(
    name: str, draft: str | None, reporter: _Reporter, stop: threading.Event, *, force: bool
) -> None:
    from localspec.models.catalog.links import forbidding_variable
    from localspec.models.hub.pull_plan import require_space
    from localspec.models.hub.pull_planner import prepare
    from localspec.models.hub.transfers import obtain_all

    if (variable := forbidding_variable()) is not None:
        raise LocalspecError(f"{variable} is set, so {name} cannot be pulled")
    plan = prepare(name, draft, _ReportedWaits(reporter, stop))
    planned = PullPlanned(plan.n_bytes, plan.missing, plan.licence, plan.notices, plan.suggestion)
    reporter.write(planned)
    require_space(plan, force=force)
    reporter.write(PullDone(obtain_all(plan.jobs, reporter, stop.is_set).fetched))


def _stop_at_end_of_stdin(stop: threading.Event, reporter: _Reporter) -> None:
    # Not by sys.stdin: the lock of its buffer, held by this thread, aborts the interpreter at exit.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stop.set()
    time.sleep(_GRACE)
    # Still running: a request to the Hub hangs. What has arrived is on disk.
    error = Interrupted("interrupted")
    reporter.write(PullFailed(str(error), stopped=True))
    os._exit(error.exit_code)


def main(words: Sequence[str]) -> int:
    """Pull as the arguments say; returns the exit status."""
    name, *draft = (word for word in words if word != _FORCE)
    stop, reporter = threading.Event(), _Reporter()
    threading.Thread(target=_stop_at_end_of_stdin, args=(stop, reporter), daemon=True).start()
    try:
        _pull(name, draft[0] if draft else None, reporter, stop, force=_FORCE in words)
    except LocalspecError as error:
        reporter.write(PullFailed(str(error), isinstance(error, Interrupted)))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
