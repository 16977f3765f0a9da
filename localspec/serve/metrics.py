"""Counters of the server."""

from __future__ import annotations

import time
from collections import Counter, deque

from localspec.serve.caller import Caller
from localspec.serve.records import RequestRecord

_RECENT = 512
"""Finished requests that the status view and quantiles look back on."""


class Metrics:
    """Sums over all requests since the start."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.rejected = 0
        """Requests that were answered with 429."""
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.emitted = 0
        self.rounds = 0
        self.drafts = 0
        """Rounds in which something was drafted."""
        self.drafted = 0
        self.verified = 0
        self.accepted = 0
        self.prompt_seconds = 0.0
        self.decode_seconds = 0.0
        self.finish_reasons: Counter[str] = Counter()
        self.recent: deque[RequestRecord] = deque(maxlen=_RECENT)

    def record(self, caller: Caller, path: str) -> RequestRecord:
        """The record of a request that arrives."""
        return RequestRecord(caller, path, "")

    def finished(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        self.requests += 1
        self.recent.append(record)
        for reply in record.replies:
            self.finish_reasons[str(reply.finish_reason or "abort")] += 1
            stats = reply.stats
            if stats is None:
                self.emitted += reply.emitted
                continue
            self.prompt_tokens += stats.prompt_tokens
            self.cached_tokens += stats.cached_tokens
            self.emitted += stats.emitted
            self.rounds += stats.rounds
            self.drafted += stats.drafted
            self.verified += stats.verified
            self.accepted += stats.accepted
            self.prompt_seconds += stats.prompt_seconds
            self.decode_seconds += stats.decode_seconds


__all__ = ["Metrics"]
