"""Lines of `run`, `tune` and `doctor` about drafting say what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replies import STATS

from localspec.cli import tune
from localspec.cli.line_commands import Announcer
from localspec.cli.output import summary
from localspec.core import units
from localspec.core.events import Reply, Speculation, Stats
from localspec.policy.costs import Costs
from localspec.remote.probe import NOT_REPORTED

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


def test_figures_that_a_server_does_not_tell_are_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = replace(STATS, emitted=1, decode_seconds=0.0, speculation=NOT_REPORTED)
    assert summary(unknown).startswith("1 token · unknown: ")
    reply = Reply("a", (), (), "length", unknown, 1)
    Announcer().answered(reply)
    said_aloud = capsys.readouterr().err + capsys.readouterr().out
    assert "(1 token, speculation not reported" in said_aloud
    assert "per second" not in said_aloud


@pytest.mark.parametrize(
    ("seconds", "speed", "shown"),
    [
        (0.0004, 0.52, ("0.01 s", "0.5")),
        (0.04, 9.96, ("0.04 s", "10")),
        (12.34, 61.7, ("12.3 s", "62")),
    ],
)
def test_short_times_and_low_speeds_are_not_shown_as_none(
    seconds: float, speed: float, shown: tuple[str, str]
) -> None:
    assert (units.seconds(seconds), units.speed(speed)) == shown


def test_tune_calls_hopeless_what_gains_nothing_with_right_guesses_alone() -> None:
    assert said(FLAT, {"model": 0.001}) == []
    (line,) = said(FLAT, {"model": 0.0105})
    assert line.startswith("model gains nothing")
    (line,) = said(STEEP, {"model": 0.001})
    assert line.startswith("no draft gains anything")


def test_tune_says_nothing_against_lookups_where_the_draft_model_is_slow() -> None:
    (line,) = said(FLAT, {"model": 0.0105, "mtp": 0.0002})
    assert line.startswith("model")
