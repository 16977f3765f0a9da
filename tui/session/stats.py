"""The figures of the bottom line, formatted for any width.

There are two forms: one in everyday words, and one with all figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.core import units
from localspec.core.events import LONGEST_BRIEF, Speculation
from tui.session.meter import Meter

SEPARATOR = " · "
_QUIET, _GOOD, _BAD = "$quiet", "$text-success", "$text-warning"
_VERDICT_STYLES = {"faster": _GOOD, "slower": _BAD}
_NEARLY_FULL = 0.8
"""Part of the context in use from which the everyday line shows it."""
_ENOUGH = 8
"""Judged guesses from which on a share of them says something."""
_PARTS = (2, 3, 4, 5, 10, 20, 50, 100)
"""Denominators of a share in words."""
_PLAIN = "plain"
"""Label of the reason where "not drafting" has no room."""
_CLOSE = 0.031
"""Largest difference between a share and its words."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One part of the bottom line."""

    text: str
    rank: int
    """Figures of a higher rank are shortened and dropped first."""
    short: str = ""
    """What takes its place where there is less room; "" where nothing does."""
    style: str = _QUIET
    second: bool = False
    """Whether it is on the second line, where there are two."""


Line = Sequence[Figure]
"""Figures from left to right."""


def everyday_line(
    meter: Meter, width: int, grammar: str = "", *, strict: bool = False, running: bool = False
) -> Line:
    """Speed, gain and right guesses in words, in at most ``width`` cells.

    ``grammar`` names what replies have to fit, if anything; ``strict`` is whether replies are
    bit-identical, ``running`` whether one is being made.
    """
    figures: list[Figure] = []
    counts = meter.counts
    if counts.emitted:
        # That of the last second may be a tenth of it: a stall, or a round whose guess was wrong.
        figures.append(Figure(_speed(meter.mean), 1))
        figures += _verdict(meter, 2)
    else:
        figures.append(Figure("before the first token" if running else "ready", 4))
    if counts.verified >= _ENOUGH:
        right = share_in_words(counts.accepted, counts.verified)
        figures.append(Figure(f"{right} guesses right", 3))
    figures += _of_drafted(meter, 3)
    if meter.context and meter.used >= _NEARLY_FULL * meter.context:
        full = f"context {min(1, meter.used / meter.context):.0%} full"
        figures.append(Figure(full, 2, style=_BAD))
    if strict:
        figures.append(Figure("strict", 3))
    if grammar:
        figures.append(Figure(f"replies fit {grammar}", 4, grammar))
    state = meter.state
    if state is not None and state.state != "on" and not _is_faster(meter):
        reason = brief_reason(state)
        if state.state == "unknown":
            figures.append(Figure(reason, 0))
        else:
            # Parked is as usual as drafting; what is switched off, or impossible, may surprise.
            style = _QUIET if state.state == "parked" else _BAD
            # Alone, the reason would seem to be a state of its own; and the speed must not leave.
            labelled = reason if reason.startswith(_PLAIN) else f"{_PLAIN}: {reason}"
            room = width - len(figures[0].text) - len(SEPARATOR)
            short = labelled if len(labelled) <= room else _begun(labelled, room)
            figures.append(Figure(f"not drafting: {reason}", 0, short, style))
    return fitted(figures, width)


def expert_lines(meter: Meter, setting: str, width: int, *, two: bool = False) -> list[Line]:
    """All figures on one line or two, in at most ``width`` cells each.

    ``setting`` names verifier and temperature. The state of speculation is always shown.
    """
    figures = [*_reply(meter), *_model(meter, setting)]
    if meter.state is not None:
        state = speculation_text(meter.state, brief_reason(meter.state))
        style = _BAD if meter.state.state == "off" else _QUIET
        figures.append(Figure(state, 0, style=style, second=True))
    if not two:
        return [fitted(figures, width)]
    rows = ([f for f in figures if f.second is second] for second in (False, True))
    return [fitted(row, width) for row in rows if row]


