"""Medusa heads: exact whatever they guess, in step with the target, refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import gguf_tools
import head_files
import pytest

from localspec import GREEDY, Finished, Message, Options, Reply, Runtime, Sampling

WARM = Sampling(temperature=1.0)
ENDLESS = tuple((token, -100.0) for token in range(3))
"""A bias against the tokens that end a reply."""
HELLO = [Message("user", "Hello there, hello there, hello")]


def last(events: Iterator[object]) -> Reply:
    *_, end = events
    assert isinstance(end, Finished)
    return end.reply


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and heads, of random weights."""
    folder = tmp_path_factory.mktemp("medusa")
    target = gguf_tools.write_llama(folder / "target.gguf", layers=2, seed=3, context=1024)
    return target, head_files.write_medusa(folder / "heads.gguf", own=(1,))


def options(pair: tuple[Path, Path], **changes: object) -> Options:
    settings = {"model": str(pair[0]), "draft": str(pair[1]), "draft_max": 3} | changes
    return Options(**{"drafter": ("medusa",), **settings})


@pytest.mark.parametrize(
    "sampling", [GREEDY, WARM, Sampling(temperature=0.7), Sampling(repeat_penalty=1.3)]
)
@pytest.mark.parametrize("k", [1, 3, 9])
def test_heads_leave_the_text_alone(pair: tuple[Path, Path], k: int, sampling: Sampling) -> None:
    sampling = dataclasses.replace(sampling, logit_bias=ENDLESS)
    with Runtime.open(options(pair, draft_max=k)) as runtime:
        plain = last(runtime.reply(HELLO, sampling=sampling, seed=7, max_tokens=48, draft=False))
        drafted = last(runtime.reply(HELLO, sampling=sampling, seed=7, max_tokens=48))
    assert list(drafted.tokens) == list(plain.tokens)
    assert drafted.stats.drafted > 20
    assert set(drafted.stats.by_drafter) == {"medusa"}
