"""A short part of the fuzz of every reader; scripts/fuzz_readers.py has the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("limits and processes of Linux", allow_module_level=True)

from faults import limits, pipe, readers

pytestmark = pytest.mark.slow
CASES = {"chat_import": 15, "chat_database": 15, "template": 20, "catalogue": 20}


@pytest.mark.parametrize("search", readers.SEARCHES, ids=lambda search: search.name)
def test_no_mutation_ends_otherwise_than_in_a_result_or_a_documented_error(
    search: readers.Search, tmp_path: Path
) -> None:
    cases = CASES.get(search.name, 60)
    assert limits.run(search.name, search.case, cases, 4, tmp_path) == []


def test_the_engine_outlives_whatever_is_sent_to_it() -> None:
    assert pipe.search(10, 4) == []


@pytest.mark.parametrize(
    ("case", "what"),
    [
        (lambda chance, folder: (_ for _ in ()).throw(KeyError("a defect")), "KeyError"),
        (lambda chance, folder: __import__("os").abort(), "SIGABRT"),
        (lambda chance, folder: bytes(3 << 30) and None, "MemoryError"),
    ],
)
def test_what_looks_for_faults_finds_them(case: limits.Case, what: str, tmp_path: Path) -> None:
    found = limits.run("known", case, 2, 1, tmp_path)
    assert len(found) == 2
    assert all(what in fault.what for fault in found)
