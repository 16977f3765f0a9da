"""Counts of the running or last reply, and the state of the model."""

from __future__ import annotations

import time
from collections import deque

from localspec.core.events import (
    ModelInfo,
    Reading,
    Round,
    Speculation,
    Speedup,
    Stats,
)
from localspec.core.round_counts import RoundCounts

_NOW_SECONDS = 1.0
"""Seconds of decoding that the present speed averages: tokens arrive in bursts."""
_LEAST_SECONDS = 0.05
"""Seconds of decoding below which a running reply has no speed: a server's first pieces come at
once, and a clock has its grain.
"""
_STRIP_ROUNDS = 512
"""Rounds of the strip: more than any terminal has columns."""

SWITCHED_OFF = Speculation("off", "switched off by /draft off", "switched off by /draft off")


class Meter:
    """Counts of the running or last reply, and the state of the model."""

    def __init__(self) -> None:
        self.context = 0
        """Size of the context in tokens; 0 while unknown."""
        self.used = 0
        self.speculation: Speculation | None = None
        """State that the engine reported last."""
        self.switched_off = False
        """Whether the user has switched drafting off, from the next reply on."""
        self.memory: int | None = None
        """Bytes of the engine process; None while unknown."""
        self.last_rounds: deque[Round] = deque(maxlen=_STRIP_ROUNDS)
        self._recent: deque[tuple[int, float]] = deque()
        self.start()

    def start(self) -> None:
        """Reset the counts for a new reply."""
        self.tally = RoundCounts()
        self.drafted = 0
        """Tokens drafted in the last round."""
        self.speedup: Speedup | None = None
        """Speedup of this reply alone: that of another one was measured at another time."""
        self.stats: Stats | None = None
        """Statistics of the finished reply."""
        self.reading: Reading | None = None
        """Progress of the prefill."""
        self._encoding: float | None = None
        """When the encoding of a picture was first told of."""
        self.first_token_seconds: float | None = None
        """Seconds from the request to the first token."""
        self._began = time.monotonic()
        self._recent.clear()
        self._recent_emitted, self._recent_seconds = 0, 0.0

    def opened(self, info: ModelInfo) -> None:
        """Reset everything for a newly loaded model."""
        self.start()
        self.last_rounds.clear()
        self.context, self.speculation = info.context, info.speculation

    def copy_model(self, other: Meter) -> None:
        """Take over the state of the model from another chat."""
        self.context, self.speculation = other.context, other.speculation
        self.memory = other.memory

    def add(self, done: Round) -> None:
        """Count a round."""
        self.tally.add(done)
        self.drafted = done.drafted
        self.used = done.context_used or self.used
        self.speculation, self.speedup = done.speculation, done.speedup
        if self.rounds_known:
            self.last_rounds.append(done)
        self._recent.append((done.emitted, done.seconds))
        self._recent_emitted += done.emitted
        self._recent_seconds += done.seconds
        while len(self._recent) > 1 and self._recent_seconds - self._recent[0][1] > _NOW_SECONDS:
            emitted, seconds = self._recent.popleft()
            self._recent_emitted -= emitted
            self._recent_seconds -= seconds

    def read(self, progress: Reading) -> None:
        """Take the progress of the prefill."""
        self.reading = progress
        if not progress.encoding:
            self._encoding = None
        elif self._encoding is None:
            self._encoding = time.monotonic()

    @property
    def encoding_seconds(self) -> float | None:
        """Seconds that a picture has been encoded for; None while none is."""
        return None if self._encoding is None else time.monotonic() - self._encoding

    def token(self) -> None:
        """Count a token."""
        if self.first_token_seconds is None:
            self.first_token_seconds = time.monotonic() - self._began

    def finish(self, stats: Stats) -> None:
        """Take the statistics of the finished reply."""
        self.stats = stats
        if stats.prompt_tokens:  # a server may have told them with the last event only
            self.used = stats.prompt_tokens + stats.emitted
        if stats.emitted:  # else why no round was needed says nothing about the model
            self.speculation = stats.speculation
        self.speedup = stats.speedup

    def show(self, stats: Stats | None) -> None:
        """Show the figures of another finished reply, if this was one; None for no reply."""
        if self.stats is None or self.stats is stats:
            return
        self.start()
        if stats is not None:
            self.stats, self.speedup = stats, stats.speedup

    @property
    def state(self) -> Speculation | None:
        """The state of speculation: switched off by the user, or as the engine reports."""
        return SWITCHED_OFF if self.switched_off else self.speculation

    @property
    def rounds_known(self) -> bool:
        """Whether the rounds are those of the engine; a server may tell nothing about them."""
        return self.speculation is None or self.speculation.state != "unknown"

    @property
    def now(self) -> float:
        """Tokens per second over the last second of decoding; 0 while that is not known."""
        seconds = self._recent_seconds
        return self._recent_emitted / seconds if seconds >= _LEAST_SECONDS else 0.0

    @property
    def mean(self) -> float:
        """Tokens per second over the whole reply; 0 while that is not known."""
        if self.stats is not None:
            return self.stats.tokens_per_second
        done = self.tally
        return done.emitted / done.seconds if done.seconds >= _LEAST_SECONDS else 0.0

    @property
    def counts(self) -> Stats | RoundCounts:
        """The object with the tokens and rounds of the reply so far, or of the finished reply."""
        return self.stats or self.tally
