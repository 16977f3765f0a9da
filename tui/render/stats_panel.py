"""The lines of the details panel about the running or last reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localspec.core.events import Round
from tui.session.stats import Meter, speculation_text

_BARS = " ▁▂▃▄▅▆▇█"
_POSITIONS = 12
"""Positions of a draft that are listed; later ones are rare."""


def strip(rounds: Sequence[Round], width: int) -> tuple[str, str]:
    """Drafted and accepted tokens of the last rounds, a column each, on one scale.

    A plain round has a dot where the others have their draft.
    """
    shown = rounds[-max(1, width) :]
    scale = max((r.drafted for r in shown), default=0)
    drafted = "".join(_bar(r.drafted, scale) if r.drafted else "·" for r in shown)
    accepted = "".join(_bar(r.accepted, scale) for r in shown)
    return drafted, accepted


def _bar(value: int, scale: int) -> str:
    """A block whose height is ``value`` relative to ``scale``; visible for any value above zero."""
    return _BARS[-(-value * (len(_BARS) - 1) // scale)] if scale else " "


def details(meter: Meter) -> list[tuple[str, str]]:
    """Label and text of every line that is known."""
    lines = [
        *_state(meter),
        *_speed(meter),
        *_waiting(meter),
        *_round(meter),
        *_drafters(meter),
        *_positions(meter),
    ]
    return lines or [("details", "come with the first reply")]


def _state(meter: Meter) -> Iterable[tuple[str, str]]:
    """The state of speculation; first, since a low screen has no room for the last lines."""
    if meter.state is not None and (meter.mean or meter.state.state != "on"):
        yield "drafting", speculation_text(meter.state).removeprefix("drafting ")


def _speed(meter: Meter) -> Iterable[tuple[str, str]]:
    if not meter.mean:
        return
    text = f"{meter.mean:.1f} tok/s"
    if meter.ratio is not None:
        text += f", {meter.ratio:.1f}× plain decoding ({meter.plain_speed:.1f})"
    yield "speed", text
    rounds = meter.stats.rounds if meter.stats else meter.rounds
    emitted = meter.stats.emitted if meter.stats else meter.emitted
    if rounds:
        yield "rounds", f"{rounds}, {emitted / rounds:.2f} tokens each"


def _waiting(meter: Meter) -> Iterable[tuple[str, str]]:
    if meter.first_token_seconds is not None:
        yield "first token", f"after {meter.first_token_seconds:.2f} s"
    if meter.reading is not None:
        total, cached = meter.reading.total, meter.reading.cached
        yield "prompt", f"{total} tokens, {cached} of them cached"


def _round(meter: Meter) -> Iterable[tuple[str, str]]:
    if not meter.rounds:
        return
    whole, draft, verify = (
        1000 * seconds / meter.rounds
        for seconds in (meter.seconds, meter.draft_seconds, meter.verify_seconds)
    )
    rest = max(0.0, whole - draft - verify)
    yield "a round", f"{whole:.1f} ms: draft {draft:.1f}, verify {verify:.1f}, else {rest:.1f}"


def _drafters(meter: Meter) -> Iterable[tuple[str, str]]:
    every = sum(stats.accepted for stats in meter.by_drafter.values())
    for name, stats in sorted(meter.by_drafter.items()):
        text = f"{stats.drafted} drafted, {stats.accepted}/{stats.verified} accepted"
        if every and len(meter.by_drafter) > 1:
            text += f", {100 * stats.accepted / every:.0f}% of all"
        if stats.drafted and stats.seconds > 0:
            text += f", {1000 * stats.seconds / stats.drafted:.2f} ms each"
        yield name, text


def _positions(meter: Meter) -> Iterable[tuple[str, str]]:
    places = list(zip(meter.accepted_at, meter.judged_at, strict=True))[:_POSITIONS]
    if places:
        shares = (100 * accepted / judged for accepted, judged in places)
        yield (
            "by position",
            "  ".join(f"{_bar(round(share), 100)} {share:.0f}%" for share in shares),
        )
