"""Counters of speculation in a server's ``/metrics`` (Prometheus text), vLLM's and llama.cpp's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.core.errors import LocalspecError
from localspec.remote.connection import Connection
from localspec.remote.reported import Reported

_LINE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{[^\n]*\})? (?P<value>[0-9.eE+-]+)(?: \d+)?$", re.MULTILINE
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


async def read(connection: Connection) -> Counters | None:
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
