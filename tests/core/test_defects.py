"""Errors that nobody expected, as one line: what the machine lacks is no fault of localspec."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import defects, paths
from localspec.core.processes import children

NO_THREADS = "no more processes and threads may be started here; end other programs, or raise"
EAGAIN = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), EAGAIN])
def test_a_limit_of_processes_is_named_and_no_bug(error: Exception) -> None:
    assert str(defects.told(error)).startswith(NO_THREADS)
    assert defects.report(error).startswith(NO_THREADS)
    assert str(error) in (paths.state_dir() / "defect.log").read_text("utf-8"), "it may be another"


def test_a_file_that_is_busy_is_not_told_as_a_limit_of_processes() -> None:
    busy = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), "/dev/tty")
    assert str(defects.told(busy)) == f"{os.strerror(errno.EAGAIN)} (/dev/tty)"
    assert defects.why(busy) == os.strerror(errno.EAGAIN)


def test_a_process_that_may_not_be_started_is_told_by_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise EAGAIN

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(LocalspecError, match=f"no answer: {NO_THREADS}"):
        children.ask("localspec")


def test_a_system_without_proc_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/proc/meminfo")
    assert str(defects.told(missing)) == "No such file or directory (/proc/meminfo)"
    monkeypatch.setattr(Path, "exists", lambda _: False)
    told = str(defects.told(missing))
    assert told.startswith("/proc is not there")
    assert "meminfo" not in told
    elsewhere = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/a")
    assert str(defects.told(elsewhere)) == "No such file or directory (/a)"


def test_an_error_of_any_kind_has_an_exit_code() -> None:
    assert defects.told(UsageError("no")).exit_code == 2
    assert defects.told(MemoryError()).exit_code == 5
    assert defects.told(OSError("odd")).exit_code == 1
    bug = defects.told(ZeroDivisionError("by zero"))
    assert str(bug).startswith("this is a bug in localspec: ZeroDivisionError")
