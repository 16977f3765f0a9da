"""A grown model computes the same function, at a multiple of the cost."""

from __future__ import annotations

from pathlib import Path

import gguf
import gguf_tools
import numpy as np
import pytest
from benches import make_heads, make_pair
from heads.compose import compose_mtp

from localspec import GREEDY, Finished, Message, Options, Runtime
from localspec.core.errors import UsageError
from localspec.core.files.paths import DEMO_DIR
from localspec.llama.context import Context
from localspec.llama.model import Model


def logits(path: Path) -> np.ndarray:
    model = Model(path)
    context = Context(model, n_ctx=64, threads=1)
    tokens = model.tokenize("the same text for both")
    rows = context.forward([(0, tokens, len(tokens))])[0].copy()
    context.close()
    model.close()
    return rows


@pytest.mark.parametrize("megabytes", [4, 20])
def test_the_grown_model_has_the_size_asked_for_and_equal_logits(
    tmp_path: Path, megabytes: int
) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf", seed=4)
    large = make_pair.make(small, tmp_path / "large.gguf", megabytes / 1000)
    assert large.stat().st_size == pytest.approx(megabytes * 1e6, rel=0.15)
    assert np.abs(logits(small) - logits(large)).max() < 1e-3
    assert not list(tmp_path.glob("*.partial"))


def test_growing_is_deterministic(tmp_path: Path) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf", seed=4)
    a, b = (make_pair.make(small, tmp_path / f"{n}.gguf", 0.005).read_bytes() for n in "ab")
    assert a == b


def test_a_size_below_the_small_models_is_refused(tmp_path: Path) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf")
    with pytest.raises(UsageError, match="larger than"):
        make_pair.make(small, tmp_path / "x.gguf", 1e-6)


HEADS = Path(__file__).parents[1] / "data" / "heads"


def accepted(**files: Path) -> list[tuple[tuple[int, ...], int, int]]:
    """Tokens, drafted and accepted of some replies with a head."""
    options = Options(**{name: str(path) for name, path in files.items()}, draft_max=3)
    found = []
    with Runtime.open(options) as runtime:
        for text in ("Hello!", "What is localspec?"):
            message = [Message("user", text)]
            *_, last = runtime.reply(message, sampling=GREEDY, max_tokens=40)
            assert isinstance(last, Finished)
            stats = last.reply.stats
            assert not {"mtp", "eagle3", "medusa"}.isdisjoint(stats.by_drafter)
            found.append((tuple(last.reply.tokens), stats.drafted, stats.accepted))
    return found


@pytest.mark.slow
def test_grown_heads_draft_what_the_small_ones_draft(tmp_path: Path) -> None:
    """Their weights are quantized, so that sums of padded rows may part in the last bit."""
    small = DEMO_DIR / "target.gguf"
    large = make_pair.make(small, tmp_path / "large.gguf", 0.06)
    width = int(gguf.GGUFReader(large).fields["llama.embedding_length"].contents())
    eagle = tmp_path / "large-eagle3.gguf"
    make_heads.grow_eagle(HEADS / "eagle3.gguf", small, width, 8_000_000, eagle)
    assert eagle.stat().st_size == pytest.approx(8e6, rel=0.15)
    assert accepted(model=large, draft=eagle) == accepted(model=small, draft=HEADS / "eagle3.gguf")
    medusa = tmp_path / "large-medusa.gguf"
    make_heads.grow_medusa(HEADS / "medusa.gguf", width, medusa)
    small_heads = accepted(model=small, draft=HEADS / "medusa.gguf")
    assert accepted(model=large, draft=medusa) == small_heads
    block, whole = tmp_path / "block.gguf", tmp_path / "large-mtp.gguf"
    make_heads.grow_block(HEADS / "mtp-block.gguf", small, large, block)
    compose_mtp(large, block, whole)
    compose_mtp(small, HEADS / "mtp-block.gguf", tmp_path / "small-mtp.gguf")
    assert accepted(model=whole) == accepted(model=tmp_path / "small-mtp.gguf")
