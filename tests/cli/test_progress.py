"""Bars and lines about downloads."""

from __future__ import annotations

import re

import pytest

from localspec.cli.progress import Bars, duration
from localspec.models.hub import download_jobs
from localspec.models.hub.download_jobs import DownloadProgress


def test_lines_say_begin_and_end_once(capfd: pytest.CaptureFixture[str]) -> None:
    bars, file = Bars(live=False), DownloadProgress("model.gguf", 5_000_000)
    bars([file])
    file.state, file.done = "fetching", 2_000_000
    for _ in range(3):
        bars([file])
    file.state, file.fetched = "done", 3_000_000
    bars([file])
    bars([file])
    assert capfd.readouterr().err.splitlines() == [
        "fetching model.gguf (5.0 MB, 2.0 MB of it already here)",
        "model.gguf: whole, fetched 3.0 MB",
    ]


def test_a_bar_a_file_with_rate_and_time_left(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(download_jobs.time, "monotonic", lambda: clock[0])
    bars = Bars(live=True)
    files = [
        DownloadProgress("a" * 60 + ".gguf", 10**9, state="fetching"),
        DownloadProgress("b.gguf", 10**6),
    ]
    for _ in range(4):
        bars(files)
        clock[0] += 1
        files[0].done += 10**8
        files[0].fetched += 10**8
    text = capfd.readouterr().err
    lines = [re.sub(r"\x1b\[\d*[AK]|\r", "", line) for line in text.splitlines()]
    assert all(len(line) < 80 for line in lines)
    assert lines[-2].endswith("30% 100.0 MB/s 0:07")
    assert lines[-1].endswith("0% queued")
    assert text.count("\x1b[2A") == 3


def test_dozens_of_shards_take_a_few_lines(capfd: pytest.CaptureFixture[str]) -> None:
    files = [DownloadProgress(f"m-{i}.gguf", 10**9, state="queued") for i in range(40)]
    files[0].state, files[1].state, files[2].state = "done", "fetching", "checking"
    Bars(live=True)(files)
    lines = capfd.readouterr().err.rstrip().split("\n")
    assert len(lines) == 6
    assert lines[-1].startswith("1 of 40 files complete")


def test_durations() -> None:
    assert [duration(s) for s in (0, 65, 3729)] == ["0:00", "1:05", "1:02:09"]
