"""How long drafts may be where weights on the host are computed with elsewhere in wide passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from conftest import Files
from contexts import opened

from localspec.core.drafter_registry import Branching
from localspec.core.plan import RequestState
from localspec.llama import context as contexts
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.loading import policy
from localspec.loading.policy import fixed_length


@pytest.mark.parametrize("library", [False, True], ids=["its own kernels", "a matrix library"])
@pytest.mark.parametrize(
    ("on_device", "on_host", "handed_over"),
    [(False, True, False), (True, False, False), (True, True, True)],
    ids=["processor", "device", "both"],
)
def test_passes_stay_below_the_width_at_which_weights_on_the_host_are_handed_over(
    on_device: bool,
    on_host: bool,
    handed_over: bool,
    library: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contexts, "has_matrix_library", lambda: library)
    context = SimpleNamespace(on_device=on_device, model=SimpleNamespace(on_host=on_host))
    widest = Context.widest.fget(cast("Context", context))  # type: ignore[attr-defined]
    assert widest == (31 if handed_over or (on_host and library) else 63)


@pytest.mark.parametrize(("library", "longest"), [(False, 62), (True, 30)])
def test_so_do_all_drafts_whoever_chose_their_length(
    files: Files, library: bool, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forced tokens and a length that the user chose are limited by the target alone."""
    monkeypatch.setattr(contexts, "has_matrix_library", lambda: library)
    with opened(Model(files.target), n_ctx=256, n_batch=64) as context:
        assert LlamaTarget(context).deepest(1) == longest


@pytest.mark.parametrize(("widest", "nodes"), [(63, 45), (31, 30)])
def test_so_do_trees_of_the_depth_that_the_user_chose(
    widest: int, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "sweep", lambda *_: {1: 0.01, 4: 0.02})
    context = SimpleNamespace(branches=8, widest=widest)
    control = fixed_length(15, cast("Context", context), {"tree": Branching()})
    (plan,) = control.policy.plan([RequestState(0, 10, 0, "greedy")])
    assert [step.budget.nodes for step in plan.steps] == [nodes]
