"""Variants of a reply have seeds of their own, everywhere the same."""

import pytest

from localspec.core.sampling_params import Sampling
from localspec.core.settings_schema import SEED
from localspec.serve.requests.generation import of_choices
from tui.session.settings import Settings


@pytest.mark.parametrize("seed", [SEED.low, -2, -1, 0, SEED.high - 1, SEED.high])
def test_the_chat_and_the_server_give_variants_the_same_seeds_and_each_another(seed):
    in_chat = [Settings(Sampling(), seed=seed).request((), i).seed for i in range(4)]
    served = [request.seed for request in of_choices({"seed": seed}, 4)]
    assert in_chat == served
    assert len(set(in_chat)) == 4
    assert min(in_chat[1:]) >= 0  # -1 would ask for a new one
