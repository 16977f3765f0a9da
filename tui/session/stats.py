"""The figures of the stats line: collected from rounds, formatted for any width."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from localspec.core.events import (
    DrafterStats,
    ModelInfo,
    Reading,
    Round,
    Speculation,
    Stats,
    times_plain,
)

_NOW_SECONDS = 1.0
"""Seconds of decoding that the present speed averages: tokens arrive in bursts."""
_STRIP_ROUNDS = 512
"""Rounds of the strip: more than any terminal has columns."""


SWITCHED_OFF = Speculation("off", "by /draft off")


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
        self.plain_speed: float | None = None
        """Tokens per second of plain decoding as last measured with this pair; None until then."""
        self.memory: int | None = None
        """Bytes of the engine process; None while unknown."""
        self.last_rounds: deque[Round] = deque(maxlen=_STRIP_ROUNDS)
        self._recent: deque[tuple[int, float]] = deque()
        self.start()

    def start(self) -> None:
        """Reset the counts for a new reply."""
        self.emitted = self.rounds = self.verified = self.accepted = 0
        self.drafted = 0
        """Tokens drafted in the last round."""
        self.seconds = 0.0
        self.stats: Stats | None = None
        """Statistics of the finished reply."""
        self.reading: Reading | None = None
        """Progress of the prefill."""
        self.first_token_seconds: float | None = None
        """Seconds from the request to the first token."""
        self.draft_seconds = self.verify_seconds = 0.0
        self.judged_at: list[int] = []
        self.accepted_at: list[int] = []
        self.by_drafter: dict[str, DrafterStats] = {}
        self._began = time.monotonic()
        self._recent.clear()
        self._recent_emitted, self._recent_seconds = 0, 0.0

    def opened(self, info: ModelInfo) -> None:
        """Reset everything for a newly loaded model."""
        self.start()
        self.last_rounds.clear()
        self.context, self.speculation = info.context, info.speculation
        self.plain_speed = None

    def copy_model(self, other: Meter) -> None:
        """Take over the state of the model from another chat."""
        self.context, self.speculation = other.context, other.speculation
        self.plain_speed, self.memory = other.plain_speed, other.memory

    def add(self, done: Round) -> None:
        """Count a round."""
        self.emitted += done.emitted
        self.rounds += 1
        self.verified += done.verified
        self.accepted += done.accepted
        self.drafted = done.drafted
        self.seconds += done.seconds
        self.used = done.context_used
        self.speculation = done.speculation
        self.last_rounds.append(done)
        self.draft_seconds += done.draft_seconds
        self.verify_seconds += done.verify_seconds
        if done.drafted:
            self._judge(done)
        self._recent.append((done.emitted, done.seconds))
        self._recent_emitted += done.emitted
        self._recent_seconds += done.seconds
        while len(self._recent) > 1 and self._recent_seconds - self._recent[0][1] > _NOW_SECONDS:
            emitted, seconds = self._recent.popleft()
            self._recent_emitted -= emitted
            self._recent_seconds -= seconds

    def token(self) -> None:
        """Count a token."""
        if self.first_token_seconds is None:
            self.first_token_seconds = time.monotonic() - self._began

    def finish(self, stats: Stats) -> None:
        """Take the statistics of the finished reply."""
        self.stats = stats
        self.speculation = stats.speculation
        self.plain_speed = stats.plain_tokens_per_second or self.plain_speed

    def _judge(self, done: Round) -> None:
        """Count accepted tokens by position: all accepted ones, then one miss."""
        was = self.by_drafter.get(done.source, DrafterStats())
        self.by_drafter[done.source] = DrafterStats(
            was.drafted + done.drafted,
            was.verified + done.verified,
            was.accepted + done.accepted,
            was.seconds + done.draft_seconds,
        )
        judged = min(done.verified, done.accepted + 1)
        missing = judged - len(self.judged_at)
        self.judged_at += [0] * missing
        self.accepted_at += [0] * missing
        for i in range(judged):
            self.judged_at[i] += 1
            self.accepted_at[i] += i < done.accepted

    @property
    def ratio(self) -> float | None:
        """Speed relative to plain decoding; None without a draft or a measured plain speed."""
        drafted = self.stats.drafted if self.stats is not None else self.by_drafter
        return times_plain(self.mean, self.plain_speed) if drafted else None

    @property
    def state(self) -> Speculation | None:
        """The state of speculation: switched off by the user, or as the engine reports."""
        return SWITCHED_OFF if self.switched_off else self.speculation

    @property
    def now(self) -> float:
        """Tokens per second over the last second of decoding."""
        return self._recent_emitted / self._recent_seconds if self._recent_seconds > 0 else 0.0

    @property
    def mean(self) -> float:
        """Tokens per second over the whole reply."""
        if self.stats is not None:
            return self.stats.tokens_per_second
        return self.emitted / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One part of the stats line."""

    text: str
    short: str
    rank: int
    """Figures of a higher rank are shortened and dropped first."""


