"""What a controller has learnt is kept, and a damaged file is as good as none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from localspec.core.files.measured import name_of
from localspec.policy import storage
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.costs import WIDTHS, Costs
from localspec.policy.storage import Knowledge


def known() -> Knowledge:
    estimate = AcceptanceEstimate()
    for i in range(20):
        estimate.learn(0.9, i % 3 > 0)
    costs = Costs({1: 0.02, 4: 0.05}, {"model": 0.001})
    return Knowledge({0: costs, 2: costs}, {("model", "greedy"): estimate})


def test_what_was_learnt_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    storage.save(path, known())
    back = storage.load(path)
    assert back is not None
    assert back.costs[2].curve() == known().costs[2].curve()
    assert back.costs[0].token_seconds_by_drafter() == {"model": 0.001}
    ours, theirs = known().acceptance["model", "greedy"], back.acceptance["model", "greedy"]
    np.testing.assert_array_equal(ours.judged, theirs.judged)
    np.testing.assert_array_equal(ours.accepted, theirs.accepted)
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, b"\xff\x00" * 50])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert storage.load(path) is None


MANY = {str(n): 0.01 for n in range(1, 2000)}


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("format", storage.FORMAT + 1),
        ("costs", {}),
        ("costs/-1", {"verify": {"1": 0.02}, "draft": {}}),
        (f"costs/{10**30}", {"verify": {"1": 0.02}, "draft": {}}),
        ("costs/0/verify", {}),
        ("costs/0/verify/0", 0.02),
        ("costs/0/verify/1", -1),
        ("costs/0/verify/1", float("nan")),
        ("costs/0/draft/model", 0),
        pytest.param("costs/0/verify", MANY, id="widths that take a minute to load"),
        pytest.param("costs/0/draft", MANY, id="as many drafters"),
        ("acceptance/0", {}),
        ("acceptance/0/judged", [1.0]),
        ("acceptance/0/accepted/12", -1),
        pytest.param("acceptance/0/accepted/12", 1e3, id="more accepted than judged"),
        ("acceptance/0/verdicts", "maybe"),
    ],
)
def test_a_file_with_one_fault_is_as_good_as_none(
    tmp_path: Path, place: str, fault: object
) -> None:
    path = tmp_path / "x.json"
    storage.save(path, known())
    content = found = json.loads(path.read_bytes())
    path.write_text(json.dumps(content))
    assert storage.load(path) is not None, "it is the fault"
    *outer, last = place.split("/")
    for key in outer:
        found = found[int(key) if isinstance(found, list) else key]
    found[int(last) if isinstance(found, list) else last] = fault
    path.write_text(json.dumps(content))
    assert storage.load(path) is None


def test_curves_of_all_widths_that_a_session_may_know_come_back(tmp_path: Path) -> None:
    """A session records widths of its own, and the next load measures others besides."""
    costs = Costs({1: 0.02})
    for n in range(1, 3 * WIDTHS):
        costs.record_pass(n, 0.02)
    costs = costs.renewed({1000 + n: 0.5 for n in range(20)}, {"model": 0.001})
    storage.save(path := tmp_path / "x.json", Knowledge({0: costs}))
    back = storage.load(path)
    assert back is not None
    assert back.costs[0].curve() == costs.curve()


def test_another_setting_has_another_file() -> None:
    assert name_of({"threads": 1}) != name_of({"threads": 2})
