"""A request on its way to a reply: submitted, running, over."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localspec.core.adapter_list import Blend
from localspec.core.errors import NotNumbersError
from localspec.core.events import Finished, Notice, Reply, ReplyEvent, Speculation, Stats
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest, TakesEvents
from localspec.generation.prepared import new_seed
from localspec.policy import Policy

log = logging.getLogger("localspec.replies")


class _State(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    OVER = enum.auto()


class Job:
    """A submitted request. One that is interrupted while it waits is over at once."""

    def __init__(
        self,
        request: ReplyRequest,
        blend: Blend,
        policy: Policy | None,
        interrupt: Interrupt,
        wake: Callable[[], None],
        mailbox: TakesEvents,
    ) -> None:
        """``blend`` is what the request's adapters are from now on. ``policy`` is the request's
        own; None: the one that all share. ``wake`` is called when it must end, in any thread, and
        by the collection of garbage.
        """
        self.request = request
        self.blend = blend
        self.policy = policy
        self.interrupt = interrupt
        self.mailbox = mailbox
        self._wake = wake
        self._lock = threading.RLock()
        self._state = _State.WAITING

    @property
    def waiting(self) -> bool:
        """Whether it neither runs nor is over."""
        return self._state is _State.WAITING

    @property
    def over(self) -> bool:
        """Whether its last event was handed over."""
        return self._state is _State.OVER

    def begin(self) -> bool:
        """It runs from now on; False where it is over already."""
        with self._lock:
            if self._state is _State.OVER:
                return False
            self._state = _State.RUNNING
            return True

    def interrupted(self) -> None:
        """See `localspec.core.interrupt.Watcher`."""
        with self._lock:
            if self._state is _State.WAITING:
                self.end([Finished(_unbegun(self.request.seed))])
        self._wake()

    def tell(self, text: str) -> None:
        """Hand over a notice while it waits."""
        with self._lock:
            if self._state is _State.WAITING:
                self.mailbox.put([Notice(text)])

    def end(self, events: Sequence[ReplyEvent]) -> None:
        """Hand over the last events; an error, where whoever takes them refuses them."""
        self._state = _State.OVER
        try:
            self.mailbox.put(events)
        except Exception as error:  # noqa: BLE001 - told to the same
            self._tell(error)

    def fail(self, error: BaseException) -> None:
        """End with an error; nothing happens where it is over already."""
        if isinstance(error, NotNumbersError):
            error = not_numbers(error, self.request, self.blend)
        with self._lock:
            if self._state is not _State.OVER:
                self._state = _State.OVER
                self._tell(error)

    def _tell(self, error: BaseException) -> None:
        """Hand over an error. Where that fails, nobody reads this reply any more: others go on."""
        try:
            self.mailbox.fail(error)
        except Exception:
            log.exception("nobody takes the error of a reply, %s", type(error).__name__)


def not_numbers(error: NotNumbersError, request: ReplyRequest, blend: Blend) -> NotNumbersError:
    """What is told of logits that are not numbers: they may be the fault of an adapter, whose file
    is another one than the model's.
    """
    if not blend.parts:
        return error
    names = [Path(use.path).name for use in request.adapters or () if use.scale]
    which = ", ".join(names) or "that it was loaded with"
    return NotNumbersError(
        f"with the adapters {which}, the model returned logits that are not numbers; where it does "
        "not without them, one of their files is damaged: make or fetch it again"
    )


@contextmanager
def naming_adapters(request: ReplyRequest, blend: Blend) -> Iterator[None]:
    """Raises `not_numbers` in place of a NotNumbersError."""
    try:
        yield
    except NotNumbersError as error:
        raise not_numbers(error, request, blend) from None


def _unbegun(seed: int | None) -> Reply:
    """The reply to a request that was interrupted before anything of it was read."""
    return Reply(
        text="",
        tokens=(),
        origins=(),
        finish_reason="interrupt",
        stats=Stats(
            prompt_tokens=0,
            cached_tokens=0,
            emitted=0,
            rounds=0,
            drafted=0,
            verified=0,
            accepted=0,
            per_position=(),
            by_drafter={},
            prompt_seconds=0.0,
            decode_seconds=0.0,
            draft_seconds=0.0,
            verify_seconds=0.0,
            speculation=Speculation("off", "interrupted before it began"),
        ),
        seed=new_seed() if seed is None else seed,
    )
