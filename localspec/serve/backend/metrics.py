"""Counters of the server, over all requests since its start."""

from __future__ import annotations

import bisect
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.core.embedded import Embedded
from localspec.core.events import ReplyEvent, Round, Token
from localspec.serve.backend.records import ReplyRecord, RequestRecord

_RECENT = 256
"""Finished requests that the status view shows."""
_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)
_MOST_ADAPTERS = 64
"""Adapters that are counted one by one: those that requests used last."""
MOST_POSITIONS = 16
"""Places of a draft that are counted one by one."""


@dataclass(slots=True)
class Histogram:
    """Counts of values up to each of several bounds, as Prometheus has them."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    """One more than bounds: the last one is of all larger values."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class TextCounts:
    """Requests for vectors, or for the order of documents."""

    requests: int = 0
    failed: int = 0
    texts: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def note(self, found: Embedded, seconds: float) -> None:
        """Count one that was answered."""
        self.requests += 1
        self.texts += len(found.counts)
        self.tokens += found.tokens
        self.seconds += seconds

    def fail(self) -> None:
        """Count one that was not."""
        self.requests += 1
        self.failed += 1


class Metrics:
    """Tokens and rounds are counted as they come, the rest when a reply ends."""

    def __init__(self) -> None:
        self.requests = 0
        self.rejected = 0
        """Requests that were answered with 429."""
        self.failed = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.emitted = 0
        self.rounds = 0
        self.drafts = 0
        """Rounds in which something was drafted."""
        self.drafted = 0
        self.verified = 0
        self.accepted = 0
        self.accepted_at = [0] * MOST_POSITIONS
        """Accepted tokens by position in the draft."""
        self.adapted: dict[str, tuple[int, int]] = {}
        """Drafted tokens that were judged and accepted, by each adapter that requests asked for:
        acceptance is another for each. Combinations of them are as many as clients like."""
        self.of_texts = {"embedding": TextCounts(), "rerank": TextCounts()}
        """By task."""
        self.predicted_accepted = 0
        self.predicted_rejected = 0
        self.prompt_seconds = 0.0
        self.decode_seconds = 0.0
        self.timed = 0
        """Tokens that these are the time of."""
        self.finish_reasons: Counter[str] = Counter()
        self.first_token = Histogram(_LATENCIES)
        self.per_token = Histogram(_PER_TOKEN)
        self.whole = Histogram(_LATENCIES)
        self.recent: deque[RequestRecord] = deque(maxlen=_RECENT)

    def note(self, record: RequestRecord, reply: ReplyRecord, events: Sequence[ReplyEvent]) -> None:
        """Count events of a reply."""
        now = time.monotonic()
        for event in events:
            if isinstance(event, Token):
                self.emitted += 1
                if reply.first_token is None:
                    self.first_token.add(now - record.arrived)
            elif isinstance(event, Round):
                self.rounds += 1
                self.drafts += event.drafted > 0
                self.drafted += event.drafted
                self.verified += event.verified
                self.accepted += event.accepted
                for place in range(min(event.accepted, MOST_POSITIONS)):
                    self.accepted_at[place] += 1
            reply.note(event, now)

    def finished(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        self.requests += 1
        self.failed += bool(record.error)
        self.recent.append(record)
        self.whole.add(time.monotonic() - record.arrived)
        for reply in record.replies:
            for name in record.adapters:
                verified, accepted = self.adapted.pop(name, (0, 0))
                self.adapted[name] = verified + reply.verified, accepted + reply.accepted
            self.finish_reasons[str(reply.finish_reason or "abort")] += 1
            if reply.first_token is not None and reply.last_token is not None and reply.emitted > 1:
                seconds = reply.last_token - reply.first_token
                self.per_token.add(seconds / (reply.emitted - 1))
            stats = reply.stats
            if stats is None:
                continue
            self.prompt_tokens += stats.prompt_tokens
            self.cached_tokens += stats.cached_tokens
            self.prompt_seconds += stats.prompt_seconds
            self.decode_seconds += stats.decode_seconds
            self.timed += stats.timed
            self.predicted_accepted += stats.accepted_prediction_tokens
            self.predicted_rejected += stats.rejected_prediction_tokens
        while len(self.adapted) > _MOST_ADAPTERS:
            del self.adapted[next(iter(self.adapted))]
