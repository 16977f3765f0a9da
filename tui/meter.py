"""The figures of the stats line: gathered from rounds, written for any width."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from localspec.events import ModelInfo, Round, Speculation, Stats

_NOW_SECONDS = 1.0
"""How much decoding the present speed looks back on: tokens come in bursts."""


class Meter:
    """Counts of the running reply, and what is known of the context."""

    def __init__(self) -> None:
        self.context = 0
        """Tokens that fit; 0 while unknown."""
        self.used = 0
        self.speculation: Speculation | None = None
        self._recent: deque[tuple[int, float]] = deque()
        self.start()

    def start(self) -> None:
        """A new reply begins."""
        self.emitted = self.rounds = self.verified = self.accepted = 0
        self.drafted = 0
        """By the last round."""
        self.seconds = 0.0
        self.stats: Stats | None = None
        """Of the last reply, once it has finished."""
        self._recent.clear()
        self._recent_emitted, self._recent_seconds = 0, 0.0

    def opened(self, info: ModelInfo) -> None:
        """A model is ready."""
        self.context, self.speculation = info.context, info.speculation

    def forget(self) -> None:
        """A new conversation begins."""
        self.start()
        self.used = 0

    def add(self, done: Round) -> None:
        """A round has ended."""
        self.emitted += done.emitted
        self.rounds += 1
        self.verified += done.verified
        self.accepted += done.accepted
        self.drafted = done.drafted
        self.seconds += done.seconds
        self.used = done.context_used
        self.speculation = done.speculation
        self._recent.append((done.emitted, done.seconds))
        self._recent_emitted += done.emitted
        self._recent_seconds += done.seconds
        while len(self._recent) > 1 and self._recent_seconds - self._recent[0][1] > _NOW_SECONDS:
            emitted, seconds = self._recent.popleft()
            self._recent_emitted -= emitted
            self._recent_seconds -= seconds

    def finish(self, stats: Stats) -> None:
        """The reply has ended; its own statistics are the exact ones."""
        self.stats = stats
        self.speculation = stats.speculation

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
    """The higher, the earlier it gives way when the line is narrow."""


SEPARATOR = " · "


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
            if finished.plain_tokens_per_second:
                ratio = f"{meter.mean / finished.plain_tokens_per_second:.1f}× plain"
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
        context = f"ctx {meter.used}/{meter.context}"
        parts.append(Figure(context, context, 4))
    parts.append(Figure(setting, setting, 6))
    return parts


def speculation_text(speculation: Speculation | None) -> str:
    """Whether drafting happens, and if not, why."""
    if speculation is None:
        return ""
    if speculation.state == "on":
        return "drafting on"
    return f"{speculation.state}: {speculation.reason or 'no reason given'}"


def stats_line(meter: Meter, setting: str, width: int) -> tuple[str, str]:
    """The figures and the state of speculation, together at most ``width`` wide.

    The least important figures take their short form first, then they leave in the same order;
    the state stays to the last, since a speculation that fails in silence helps nobody.
    """
    state = speculation_text(meter.speculation)
    parts = figures(meter, setting)
    room = width - (len(state) + len(SEPARATOR) if state else 0)
    texts = {part: part.text for part in parts}
    by_rank = sorted(parts, key=lambda part: -part.rank)
    for part in by_rank:
        if len(SEPARATOR.join(texts.values())) > room:
            texts[part] = part.short
    for part in by_rank:
        if len(SEPARATOR.join(texts.values())) > room:
            del texts[part]
    if len(state) > width:
        state = state[: width - 1] + "…"
    return SEPARATOR.join(texts.values()), state
