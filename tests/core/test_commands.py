"""Commands of others: what takes too long ends with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import PATIENCE, until

from localspec.core.processes import commands

DRIVER = 'sleep 600 & echo $! > "$0.new"; mv "$0.new" "$0"; wait'
"""Leaves the work to another process, as compilers do, and names it in the file $0."""


GROUP = "import os, sys; print(os.getpgrp()); sys.exit('said')"


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_a_command_started_ends_where_it_takes_too_long(tmp_path: Path) -> None:
    named = tmp_path / "named"
    for patience_s in (0.2, 2.0, 20.0):  # on a busy machine it starts late
        with pytest.raises(subprocess.TimeoutExpired):
            commands.run(["sh", "-c", DRIVER, str(named)], patience_s)
        if named.exists():
            break
    worker = int(named.read_text())
    try:
        until(lambda: ended(worker))
    finally:
        if not ended(worker):
            psutil.Process(worker).kill()


def test_a_command_stays_in_our_process_group_where_ctrl_c_reaches_it() -> None:
    done = commands.run([sys.executable, "-c", GROUP], PATIENCE)
    assert int(done.stdout) == os.getpgrp()
    assert (done.returncode, done.stderr) == (1, b"said\n")


def test_a_command_that_may_not_be_killed_is_one_that_took_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command under sudo is root's."""

    def denied(_process: psutil.Process) -> None:
        raise psutil.AccessDenied

    for name in ("suspend", "kill"):
        monkeypatch.setattr(psutil.Process, name, denied)
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run(["sleep", "0.3"], 0.1)
