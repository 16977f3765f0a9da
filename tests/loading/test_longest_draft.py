"""How long drafts may be where a device has a part of the layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from localspec.core.branching import Branching
from localspec.core.plan import RequestState
from localspec.llama.context import Context
from localspec.loading import policy
from localspec.loading.policy import fixed_length, longest_draft


@pytest.mark.parametrize(
    ("on_device", "on_host", "longest"),
    [(False, True, 62), (True, False, 62), (True, True, 30)],
    ids=["processor", "device", "both"],
)
def test_passes_stay_below_the_width_at_which_weights_are_carried_to_the_device(
    on_device: bool, on_host: bool, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "has_matrix_library", lambda: False)
    context = SimpleNamespace(on_device=on_device, model=SimpleNamespace(on_host=on_host))
    assert longest_draft(cast("Context", context)) == longest


@pytest.mark.parametrize(
    ("on_device", "on_host", "longest"),
    [(False, True, 30), (True, False, 62), (True, True, 30)],
    ids=["processor", "device", "both"],
)
def test_so_they_do_where_a_matrix_library_would_round_otherwise(
    on_device: bool, on_host: bool, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "has_matrix_library", lambda: True)
    context = SimpleNamespace(on_device=on_device, model=SimpleNamespace(on_host=on_host))
    assert longest_draft(cast("Context", context)) == longest


@pytest.mark.parametrize(("on_host", "nodes"), [(False, 45), (True, 30)], ids=["device", "both"])
def test_so_do_trees_of_the_depth_that_the_user_chose(
    on_host: bool, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "sweep", lambda *_: {1: 0.01, 4: 0.02})
    context = SimpleNamespace(on_device=True, branches=8, model=SimpleNamespace(on_host=on_host))
    control = fixed_length(15, cast("Context", context), {"tree": Branching()})
    (plan,) = control.policy.plan([RequestState(0, 10, 0, "greedy")])
    assert [step.budget.nodes for step in plan.steps] == [nodes]
