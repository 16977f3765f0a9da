"""Every architecture whose layer for multi-token prediction llama.cpp runs drafts exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked_files import NUMBERS, write_asked
from head_files import split
from replies import HELLO, last

from localspec import GREEDY, Options, Runtime, Sampling

ENDLESS = tuple((token, -100.0) for token in range(3))
SAMPLINGS = (GREEDY, Sampling(temperature=1.0, logit_bias=ENDLESS))


def tokens(runtime: Runtime, *, draft: bool = True) -> list[list[int]]:
    """Tokens of a reply by each sampling, of a runtime that drafts by its layer."""
    assert "mtp" in runtime.info.drafters
    replies = [
        last(runtime.reply(HELLO, sampling=s, seed=5, max_tokens=24, draft=draft))
        for s in SAMPLINGS
    ]
    assert not draft or sum(reply.stats.drafted for reply in replies) > 20
    return [list(reply.tokens) for reply in replies]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", NUMBERS)
def test_a_layer_of_any_architecture_leaves_the_text_alone(
    tmp_path: Path, architecture: str
) -> None:
    own = architecture != "bailingmoe3"  # its graph knows none
    target = write_asked(tmp_path / "target.gguf", architecture, own=own)
    with Runtime.open(Options(str(target), draft_max=3, threads=1)) as inside:
        plain = tokens(inside, draft=False)
        inside.forget()
        assert tokens(inside) == plain
    by_layer = {"attention.head_count_kv", "attention.sliding_window_pattern"}
    if by_layer & NUMBERS[architecture].keys():  # these would have to be parted too
        return
    parted = tmp_path / "parted"
    parted.mkdir()
    split(target, parted / "trunk.gguf", parted / "beside.gguf")
    with Runtime.open(Options(str(parted / "trunk.gguf"), draft_max=3, threads=1)) as beside:
        assert tokens(beside) == plain
