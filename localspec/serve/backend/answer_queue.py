"""The answers of a server that are wanted now: how many run, how many wait, and whether one more
may.
"""

from __future__ import annotations

from http import HTTPStatus

from localspec.core.options import Options
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.records import ReplyRecord, RequestRecord
from localspec.serve.http.errors import RETRY_SECONDS, ApiError


class AnswerQueue:
    """Answers that have begun and not ended. Counts are of replies: an answer may have several."""

    def __init__(self, slots: EngineSlots, most: int) -> None:
        """``most`` replies may wait, of all models together."""
        self._slots, self._most = slots, most
        self._answers = set[Answering]()

    @property
    def parallel(self) -> int:
        """Replies that run at a time; one where no model is loaded."""
        return sum(info.parallel for info in self._slots.loaded.values()) or 1

    @property
    def size(self) -> int:
        """Replies that are wanted now, waiting ones included."""
        return sum(answering.size for answering in self._answers)

    @property
    def waiting(self) -> int:
        """Replies that wait: for each model those beyond what it answers at a time."""
        models = {one.model: one for one in (a.options for a in self._answers)}
        return sum(max(0, self._beyond(options)) for options in models.values())

    @property
    def cache_use(self) -> float:
        """Part of the KV caches that running replies use."""
        used = sum(reply.context_used for reply in self.replies)
        room = sum(info.context * info.parallel for info in self._slots.loaded.values())
        return used / room if room else 0.0

    @property
    def replies(self) -> list[ReplyRecord]:
        """The replies that have not ended."""
        all_of_them = (reply for a in self._answers for reply in a.record.replies)
        return [reply for reply in all_of_them if reply.finish_reason is None]

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests that are being answered, the oldest first."""
        return sorted((a.record for a in self._answers), key=lambda record: record.arrived)

    def enter(self, answering: Answering) -> None:
        """Add an answer that begins.

        Raises:
            ApiError: 429, too many wait.
        """
        waiting, most = self.waiting, self._most
        caller, taken = answering.record.caller, waiting
        if most and all(one.record.caller != caller for one in self._answers):
            taken = min(waiting, most)
            most += max(1, most // 4)  # places that who fills the queue cannot take
        # Where a sequence is free, a batch may be larger than the queue; for a model that is not
        # loaded only where nothing waits, and one reply whatever else does.
        free = self._beyond(answering.options) < 0
        loaded = self._slots.info_of(answering.options) is not None or not self._slots.loaded
        loaded = loaded or not waiting
        more = answering.size - free
        if not (free and loaded) and more and taken + more > most:
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{waiting} requests are waiting already; try again later",
                code="queue_full",
                retry_after=RETRY_SECONDS,
            )
        self._answers.add(answering)

    def leave(self, answering: Answering) -> bool:
        """Remove an answer that has ended. Returns whether it was here."""
        here = answering in self._answers
        self._answers.discard(answering)
        return here

    def cut(self) -> None:
        """End all answers with an error: the server stops."""
        for answering in [*self._answers]:
            answering.cut()

    def _beyond(self, options: Options) -> int:
        """How many replies of a model are wanted beyond those that it answers at a time; of one
        that is not loaded, one waits for that. Negative: as many more would run.
        """
        info = self._slots.info_of(options)
        wanted = sum(a.size for a in self._answers if a.options.model == options.model)
        return wanted - (1 if info is None else info.parallel)
