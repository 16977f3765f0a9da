"""What the server counts of one HTTP request for replies."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from localspec.core.events import FinishReason, ReplyEvent, Stats, Token
from localspec.serve.caller import Caller


@dataclass(slots=True)
class ReplyRecord:
    """One reply."""

    submitted: float
    """Clock when it was handed to the engine."""
    first_token: float | None = None
    last_token: float | None = None
    emitted: int = 0
    finish_reason: FinishReason | None = None
    stats: Stats | None = None

    def note(self, event: ReplyEvent, now: float) -> None:
        """Count an event."""
        if isinstance(event, Token):
            self.emitted += 1
            self.last_token = now
            if self.first_token is None:
                self.first_token = now


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, and the replies to it."""

    caller: Caller
    path: str
    model: str
    arrived: float = field(default_factory=time.monotonic)
    replies: list[ReplyRecord] = field(default_factory=list)
    error: str = ""
    """Why it failed."""

    @property
    def emitted(self) -> int:
        """Tokens of all its replies so far."""
        return sum(reply.emitted for reply in self.replies)


__all__ = ["ReplyRecord", "RequestRecord"]
