"""Reads what servers report about speculation: of one reply in the shapes of all known engines, and
the counters in ``/metrics`` (Prometheus text) of vLLM and llama.cpp. Values may be anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import LocalspecError
from localspec.core.safe_text import safe_line
from localspec.remote.connection import Connection

_MOST = 1 << 53
_LONGEST_NAME = 200

_WIDEST = 1024
"""Tokens of a draft: a longer list is none of accepted tokens."""

_LINE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*+)(?:\{[^\n]*\})? (?P<value>[0-9.eE+-]++)(?: \d++)?$", re.MULTILINE
)
_NAMES = {
    "rounds": ("vllm:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_drafts_total"),
    "drafted": (
        "vllm:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
    ),
    "accepted": (
        "vllm:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ),
    "finished": ("vllm:request_success_total",),
    "running": ("vllm:num_requests_running", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "llamacpp:requests_deferred"),
}


def count(value: object) -> int | None:
    """A count; None if the value is none."""
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if whole and 0 <= value < _MOST else None  # type: ignore[operator, call-overload]


def number(value: object) -> float | None:
    """A number of zero or more; None if the value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST and math.isfinite(value) else None


def ids(value: object) -> tuple[int, ...] | None:
    """Ids of tokens; None if the value is no list of them."""
    found = [count(one) for one in value] if isinstance(value, list) else [None]
    return None if None in found else tuple(one for one in found if one is not None)


def mapping(value: object) -> Mapping[str, Any]:
    """An object; empty if the value is none."""
    return value if isinstance(value, dict) else {}


def name(value: object) -> str:
    """A short name that can be shown; "" if the value is none."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or safe_line(value) != value:
        return ""
    return value


@dataclass(frozen=True, slots=True)
class Reported:
    """Counts of one reply as its engine reports them.

    Engines count all drafted tokens, also those behind the first miss; ``verified`` is known only
    where the length and the accepted tokens of each round are.
    """

    drafted: int
    accepted: int
    rounds: int | None = None
    """Rounds with a draft."""
    verified: int | None = None
    per_position: tuple[float, ...] = ()
    seconds: float | None = None
    """Decoding time by the engine's clock."""


def in_timings(timings: Mapping[str, Any]) -> Reported | None:
    """llama.cpp's ``timings``; None where nothing was drafted."""
    return _sums(timings.get("draft_n"), timings.get("draft_n_accepted"))


def _sums(drafted: object, accepted: object) -> Reported | None:
    of, kept = count(drafted), count(accepted)
    return Reported(of, kept) if of and kept is not None and kept <= of else None


def in_metrics(metrics: Mapping[str, Any]) -> Reported | None:
    """vLLM's ``metrics.speculative_decoding``; None where it is absent."""
    found = mapping(metrics.get("speculative_decoding"))
    drafted = count(found.get("num_draft_tokens"))
    accepted = count(found.get("num_accepted_draft_tokens"))
    if drafted is None or accepted is None or accepted > drafted:
        return None
    rounds = count(found.get("num_spec_steps"))
    steps = _steps(found) or _histogram(found, rounds, drafted)
    verified = sum(n * min(length, kept + 1) for (length, kept), n in steps.items())
    if not steps:  # the names of `localspec serve`
        verified = count(found.get("num_verified_tokens")) or 0
    if not accepted <= verified <= drafted:
        verified = 0
    return Reported(
        drafted, accepted, rounds, verified or None, _positions(steps) or _shares(found)
    )


def _shares(found: Mapping[str, Any]) -> tuple[float, ...]:
    shares = found.get("acceptance_per_position")
    known = [number(share) for share in shares[:64]] if isinstance(shares, list) else []
    return tuple(min(1.0, share) for share in known if share is not None)


_Steps = dict[tuple[int, int], int]
"""Number of rounds by the length of their draft and its accepted tokens."""


def _steps(found: Mapping[str, Any]) -> _Steps:
    """Rounds by the arrays of the level ``detailed``."""
    drafted, accepted = found.get("per_step_drafted"), found.get("per_step_accepted")
    if not isinstance(drafted, list) or not isinstance(accepted, list):
        return {}
    steps: _Steps = {}
    for one, other in zip(drafted, accepted, strict=False):
        length, kept = count(one), count(other)
        if length is None or kept is None or kept > length:
            return {}
        steps[length, kept] = steps.get((length, kept), 0) + 1
    return steps


