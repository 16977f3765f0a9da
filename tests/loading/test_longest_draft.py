"""How long drafts may be where a device has a part of the layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from localspec.llama.context import Context
from localspec.loading.policy import longest_draft


@pytest.mark.parametrize(
    ("on_device", "on_host", "longest"),
    [(False, True, 31), (True, False, 31), (True, True, 30)],
    ids=["processor", "device", "both"],
)
def test_passes_stay_below_the_width_at_which_weights_are_carried_to_the_device(
    on_device: bool, on_host: bool, longest: int
) -> None:
    context = SimpleNamespace(on_device=on_device, model=SimpleNamespace(on_host=on_host))
    assert longest_draft(cast("Context", context)) == longest
