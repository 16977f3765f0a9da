"""A short part of the kills at random moments, and that they and the soak find what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("pseudo-terminals and /proc", allow_module_level=True)

from faults import kills
from faults.kill_windows import KillWindows
from faults.kill_writers import Writer
from faults.registry import SEARCHES
from faults.runner import Runner
from faults.soak import Sample, Soak


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "seeds"), [("kills", (0, 4)), ("interface", (9,)), ("windows", (0, 9, 11, 12))]
)
def test_the_first_kills_lose_nothing(name: str, seeds: tuple[int, ...], tmp_path: Path) -> None:
    found: list[str] = []
    search = SEARCHES[name](tmp_path)
    runner = Runner({name: search}, found.append)
    try:
        for seed in seeds:
            runner.one(name, seed)
    finally:
        search.close()
    assert found == []


_IN_PLACE = """
import sys, time
with open(sys.argv[1], "w") as file:
    for _ in range(20):
        file.write("half ")
        file.flush()
        time.sleep(0.02)
    file.write("whole")
"""


class InPlace(Writer):
    """Writes over a file, as nothing of ours does."""

    def prepare(self, folder: Path) -> None:
        (folder / "file").write_text("whole")

    def line(self, folder: Path) -> list[str]:
        return [sys.executable, "-c", _IN_PLACE, str(folder / "file")]

    def wrong(self, folder: Path, *, finished: bool) -> str | None:
        return None if "whole" in (folder / "file").read_text() else "the file is half"


@pytest.mark.slow
def test_a_file_that_is_written_in_place_is_found_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "WRITERS", (InPlace,))
    search = kills.Kills(tmp_path)
    found = [search.wrong(kills.Case(0, "InPlace", moment)) for moment in (0.5, 0.6, 0.7, 0.8)]
    assert "the file is half" in found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("defect", "what", "first"),
    [
        ("forgets", "what was erased is there", 2),
        ("together", "nothing can be saved", 2),
        ("overwrites", "lost: ", 1),
        ("hang", " follows ", 7),
    ],
)
def test_windows_that_bring_back_overwrite_or_stop_saving_are_found(
    defect: str, what: str, first: int, tmp_path: Path
) -> None:
    """``first`` is a seed that mostly finds it."""
    search = KillWindows(tmp_path, defect)
    seeds = (first, *range(1, 9))
    assert any(what in (search.wrong(search.case(seed)) or "") for seed in seeds)


def test_what_grows_in_a_soak_is_told_and_what_is_flat_is_not(tmp_path: Path) -> None:
    flat = Sample(150, 80, 30, 12, 2, 0)
    search = Soak(tmp_path)
    for number in range(60):
        assert search.judge(flat) is None, number
    leaking = Soak(tmp_path / "other")
    told = [
        what
        for n in range(60)
        if (what := leaking.judge(Sample(150, 80, 30 + n // 2, 12, 2, 0))) is not None
    ]
    assert told
    assert "descriptors grows" in told[0]