def _histogram(found: Mapping[str, Any], rounds: int | None, drafted: int) -> _Steps:
    """Rounds by the histogram of accepted tokens, where drafts have one length."""
    by_length = mapping(found.get("acceptance_histogram_by_draft_length"))
    length = count(found.get("num_spec_tokens"))
    if not by_length and length and rounds and length * rounds == drafted:
        by_length = {str(length): found.get("acceptance_histogram")}
    steps: _Steps = {}
    for one, histogram in by_length.items():
        for kept, n in _bars(histogram):
            place, rows = (_whole(one), kept), count(n)
            if place[0] is None or place[1] is None or rows is None or place[1] > place[0]:
                return {}
            steps[place[0], place[1]] = steps.get((place[0], place[1]), 0) + rows
    return steps


def _bars(histogram: object) -> Iterator[tuple[int | None, object]]:
    """Accepted tokens with the number of such rounds: a list, as vLLM sends it, or an object, as
    its documentation shows it.
    """
    if isinstance(histogram, list):
        yield from enumerate(histogram[:_WIDEST])
    for kept, n in mapping(histogram).items():
        yield _whole(kept), n


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _positions(steps: _Steps) -> tuple[float, ...]:
    """Acceptance of the i-th drafted token, given that it was verified."""
    shares: list[float] = []
    for at in range(min(64, max((length for length, _ in steps), default=0))):
        judged = sum(n for (length, kept), n in steps.items() if length > at and kept >= at)
        passed = sum(n for (length, kept), n in steps.items() if length > at and kept > at)
        if not judged:
            break
        shares.append(passed / judged)
    return tuple(shares)


def in_meta_info(meta: Mapping[str, Any]) -> Reported | None:
    """SGLang's ``meta_info``, also with the names of its earlier versions; None where absent."""
    rounds = count(meta.get("spec_verify_ct"))
    accepted = _first(meta, "spec_accept_token_num", "spec_accepted_drafts", "spec_accepted_tokens")
    drafted = _first(meta, "spec_draft_token_num", "spec_proposed_drafts", "spec_draft_tokens")
    if not rounds:
        return None
    if accepted is None:
        emitted = count(meta.get("completion_tokens"))
        accepted = max(0, emitted - rounds) if emitted is not None else None
    rate = number(meta.get("spec_accept_rate"))
    if drafted is None and accepted is not None and rate:
        drafted = round(accepted / rate)
    if accepted is None or drafted is None or accepted > drafted:
        return None
    return Reported(drafted, accepted, rounds)


def _first(values: Mapping[str, Any], *names: str) -> int | None:
    return next((found for name in names if (found := count(values.get(name))) is not None), None)


def in_stats(stats: Mapping[str, Any]) -> Reported | None:
    """LM Studio's ``stats``; None where nothing was drafted."""
    return _sums(stats.get("total_draft_tokens_count"), stats.get("accepted_draft_tokens_count"))


def find(event: Mapping[str, Any]) -> Reported | None:
    """The report in an event, in any of the shapes."""
    choices = event.get("choices")
    choice = mapping(choices[0]) if isinstance(choices, list) and choices else {}
    return (
        in_metrics(mapping(event.get("metrics")))
        or in_timings(mapping(event.get("timings")))
        or in_meta_info(mapping(event.get("meta_info")) or mapping(choice.get("meta_info")))
        or in_stats(mapping(event.get("stats")) or mapping(event.get("usage")))
    )


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over all requests since the server was started; None where it has no such counter."""

    rounds: float | None
    drafted: float | None
    accepted: float | None
    finished: float | None
    running: float | None
    waiting: float | None

    @property
    def quiet(self) -> bool:
        """Whether no request runs or waits."""
        return not self.running and not self.waiting


async def read_counters(connection: Connection) -> Counters | None:
    """The counters now; None where the server does not show any."""
    try:
        answer = await connection.get("/metrics")
    except LocalspecError:
        return None
    if answer.status != 200:
        return None
    return parse(answer.body.decode("utf-8", "replace"))


def parse(text: str) -> Counters:
    """The counters in a Prometheus text; those of several engines or reasons are added."""
    sums: dict[str, float] = {}
    for found in _LINE.finditer(text):
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if 0 <= value < 1e18:
            sums[found["name"]] = sums.get(found["name"], 0.0) + value
    fields = {
        field: next((sums[name] for name in names if name in sums), None)
        for field, names in _NAMES.items()
    }
    return Counters(**fields)


def difference(before: Counters, after: Counters | None) -> Reported | None:
    """The difference of two looks at the server's counters, if it is due to this reply alone."""
    if after is None or not (before.quiet and after.quiet):
        return None
    finished = _grown(before.finished, after.finished)
    rounds, drafted, accepted = (
        _grown(getattr(before, name), getattr(after, name))
        for name in ("rounds", "drafted", "accepted")
    )
    if finished not in {None, 1} or drafted is None or accepted is None or accepted > drafted:
        return None
    return Reported(drafted, accepted, rounds)


def _grown(before: float | None, after: float | None) -> int | None:
    return None if before is None or after is None or after < before else int(after - before)
