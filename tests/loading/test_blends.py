"""What is known of requests with adapters of their own, in this session and in the next one."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.core.adapter_list import Blend
from localspec.loading import policy
from localspec.loading.policy import MeasuredControl
from localspec.policy import storage
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

BLEND = Blend((("a", 1.0),), "a")
KEY = "model", "greedy"


def control(folder: Path) -> MeasuredControl:
    """That of a new session, whose glance has found what passes take."""
    knowledge = Knowledge({0: Costs({1: 30.0, 4: 32.0}, {"model": 6.0})})
    another = partial(Controller, sources=["model"])
    nothing = Mock(), Mock(), {}
    return MeasuredControl(
        another(knowledge), *nothing, folder / "costs.json", knowledge, another=another
    )


def test_costs_of_a_blend_begin_with_those_of_the_model_and_acceptance_is_kept(
    tmp_path: Path,
) -> None:
    """What passes took with it in a slow while was believed in every later session."""
    first = control(tmp_path)
    adapted = first.policy_for(BLEND)
    assert isinstance(adapted, Controller)
    for width, seconds in ((1, 30.0), (4, 320.0)) * 60:
        adapted.costs.record_pass(width, seconds)
    assert adapted.costs.pass_seconds(4) > 5 * adapted.costs.pass_seconds(1)
    assert adapted.costs.measured_share() < 0.1, "it is looked at"
    assert first.policy.costs.pass_seconds(4) == pytest.approx(32.0), (
        "the model has costs of its own"
    )
    adapted.knowledge.acceptance[KEY] = AcceptanceEstimate()
    adapted.knowledge.acceptance[KEY].learn(0.9, accepted=True)
    first.save()
    again = control(tmp_path).policy_for(BLEND)
    assert isinstance(again, Controller)
    assert again.costs.pass_seconds(4) == pytest.approx(32.0)
    assert sum(again.knowledge.acceptance[KEY].judged) > 0


def test_what_is_doubtful_of_the_model_is_looked_at_with_a_blend_too(tmp_path: Path) -> None:
    found = control(tmp_path)
    for width, seconds in ((1, 30.0), (4, 320.0)) * 60:
        found.policy.costs.record_pass(width, seconds)
    adapted = found.policy_for(BLEND)
    assert isinstance(adapted, Controller)
    assert adapted.costs.measured_share() == found.policy.costs.measured_share() < 0.1


def blend(n: int) -> Blend:
    return Blend((("a", float(n)),), f"scale {n}")


def test_only_what_was_planned_with_since_is_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply's end rewrote the files of all blends in memory."""
    written: list[Path] = []

    def noted(path: Path, known: Knowledge) -> None:
        written.append(path)
        storage.save(path, known)

    monkeypatch.setattr(policy, "save", noted)
    found = control(tmp_path)
    found.save()
    assert written == [found.file], "what was measured at load"
    for n in range(5):
        found.policy_for(blend(n))
    written.clear()
    found.save()
    assert len({*written}) == len(written) == 5
    written.clear()
    found.save()
    assert written == []
    found.policy_for(blend(3))
    found.policy_for(Blend())
    found.save()
    assert len(written) == 2
    assert found.file in written


def test_what_could_not_be_saved_is_saved_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = control(tmp_path)
    found.policy_for(BLEND)
    with monkeypatch.context() as patch:
        patch.setattr(policy, "save", Mock(side_effect=OSError("full")))
        with pytest.raises(OSError, match="full"):
            found.save()
    found.save()
    assert len([*tmp_path.rglob("*.json")]) == 2


def test_the_files_of_countless_scales_are_bounded_and_those_used_last_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_FILES", 4)
    seen: set[Path] = set()
    for start in (0, 6):  # in sessions that follow each other too
        found = control(tmp_path)
        for n in range(start, start + 6):
            adapted = found.policy_for(blend(n))
            assert isinstance(adapted, Controller)
            adapted.knowledge.acceptance[KEY] = AcceptanceEstimate()
            found.save()
            files = [*(tmp_path / "adapters").iterdir()]
            assert len(files) <= 4
            for file in files:  # clocks of files are coarse
                if file not in seen:
                    os.utime(file, (n, n))
            seen |= {*files}
    again = control(tmp_path)
    assert again.file.exists()
    kept = [n for n in range(12) if known_of(again, n)]
    assert kept == [8, 9, 10, 11]


def known_of(found: MeasuredControl, n: int) -> bool:
    """Whether acceptance of a blend is known."""
    adapted = found.policy_for(blend(n))
    assert isinstance(adapted, Controller)
    return KEY in adapted.knowledge.acceptance


def test_blends_that_are_forgotten_unsaved_are_not_kept_for_saving(tmp_path: Path) -> None:
    found = control(tmp_path)
    for n in range(100):
        found.policy_for(blend(n))
    assert len(found.unsaved) <= 33
    found.save()
    assert not found.unsaved
