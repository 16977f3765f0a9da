"""What a controller has learnt is kept, and a damaged file is as good as none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localspec.core.files.measured import name_of
from localspec.policy import storage
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.costs import Costs
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 99}',
        '{"format": 1, "costs": {}, "survival": []}',
        '{"format": 1, "costs": {"0": {"verify": {"1": -1}, "draft": {}}}, "survival": []}',
        '{"format": 1, "costs": {"0": {"verify": {"1": NaN}, "draft": {}}}, "survival": []}',
        '{"format": 1, "costs": {"0": {"verify": {"1": 1}, "draft": {}}}, "survival": [{}]}',
        (
            '{"format": 1, "costs": {"0": {"verify": {"1": 1}, "draft": {}}}, "survival": '
            '[{"source": "m", "kind": "k", "stood": [1], "judged": [1], "first": [1]}]}'
        ),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert storage.load(path) is None
    path.write_bytes(b"\xff\x00" * 50)
    assert storage.load(path) is None


def test_another_setting_has_another_file() -> None:
    assert name_of({"threads": 1}) != name_of({"threads": 2})