SEPARATOR = " · "
_SETTING_RANKS = (4, 6, 8)
"""Ranks of the second line, where there are two: context, setting and memory."""
_LEAST_STATE = 32
"""Least cells for a reason without a short form."""
_LONGEST_SHORT = 44
_NEEDED = 4
"""Highest rank that a long reason leaves room for: speed, acceptance, ratio, context."""


def figures(meter: Meter, setting: str) -> list[Figure]:
    """The parts of the stats line, in their order. ``setting`` names verifier and temperature."""
    parts: list[Figure] = []
    finished = meter.stats
    rounds = finished.rounds if finished else meter.rounds
    if rounds:
        emitted = finished.emitted if finished else meter.emitted
        verified = finished.verified if finished else meter.verified
        accepted = finished.accepted if finished else meter.accepted
        mean = f"{meter.mean:.0f} tok/s"
        if finished is None:
            now = f"{meter.now:.0f} tok/s"
            parts.append(Figure(f"{now} (mean {meter.mean:.0f})", now, 0))
        else:
            parts.append(Figure(f"{mean} mean", mean, 0))
        if meter.ratio is not None:
            ratio = f"{meter.ratio:.1f}× plain"
            parts.append(Figure(ratio, ratio, 3))
        if verified:
            share = f"{100 * accepted / verified:.0f}%"
            parts.append(Figure(f"accepted {accepted}/{verified} {share}", f"accepted {share}", 2))
        parts.append(
            Figure(f"{emitted / rounds:.1f} tok/round", f"{emitted / rounds:.1f}/round", 5)
        )
        if meter.drafted and finished is None:
            parts.append(Figure(f"K {meter.drafted}", f"K {meter.drafted}", 7))
    if meter.context:
        # The last token of a reply that filled the context is not in the cache.
        context = f"ctx {min(meter.used, meter.context)}/{meter.context}"
        parts.append(Figure(context, context, 4))
    if meter.memory is not None:
        memory = size_text(meter.memory)
        parts.append(Figure(f"mem {memory}", memory, 8))
    parts.append(Figure(setting, setting, 6))
    return parts


def speculation_text(speculation: Speculation | None) -> str:
    """The state of speculation, with its reason."""
    if speculation is None:
        return ""
    if speculation.state == "on":
        return "drafting on"
    return f"{speculation.state}: {speculation.reason or 'no reason given'}"


def short_state(speculation: Speculation | None, details: str, width: int) -> str:
    """The state of speculation in at most ``width`` cells, where possible.

    ``details`` is the key of the panel with the whole text. A reason starts with a short form
    that ends at a colon.
    """
    whole, width = speculation_text(speculation), max(width, _LEAST_STATE)
    if speculation is None or len(whole) <= width:
        return whole
    brief, colon, _ = (speculation.reason or "").partition(": ")
    if len(whole) <= _LONGEST_SHORT:
        return whole
    short = f"{speculation.state}: {brief}, {details}"
    if colon and len(short) <= _LONGEST_SHORT:
        return short
    ending = f"… {details}"
    return whole[: width - len(ending)].rstrip(" ,;:") + ending


def size_text(size: int) -> str:
    """A number of bytes in MB or GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def fitted(parts: list[Figure], width: int) -> str:
    """The figures on one line, at most ``width`` wide.

    The least important take their short form first, then they leave in the same order.
    """
    texts = {part: part.text for part in parts}
    by_rank = sorted(parts, key=lambda part: -part.rank)
    for part in by_rank:
        if len(SEPARATOR.join(texts.values())) > width:
            texts[part] = part.short
    for part in by_rank:
        if len(SEPARATOR.join(texts.values())) > width:
            del texts[part]
    return SEPARATOR.join(texts.values())


def stats_line(meter: Meter, setting: str, width: int, details: str = "F2") -> tuple[str, str]:
    """The figures and the state of speculation, together at most ``width`` wide.

    The state is always shown; a long reason is shortened before the most important figures are.
    """
    parts = figures(meter, setting)
    needed = SEPARATOR.join(part.short for part in parts if part.rank <= _NEEDED)
    state = short_state(meter.state, details, width - len(needed) - len(SEPARATOR))
    line = fitted(parts, width - (len(state) + len(SEPARATOR) if state else 0))
    return line, _cut(state, width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def stats_lines(
    meter: Meter, setting: str, width: int, details: str = "F2"
) -> tuple[str, str, str]:
    """Two lines: the figures; then setting, context and memory with the state of speculation."""
    parts = figures(meter, setting)
    needed = SEPARATOR.join(part.short for part in parts if part.rank in _SETTING_RANKS)
    state = short_state(meter.state, details, width - len(needed) - len(SEPARATOR))
    room = width - (len(state) + len(SEPARATOR) if state else 0)
    first = fitted([part for part in parts if part.rank not in _SETTING_RANKS], width)
    second = fitted([part for part in parts if part.rank in _SETTING_RANKS], room)
    return first, second, _cut(state, width)
