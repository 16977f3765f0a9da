"""Lines of `run`, `tune` and `doctor` about drafting say what was measured."""

from __future__ import annotations

from dataclasses import replace

from replies import STATS

from localspec.cli import tune
from localspec.cli.output import summary
from localspec.core.events import Speculation, Stats
from localspec.policy.costs import Costs

FLAT = {1: 0.010, 2: 0.0105, 4: 0.011, 8: 0.0125, 16: 0.016, 32: 0.026}
STEEP = {1: 0.010, 2: 0.025, 4: 0.060, 8: 0.130, 16: 0.280, 32: 0.600}
"""Seconds by width."""


def stats(drafted: int, speculation: Speculation) -> Stats:
    return replace(
        STATS, drafted=drafted, verified=drafted, accepted=drafted, speculation=speculation
    )


def said(passes: dict[int, float], drafts: dict[str, float]) -> list[str]:
    costs = Costs(passes, drafts)
    return [line for line in tune._lines(costs, tune._chosen(costs), 2) if "gains" in line]


def test_a_reply_that_drafted_was_parked_at_its_end_only() -> None:
    parked = Speculation("parked", "no match")
    assert "parked at the end: no match" in summary(stats(12, parked))
    assert "parked: no match" in summary(stats(0, parked))


def test_tune_calls_hopeless_what_gains_nothing_with_right_guesses_alone() -> None:
    assert said(FLAT, {"model": 0.001}) == []
    (line,) = said(FLAT, {"model": 0.0105})
    assert line.startswith("model gains nothing")
    (line,) = said(STEEP, {"model": 0.001})
    assert line.startswith("no draft gains anything")


def test_tune_says_nothing_against_lookups_where_the_draft_model_is_slow() -> None:
    (line,) = said(FLAT, {"model": 0.0105, "mtp": 0.0002})
    assert line.startswith("model")