def _reply(meter: Meter) -> Iterable[Figure]:
    """The figures of the reply."""
    counts = meter.counts
    if not counts.emitted:
        return
    if meter.stats is None:
        now, mean = _speed(meter.now), f" (mean {meter.mean:.0f})" if meter.mean else ""
        yield Figure(f"{now}{mean}", 1, now)
    else:
        mean = _speed(meter.mean)
        yield Figure(f"{mean} mean", 1, mean)
    yield from _verdict(meter, 3)
    if counts.verified:
        share = f"{counts.accepted / counts.verified:.0%}"
        accepted = f"accepted {counts.accepted}/{counts.verified} {share}"
        yield Figure(accepted, 2, f"accepted {share}")
    yield from _of_drafted(meter, 2)
    if counts.rounds and meter.rounds_known:
        per_round = f"{counts.emitted / counts.rounds:.1f}"
        yield Figure(f"{per_round} tok/round", 5, f"{per_round}/round")
    if meter.drafted and meter.stats is None:
        yield Figure(f"K {meter.drafted}", 7)


def _speed(found: float) -> str:
    """A speed, or that it is not known."""
    return f"{units.speed(found)} tok/s" if found else "- tok/s"


def _model(meter: Meter, setting: str) -> Iterable[Figure]:
    """Context, memory and setting."""
    if meter.context:
        # The last token of a reply that filled the context is not in the cache.
        context = f"ctx {min(meter.used, meter.context)}/{meter.context}"
        yield Figure(context, 4, second=True)
    if meter.memory is not None:
        yield Figure(f"mem {size_text(meter.memory)}", 8, second=True)
    yield Figure(setting, 6, second=True)


def _verdict(meter: Meter, rank: int) -> Iterable[Figure]:
    """The measured gain, coloured by what was measured."""
    speedup = meter.speedup
    if speedup is not None and speedup.text:
        style = _VERDICT_STYLES.get(speedup.verdict, _QUIET)
        yield Figure(speedup.text, rank, style=style)


def _of_drafted(meter: Meter, rank: int) -> Iterable[Figure]:
    """Accepted tokens of all drafted ones, where a server does not tell which were verified."""
    stats = meter.stats
    if stats is not None and stats.drafted and not stats.verified:
        yield Figure(f"accepted {stats.accepted} of {stats.drafted} drafted", rank)


def _is_faster(meter: Meter) -> bool:
    return meter.speedup is not None and meter.speedup.verdict == "faster"


def share_in_words(part: int, whole: int) -> str:
    """``part`` of ``whole`` in small numbers, such as "3 of 4"; none and all are exact."""
    for n in _PARTS if 0 < part < whole else ():
        few = round(n * part / whole)
        if 0 < few < n and abs(few / n - part / whole) <= _CLOSE:
            return f"{few} of {n}"
    return f"{part} of {whole}"


def brief_reason(speculation: Speculation) -> str:
    """Why nothing is drafted, in at most `LONGEST_BRIEF` characters."""
    reason = speculation.shortest or "no reason given"
    return reason if len(reason) <= LONGEST_BRIEF else reason[: LONGEST_BRIEF - 1].rstrip() + "…"


def speculation_text(speculation: Speculation, reason: str | None = None) -> str:
    """The state of speculation with its full reason, or another ``reason``."""
    if speculation.state == "on":
        return "drafting on"
    if speculation.state == "unknown":
        return reason or speculation.reason or "not reported"
    return f"{speculation.state}: {reason or speculation.reason or 'no reason given'}"


def size_text(size: int) -> str:
    """A number of bytes in MB or GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def fitted(figures: Sequence[Figure], width: int) -> Line:
    """The figures on one line, at most ``width`` wide.

    The least important take their short form first, then they leave in the same order. The most
    important one is shortened last and never leaves.
    """
    shown = dict(enumerate(figures))
    *others, most = sorted(shown, key=lambda at: -shown[at].rank)
    for at in others:
        if _width(shown.values()) > width:
            shown[at] = _shortened(shown[at])
    for at in [*others[:-1], most, *others[-1:]]:
        if _width(shown.values()) <= width:
            break
        if at == most:
            shown[at] = _shortened(shown[at])
        else:
            del shown[at]
    if _width(shown.values()) > width:
        shown = {most: _cut(shown[most], width)}
    return list(shown.values())


def _begun(text: str, width: int) -> str:
    """The beginning of a text, so that it is clear that more follows."""
    return text[: max(0, width - 1)].rstrip() + "…"


def _width(figures: Iterable[Figure]) -> int:
    return len(SEPARATOR.join(figure.text for figure in figures))


def _shortened(figure: Figure) -> Figure:
    return dataclasses.replace(figure, text=figure.short or figure.text)


def _cut(figure: Figure, width: int) -> Figure:
    return dataclasses.replace(figure, text=_begun(figure.text, width))
