"""A short part of the searches with damaged inputs; scripts/search_faults has the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("limits and processes of Linux", allow_module_level=True)

from faults import cases, limits
from faults.mutations import Chance, in_bytes
from faults.registry import SEARCHES
from faults.runner import Runner

pytestmark = pytest.mark.slow
NUMBER = {"chat_import": 10, "chat_database": 10, "template": 10, "pulls": 8, "commands": 2}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*cases.CASES, "pipe"])
def test_no_damaged_input_ends_otherwise_than_in_a_result_or_a_documented_error(
    name: str, tmp_path: Path
) -> None:
    found: list[str] = []
    search = SEARCHES[name](tmp_path)
    runner = Runner({name: search}, found.append)
    try:
        for seed in range(NUMBER.get(name, 15)):
            runner.one(name, 1_000_000 + seed)
    finally:
        search.close()
    assert found == []


KNOWN = """
import os, signal
from faults import cases


def known(chance, folder):
    chance.makes("nothing")
    {}


cases.CASES["known"] = known
from faults import limits

limits._serve("known")
"""


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("raise KeyError('a defect')", "KeyError"),
        ("os.abort()", "SIGABRT"),
        ("return str(len(bytes(3 << 30)))", "MemoryError"),
        ("signal.raise_signal(signal.SIGPROF)", "10 s of computing"),
    ],
)
def test_what_looks_for_faults_finds_them(case: str, what: str, tmp_path: Path) -> None:
    script = tmp_path / "known.py"
    script.write_text(KNOWN.format(case))
    process = limits.Limited("known", script)
    try:
        for seed in range(2):  # also after a process that ended
            wrong, _ = process.run(seed)
            assert what in (wrong or "")
    finally:
        process.close()


UNSEEN = """
from faults import adapter_files, limits

adapter_files.require_fitting = lambda *_: None
limits._serve("adapters")
"""


def test_an_adapter_that_nobody_looked_at_ends_llama_cpp(tmp_path: Path) -> None:
    script = tmp_path / "unseen.py"
    script.write_text(UNSEEN)
    process = limits.Limited("adapters", script)
    try:
        found = [process.run(seed)[0] or "" for seed in range(25)]
    finally:
        process.close()
    assert any("SIG" in wrong for wrong in found)


def test_a_change_that_is_left_out_is_not_made() -> None:
    raw = bytes(5000)
    seed = next(f"{n}" for n in range(99) if _changes(f"{n}", raw) == 3)
    assert in_bytes(raw, Chance(seed, (0, 1, 2))) == raw
    alone = Chance(seed, (0, 2))
    assert in_bytes(raw, alone) != raw
    assert len(alone.changes) == 1


def _changes(seed: str, raw: bytes) -> int:
    chance = Chance(seed)
    in_bytes(raw, chance)
    return len(chance.changes)
