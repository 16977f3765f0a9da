"""A pull in a process of its own, for interfaces: what it says, and the process itself.

``python -m localspec.models.pull.process [--force] NAME [DRAFT]`` writes one JSON object a line:
`PullWaiting` where the Hub asks to wait, `PullPlanned`, then `PullProgress` a few times a second,
then `PullDone` or `PullFailed`. It stops, and keeps what has arrived, when its stdin ends: the
interface closed it, or is gone.
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

from localspec.errors import Interrupted, LocalspecError
from localspec.models.hub.download_jobs import DownloadProgress
from localspec.models.hub.wait_notices import WaitNotices, wait_text

_FORCE = "--force"
"""Pulls even what is too big for this machine."""
_TOLD_EVERY = 0.25
"""Seconds."""
_GRACE = 1.5
"""Seconds from the wish to stop to the end, whatever hangs."""


@dataclass(frozen=True, slots=True)
class PullPlanned:
    """It is decided what to fetch, and it belongs together."""

    n_bytes: int
    missing: int
    """Bytes that are not here yet."""
    licence: str
    notices: tuple[str, ...]
    suggestion: str | None
    """Name of a pair whose draft would fit; None if there is none, or one is part of this."""


@dataclass(frozen=True, slots=True)
class PullWaiting:
    """Nothing is decided yet, because the Hub is to be asked again after a while."""

    why: str
    """With the seconds that are left; empty when it is asked again."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far it is."""

    done: int
    """Bytes that are here."""
    total: int
    fetched: int
    """Bytes that came over the line."""
    checking: bool
    """Whether all it does is to check what is here."""
    pause: str = ""
    """Why nothing comes, and for how long still; empty while something does."""


@dataclass(frozen=True, slots=True)
class PullDone:
    """All is here and whole."""

    fetched: int


@dataclass(frozen=True, slots=True)
class PullFailed:
    """It cannot go on."""

    line: str
    stopped: bool
    """Whether somebody wanted it so."""


PullEvent = PullWaiting | PullPlanned | PullProgress | PullDone | PullFailed
_KINDS: dict[str, type[PullEvent]] = {
    t.__name__: t for t in (PullWaiting, PullPlanned, PullProgress, PullDone, PullFailed)
}


def arguments(name: str, draft: str | None, *, force: bool) -> list[str]:
    """What the process is called with."""
    return [*([_FORCE] if force else []), name, *([draft] if draft is not None else [])]


def encode(said: PullEvent) -> bytes:
    """A line."""
    facts = {"said": type(said).__name__, **dataclasses.asdict(said)}
    return json.dumps(facts).encode() + b"\n"


def decode(line: bytes) -> PullEvent:
    """What a line says.

    Raises:
        LocalspecError: it is none of ours.
    """
    try:
        facts = json.loads(line)
        kind = _KINDS[facts.pop("said")]
        if kind is PullPlanned:
            facts["notices"] = tuple(facts["notices"])
        return kind(**facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        shown = line.decode("utf-8", "replace").strip()
        raise LocalspecError(f"the pull said something odd: {shown[:200]}") from None


class _Teller:
    """Says on stdout how far the files are, not too often."""

    def __init__(self) -> None:
        self._last = 0.0

    def say(self, said: PullEvent) -> None:
        sys.stdout.buffer.write(encode(said))
        sys.stdout.buffer.flush()

    def __call__(self, files: Sequence[DownloadProgress]) -> None:
        now = time.monotonic()
        if now - self._last < _TOLD_EVERY:
            return
        self._last = now
        busy = {file.state for file in files if file.state != "done"}
        self.say(
            PullProgress(
                sum(file.done for file in files),
                sum(file.size for file in files),
                sum(file.fetched for file in files),
                "checking" in busy and "fetching" not in busy,
                next((file.pause for file in files if file.pause), ""),
            )
        )


class _Told(WaitNotices):
    """WaitNotices that are told to whoever reads."""

    def __init__(self, teller: _Teller, stop: threading.Event) -> None:
        super().__init__(stop)
        self._teller = teller

    def show(self, why: str, left: float) -> None:
        """Say it."""
        self._teller.say(PullWaiting(wait_text(why, left)))

    def clear(self) -> None:
        """Say that it is over."""
        self._teller.say(PullWaiting(""))


def _pull(
    name: str, draft: str | None, teller: _Teller, stop: threading.Event, *, force: bool
) -> None:
    from localspec.models.hub.environment import is_offline
    from localspec.models.pull.plan import require_memory, require_room
    from localspec.models.pull.planner import prepare
    from localspec.models.pull.transfers import obtain_all

    if is_offline():
        raise LocalspecError(f"HF_HUB_OFFLINE is set, so {name} cannot be pulled")
    plan = prepare(name, draft, _Told(teller, stop))
    planned = PullPlanned(plan.n_bytes, plan.missing, plan.licence, plan.notices, plan.suggestion)
    teller.say(planned)
    if not force:
        require_memory(plan)
    require_room(plan)
    teller.say(PullDone(obtain_all(plan.jobs, teller, stop.is_set).fetched))


def _stop_at_end_of_stdin(stop: threading.Event, teller: _Teller) -> None:
    # Not by sys.stdin: the lock of its buffer, held here, would abort the interpreter at its end.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stop.set()
    time.sleep(_GRACE)
    # Still here: a question to the Hub hangs. Whatever has arrived is on disk.
    error = Interrupted("interrupted")
    teller.say(PullFailed(str(error), stopped=True))
    os._exit(error.exit_code)


def main(words: Sequence[str]) -> int:
    """Pull what the words name; the exit status."""
    name, *draft = (word for word in words if word != _FORCE)
    stop, teller = threading.Event(), _Teller()
    threading.Thread(target=_stop_at_end_of_stdin, args=(stop, teller), daemon=True).start()
    try:
        _pull(name, draft[0] if draft else None, teller, stop, force=_FORCE in words)
    except LocalspecError as error:
        teller.say(PullFailed(str(error), isinstance(error, Interrupted)))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
