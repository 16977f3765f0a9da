"""The benchmark's arithmetic and its books; speed itself is never asserted."""

from __future__ import annotations

import json

import pytest
from conftest import Files

from localspec import Options, Runtime, cli
from localspec.bench import bench
from localspec.workloads import WORKLOADS, Workload

SHORT = Workload("short", ("abc abc abc abc", "what is this?"))


def test_every_prompt_is_measured_at_every_temperature(files: Files) -> None:
    options = Options(model=str(files.target), draft=str(files.draft), draft_max=3)
    told: list[str] = []
    with Runtime.open(options) as runtime:
        found = bench(runtime, [SHORT], (0.0, 1.0), max_tokens=24, on_progress=told.append)
    assert told == ["short, temperature 0", "short, temperature 1"]
    assert [m.temperature for m in found.results] == [0.0, 1.0]
    for m in found.results:
        assert len(m.ratios) == 2
        assert min(m.ratios) <= m.ratio <= max(m.ratios)
        assert 0 <= m.acceptance <= 1
        assert m.tokens_per_round >= 1
        assert 0 <= m.outside < 1
    assert found.spread >= 0


def test_the_command_reports_what_was_measured(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    model = [str(files.target), "-d", str(files.draft), "-n", "8", "--workload", "json"]
    assert cli.call(["bench", *model, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [r["workload"] for r in found["results"]] == ["json", "json"]
    assert cli.call(["bench", *model, "-t", "0"]) == 0
    assert "× PLAIN" in capfd.readouterr().out
    assert cli.call(["bench", *model[:3], "--workload", "juggling"]) == 2
    assert "juggling" in capfd.readouterr().err


def test_prompts_are_not_repeated() -> None:
    prompts = [p for w in WORKLOADS for p in w.prompts]
    assert len(WORKLOADS) == 8
    assert len(set(prompts)) == len(prompts)
