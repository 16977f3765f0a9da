"""Which processors count for this process."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from localspec.core.processes import host
from localspec.core.processes.host import ProcessorTime

STAT = "cpu  9 9 9 9\ncpu0 1 1 1 1\ncpu2 1 1 1 1\ncpu4 1 1 1 1\nintr 7\n"
"""/proc/stat of a machine of which processors 1 and 3 are switched off."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Processors that have worked 1, 10 and 100 seconds, each of which idles and waits too."""

    def times(user: float) -> object:
        fields = user, 0, 0, 7, 5, 0, 0, 0, user, 0
        return psutil._pslinux.scputimes(*fields)

    def cpu_times(percpu: bool = False) -> object:
        return [times(1), times(10), times(100)] if percpu else times(111)

    stat = tmp_path / "stat"
    stat.write_text(STAT)
    monkeypatch.setattr(host, "_STAT", stat)
    made = SimpleNamespace(cpu_times=cpu_times, cpu_count=lambda: 3)
    monkeypatch.setattr(host, "psutil", made)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 4}, raising=False)
    return monkeypatch


def test_work_on_processors_that_this_process_may_not_run_on_is_none_of_its(
    machine: pytest.MonkeyPatch,
) -> None:
    assert host.processors() == 2
    assert host.processor_time() == ProcessorTime(110.0, 2)
    machine.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert host.processor_time() == ProcessorTime(1.0, 1)


def test_where_processors_cannot_be_told_apart_all_count(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.setattr(os, "sched_getaffinity", lambda _: {4, 40}, raising=False)
    assert host.processor_time() == ProcessorTime(
        111.0, 3
    )  # as in a container that numbers its own
    (tmp_path / "stat").unlink()
    assert host.processor_time() == ProcessorTime(111.0, 3)
    machine.delattr(os, "sched_getaffinity")
    assert host.processor_time() == ProcessorTime(111.0, 3)
    assert host.processors() == 3
