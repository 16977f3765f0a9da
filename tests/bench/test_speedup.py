"""The benchmark's arithmetic and its books; speed itself is never asserted."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Files

from localspec import GREEDY, Options, Runtime, Sampling, cli
from localspec.bench import history, speedup
from localspec.bench.speedup import Answered, Bench, Measured, Measuring, answer
from localspec.bench.tool_workloads import TOOL_WORKLOADS
from localspec.bench.workloads import WORKLOADS, Workload
from localspec.cli import bench_report
from localspec.core.events import Round, Speculation
from localspec.core.files import paths
from localspec.loading.policy import MeasuredControl

SHORT = Workload("short", ("abc abc abc abc", "what is this?"))

MEASURED = Measured(
    workload="json",
    temperature=0.0,
    ratios=(1.1, 1.5, 1.3),
    plain_speed=30.0,
    speed=39.0,
    acceptance=0.9,
    tokens_per_round=2.5,
    per_position=(0.95, 0.9, 0.8),
    lengths={0: 4, 3: 10, 7: 1},
    first_token=0.25,
    outside=0.02,
    bound=1.4,
    bound_length=3,
    predicted=3.4,
    observed=3.2,
    parked=False,
)
BENCH = Bench((MEASURED,), 0.03, {1: 0.03, 4: 0.05}, {"model": 0.002})


def test_every_prompt_is_measured_at_every_temperature(files: Files) -> None:
    options = Options(model=str(files.target), draft=str(files.draft), draft_max=3)
    with Runtime.open(options) as runtime:
        measuring = Measuring(runtime, [SHORT], (0.0, 1.0), max_tokens=24)
        told = [step.stage for step in measuring.steps() if step.prompt == 0]
        found = measuring.so_far()
    assert told == ["short, temperature 0", "short, temperature 1"]
    assert [m.temperature for m in found.results] == [0.0, 1.0]
    for m in found.results:
        assert len(m.ratios) == 2
        assert min(m.ratios) <= m.ratio <= max(m.ratios)
        assert 0 <= m.acceptance <= 1
        assert m.tokens_per_round >= 1
        assert 0 <= m.outside < 1
        assert m.bound >= 1
        assert m.first_token > 0
        assert all(0 <= a <= 1 for a in m.per_position)
    greedy = found.results[0]
    rounds = sum(greedy.lengths.values())
    assert greedy.tokens_per_round == pytest.approx(48 / rounds)
    assert found.spread >= 0
    assert found.curve[1] > 0


def test_the_command_reports_what_was_measured(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    model = [str(files.target), "-d", str(files.draft), "-n", "8", "--workload", "json"]
    assert cli.call(["bench", *model, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [r["workload"] for r in found["results"]] == ["json", "json"]
    assert found["last"] is None
    assert cli.call(["bench", *model, "-t", "0", "--details", "--history"]) == 0
    said = capfd.readouterr().out
    assert "× PLAIN" in said
    assert "acceptance by position" in said
    assert "against the run of " in said
    assert cli.call(["bench", *model[:3], "--workload", "juggling"]) == 2
    assert "juggling" in capfd.readouterr().err


def test_flags_of_sampling_and_the_seed_hold_for_what_is_measured(
    files: Files, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Sampling, int]] = []

    def recorded(
        runtime: Runtime, question: Any, sampling: Sampling, seed: int, *more: Any, **others: Any
    ) -> Answered:
        asked.append((sampling, seed))
        return answer(runtime, question, sampling, seed, *more, **others)

    monkeypatch.setattr(speedup, "answer", recorded)
    model = ["bench", str(files.target), "-d", "none", "-n", "4", "--workload", "chat", "-t", "1"]
    flags = ["--top-k", "3", "--repeat-penalty", "1.5", "--seed", "77"]
    assert cli.call([*model, *flags, "--json"]) == 0
    measured = asked[5:]  # after the warm-up
    assert {s for s, _ in measured} == {Sampling(temperature=1.0, top_k=3, repeat_penalty=1.5)}
    assert min(seed for _, seed in measured) == 77
    assert cli.call([*model, "--json"]) == 0
    last = [json.loads(line) for line in capfd.readouterr().out.splitlines()][-1]["last"]
    assert last is None  # a run of other settings is no earlier run of these
    assert cli.call([*model, *flags, "--against", "llama-cpp-python"]) == 2
    assert "--against samples with -t, --top-k, --top-p and --min-p" in capfd.readouterr().err


def test_the_report_keeps_within_80_columns() -> None:
    wide = dataclasses.replace(MEASURED, workload="summarising", temperature=1.0)
    lines = [bench_report.HEAD, *map(bench_report.row, (wide, MEASURED))]
    lines += [*bench_report.closing(BENCH), *bench_report.details(BENCH)]
    assert [line for line in lines if len(line) > 80] == []


def test_the_median_is_what_counts_and_all_workloads_weigh_alike() -> None:
    other = dataclasses.replace(MEASURED, ratios=(0.9,))
    assert MEASURED.ratio == 1.3
    assert dataclasses.replace(BENCH, results=(MEASURED, other)).mean_ratio == pytest.approx(
        (1.3 * 0.9) ** 0.5
    )


def test_a_restless_machine_concludes_nothing() -> None:
    restless = dataclasses.replace(BENCH, spread=0.3)
    assert "nothing can be concluded" in bench_report.closing(restless)[-1]
    assert "concluded" not in bench_report.closing(BENCH)[-1]


def test_a_run_is_compared_with_the_last_one_of_its_setting(tmp_path: Path) -> None:
    book = tmp_path / "history.jsonl"
    assert history.last(book, "a") is None
    history.add(book, "a", BENCH, threads=2)
    history.add(book, "b", dataclasses.replace(BENCH, results=()), threads=1)
    with book.open("a", encoding="utf-8") as file:
        file.write('{"format": 1, "setting": "a"\nnonsense\n{"format": 99, "setting": "a"}\n')
    past = history.last(book, "a")
    assert past is not None
    assert past.ratios == {("json", 0.0): 1.3}
    faster = dataclasses.replace(MEASURED, ratios=(1.43,))
    lines = bench_report.changes(dataclasses.replace(BENCH, results=(faster,)), past, 2)
    assert lines[0] == f"against the run of {past.when} UTC:"
    assert lines[1].split() == ["json", "0", "1.30", "->", "1.43", "+10%"]


def test_a_run_on_other_threads_is_compared_and_said(tmp_path: Path) -> None:
    """The number of threads is measured at each start, so it is not a part of the setting."""
    book = tmp_path / "history.jsonl"
    history.add(book, "a", BENCH, threads=2)
    past = history.last(book, "a")
    assert past is not None
    assert "on 2 threads (now 1)" in bench_report.changes(BENCH, past, 1)[0]


def test_a_picture_is_drawn_and_one_that_cannot_be_is_said(
    tmp_path: Path, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    bench_report.plot(BENCH, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    model = [str(files.target), "-d", "none", "-n", "4", "--workload", "json", "-t", "0"]
    assert cli.call(["bench", *model, "--plot", str(tmp_path / "no" / "speed.png")]) == 1
    assert "cannot write the picture" in capfd.readouterr().err


def test_tune_prints_the_curve_and_keeps_it(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    # What is kept is kept by the number of threads, which would be measured anew each time.
    model = [str(files.target), "-d", str(files.draft), "--threads", "1"]
    assert cli.call(["tune", *model]) == 0
    said = capfd.readouterr().out
    assert "TOKENS" in said
    assert "a token drafted by model" in said
    [kept] = (paths.cache_dir() / "costs").glob("*.json")
    before = json.loads(kept.read_text())["costs"]["0"]["verify"]
    assert cli.call(["tune", *model, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert json.loads(kept.read_text())["costs"]["0"]["verify"] == found["verify"]
    assert found["verify"] != before
    assert [c["acceptance"] for c in found["chosen"]] == [0.5, 0.7, 0.8, 0.9, 0.95, 0.99]


def test_tune_on_a_full_disk_says_what_to_do(
    files: Files, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MeasuredControl, "save", full)
    assert cli.call(["tune", str(files.target), "-d", str(files.draft), "--threads", "1"]) == 1
    said = capfd.readouterr()
    assert "cannot be saved: No space left on device; free some space" in said.err
    assert "best draft length" in said.out, "all of it was measured"
    assert "incomplete" not in said.out


def test_there_is_nothing_to_tune_without_a_drafter(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["tune", str(files.target), "--drafter", "off"]) == 2
    assert "decoded plainly" in capfd.readouterr().err


def test_a_call_that_the_grammar_forces_is_counted_apart_and_the_same_text_as_plain() -> None:
    calls, results = TOOL_WORKLOADS
    with Runtime.open(Options(threads=1)) as runtime:
        measuring = Measuring(runtime, [calls, results], (0.0,), max_tokens=48)
        list(measuring.steps())
        found = measuring.so_far()
        plain, drafted = (
            answer(runtime, calls.questions[0], GREEDY, 0, 48, draft=draft).reply
            for draft in (False, True)
        )
    assert plain.text == drafted.text
    assert "search_files" in plain.text or "read_file" in plain.text or "add" in plain.text
    forced, free = found.results
    assert 0.2 < forced.forced < 1
    assert free.forced == 0
    (line,) = [line for line in bench_report.closing(found) if "forced" in line]
    assert line.startswith(f"tool calls, temperature 0: the grammar forced {forced.forced:.0%} of")
    assert 0 <= forced.guessed <= forced.acceptance <= 1
    assert free.guessed == free.acceptance


def test_tools_are_not_asked_for_where_only_texts_can_be(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--workload", "tool calls", "--against", "llama-cpp-python"]
    assert cli.call(words) == 2
    assert "no workload called 'tool calls'" in capfd.readouterr().err


def test_prompts_are_not_repeated() -> None:
    prompts = [p for w in (*WORKLOADS, *TOOL_WORKLOADS) for p in w.prompts]
    assert len(WORKLOADS) == 8
    assert len(set(prompts)) == len(prompts)


def test_what_a_grammar_forced_cost_no_drafter_anything() -> None:
    on = Speculation("on")
    mixed = Round(6, 6, 6, 7, 0.1, 0.1, 0.3, "model", 9, on, forced=4, forced_accepted=4)
    forced = Round(2, 2, 2, 3, 0.1, 0.1, 0.3, "model", 9, on, forced=2, forced_accepted=2)
    assert speedup.mean_cost([mixed, forced], {"model": 0.004}) == pytest.approx(0.001)
