"""The lines of the details panel about the running or last reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localspec.core.events import Round
from tui.session.meter import Meter
from tui.session.stats import size_text, speculation_text

_BARS = " ▁▂▃▄▅▆▇█"
_LEAST_SAVED = 0.05
"""Seconds that are worth a line."""
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


def details(meter: Meter, setting: str) -> list[tuple[str, str]]:
    """Label and text of every line that is known; ``setting`` names verifier and temperature."""
    lines = [
        *_state(meter),
        *_speed(meter),
        *_waiting(meter),
        *_drafters(meter),
        *_positions(meter),
    ]
    if not lines:
        lines = [("details", "come with the first reply")]
    return [*lines, *_model(meter, setting), *(_STRIP if meter.last_rounds else ())]


_STRIP = (("the bars", "below: one column per round, · = nothing drafted in it"),)
"""The legend of the strip."""


def _state(meter: Meter) -> Iterable[tuple[str, str]]:
    """The state of speculation; first, since a low screen has no room for the last lines."""
    if meter.state is not None and (meter.mean or meter.state.state != "on"):
        yield "drafting", speculation_text(meter.state).removeprefix("drafting ")


def _speed(meter: Meter) -> Iterable[tuple[str, str]]:
    if not meter.mean:
        return
    text = f"{meter.mean:.1f} tok/s"
    if meter.speedup is not None:
        factor, error = meter.speedup.factor, meter.speedup.error
        found = meter.speedup.text or "too busy a machine to compare"
        text += f"; {found} ({factor:.2f}× plain, ±{error:.0%})"
    yield "speed", text
    counts = meter.counts
    if counts.rounds and meter.rounds_known:
        each = f"{counts.rounds}, {counts.emitted / counts.rounds:.2f} tokens each"
        yield "rounds", "; ".join((each, *_round(meter)))
    if counts.verified:
        share = f"{counts.accepted / counts.verified:.0%}"
        yield "accepted", f"{counts.accepted} of {counts.verified} checked guesses, {share}"
    elif meter.stats is not None and meter.stats.drafted:
        stats = meter.stats
        share = f"{stats.accepted / stats.drafted:.0%}"
        yield "accepted", f"{stats.accepted} of {stats.drafted} drafted tokens, {share}"


def _waiting(meter: Meter) -> Iterable[tuple[str, str]]:
    texts = []
    if meter.first_token_seconds is not None:
        texts.append(f"after {meter.first_token_seconds:.2f} s")
    if meter.reading is not None:
        total, cached = meter.reading.total, meter.reading.cached
        texts.append(f"prompt {total} tokens, {cached} of them cached")
    if texts:
        yield "first token", ", ".join(texts)
    if meter.reading is not None and meter.reading.saved_seconds >= _LEAST_SAVED:
        yield "cache", f"saved about {meter.reading.saved_seconds:.1f} s of reading the prompt"


def _round(meter: Meter) -> Iterable[str]:
    done = meter.tally
    if not (done.rounds and done.draft_seconds + done.verify_seconds):
        return
    whole, draft, verify = (
        1000 * seconds / done.rounds
        for seconds in (done.seconds, done.draft_seconds, done.verify_seconds)
    )
    rest = max(0.0, whole - draft - verify)
    yield f"{whole:.1f} ms: draft {draft:.1f}, verify {verify:.1f}, else {rest:.1f}"


def _drafters(meter: Meter) -> Iterable[tuple[str, str]]:
    drafters = {name: stats for name, stats in meter.tally.by_drafter.items() if stats.drafted}
    every = sum(stats.accepted for stats in drafters.values())
    for name, stats in sorted(drafters.items()):
        text = f"{stats.drafted} drafted, {stats.accepted}/{stats.verified} accepted"
        if every and len(drafters) > 1:
            text += f", {100 * stats.accepted / every:.0f}% of all"
        if stats.seconds > 0:
            text += f", {1000 * stats.seconds / stats.drafted:.2f} ms each"
        yield name, text


def _positions(meter: Meter) -> Iterable[tuple[str, str]]:
    places = meter.tally.per_position[:_POSITIONS]
    if places:
        shares = [100 * share for share in places]
        yield (
            "by position",
            "  ".join(f"{_bar(round(share), 100)} {share:.0f}%" for share in shares),
        )


def _model(meter: Meter, setting: str) -> Iterable[tuple[str, str]]:
    """Rows that are the same for every reply."""
    if meter.context:
        yield "context", f"{min(meter.used, meter.context)} of {meter.context} tokens used"
    if meter.memory is not None:
        yield "memory", f"{size_text(meter.memory)} in the engine process"
    verifier, _, temperature = setting.partition(" T ")
    yield "sampling", f"verifier {verifier}, temperature {temperature}"
