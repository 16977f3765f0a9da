"""Run tests once more that failed beside others: alone, in one process, with their output shown.

python -m pytest -p scripts.rerun_failed ...    note which tests failed
python scripts/rerun_failed.py                  run those again; 1: some fail again

A machine that does much else can make a test fail though the code is in order. So what passes alone
is named at the very end, and the run succeeds (as with ``--rerun`` of CPython's regrtest). More
failures than `MOST` are no such accident, and a run that did not come to its end proves nothing
about the rest: neither is repeated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

MOST = 5
"""Failed tests that are run again."""
KEY = "localspec/failed"
RECORD = Path(".pytest_cache", "v", *KEY.split("/"))
"""File of that key in pytest's cache, seen from the root of the repository."""


class Outcomes:
    """A plugin that collects how tests ended."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


class Record(Outcomes):
    """Writes down what failed, if every test was collected and run and no process of tests died."""

    def __init__(self, cache: pytest.Cache) -> None:
        super().__init__()
        self._cache = cache
        self._whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._whole &= not report.failed

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_testnodedown(self, error: object | None) -> None:
        self._whole &= not error

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        stopped = session.shouldfail or session.shouldstop  # -x, --maxfail
        whole = self._whole and exitstatus == pytest.ExitCode.TESTS_FAILED and not stopped
        self._cache.set(KEY, sorted(self.failed) if whole else [])


def pytest_configure(config: pytest.Config) -> None:
    """Record the run where this module is a plugin of pytest, but not in the processes of xdist."""
    if not hasattr(config, "workerinput"):
        assert config.cache is not None
        config.pluginmanager.register(Record(config.cache))


def main() -> int:
    """Run the tests of the record; the exit code."""
    try:
        names: list[str] = json.loads(RECORD.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        names = []
    if not 0 < len(names) <= MOST:
        reason = f"{len(names)} tests failed" if names else "it did not come to its end"
        print(f"== not run again: {reason}")
        return 1
    print("== once more, alone, what failed", flush=True)
    alone = Outcomes()
    code = pytest.main(["-n", "0", "-m", "", "-rA", "-p", "no:cacheprovider", *names], [alone])
    passed = sorted(alone.passed - alone.failed)
    if passed:
        print("\n== PASSED ONLY WHEN RUN ALONE: these depend on load, on time, or on other tests")
        print("\n".join(f"     {name}" for name in passed))
    if code != 0 or passed != names:
        failed = sorted(set(names) - set(passed))
        print("== FAILED ALONE TOO:", *failed, sep="\n     ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
