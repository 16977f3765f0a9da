"""The record of one HTTP request for replies: counts and times for the log and the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from localspec.core.events import Finished, FinishReason, ReplyEvent, Round, Stats, Token
from localspec.serve.http.caller import Caller


@dataclass(slots=True)
class ReplyRecord:
    """One reply."""

    submitted: float
    """Clock when it was handed to the engine."""
    first_token: float | None = None
    last_token: float | None = None
    emitted: int = 0
    verified: int = 0
    accepted: int = 0
    context_used: int = 0
    """Tokens of prompt and reply so far."""
    finish_reason: FinishReason | None = None
    stats: Stats | None = None

    def note(self, event: ReplyEvent, now: float) -> None:
        """Take an event."""
        if isinstance(event, Token):
            self.emitted += 1
            self.last_token = now
            if self.first_token is None:
                self.first_token = now
        elif isinstance(event, Round):
            self.verified += event.verified
            self.accepted += event.accepted
            self.context_used = event.context_used
        elif isinstance(event, Finished):
            self.finish_reason, self.stats = event.reply.finish_reason, event.reply.stats


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, and the replies to it."""

    caller: Caller
    path: str
    model: str
    adapter: str = ""
    """The adapter that it calls as its model, if it does."""
    adapters: str = ""
    """The names of the adapters that it asks for, sorted, with a plus sign between them."""
    arrived: float = field(default_factory=time.monotonic)
    replies: list[ReplyRecord] = field(default_factory=list)
    error: str = ""
    """Why it failed."""

    @property
    def emitted(self) -> int:
        """Tokens of all its replies so far."""
        return sum(reply.emitted for reply in self.replies)
