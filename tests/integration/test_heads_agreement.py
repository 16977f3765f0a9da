"""The trained heads say in llama.cpp, and in ggml, what PyTorch says.

`scripts/train_heads record` keeps PyTorch's logits beside the heads: of the target and the heads
with the numbers of the kept files, computed in float32. llama.cpp is given the same numbers in
float32. With 8-bit matrices it rounds what it multiplies them with to 8 bits too, and flash
attention rounds keys and values to 16, which says nothing about whether both compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads.compose import compose_mtp
from widen import widen

from localspec.core.files.paths import DEMO_DIR
from localspec.core.target import Work
from localspec.core.values import no_draft
from localspec.llama.context import Context
from localspec.llama.heads import medusa
from localspec.llama.heads.base import Eagle, Head
from localspec.llama.heads.hidden_states import (
    FinalStates,
    LayerInputs,
    NextStates,
    StoredStates,
    Tap,
)
from localspec.llama.heads.mtp import MtpLayer
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.gguf.model_file import ModelFile

HEADS = Path(__file__).parents[1] / "data" / "heads"
WIDTH, LAYERS = 256, (2, 4, 5)
NO_FLASH = 0
SIZES = {"n_ctx": 160, "n_batch": 64, "threads": 1, "kv_type": "f32"}
NEAR = 1e-2


class _Unrounded:
    """Keys and values stay float32."""

    def _adjust(self, params: Any) -> None:
        super()._adjust(params)  # type: ignore[misc]
        params.flash_attn_type = NO_FLASH


class Whole(_Unrounded, Context): ...


class WholeEagle(_Unrounded, Eagle): ...


class WholeLayer(_Unrounded, MtpLayer): ...


@dataclass(frozen=True)
class Recorded:
    """PyTorch's (starts, places, V) logits of each head."""

    tokens: list[int]
    starts: list[int]
    logits: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    with np.load(HEADS / "logits.npz") as kept:
        logits = {name: kept[name] for name in ("eagle3", "mtp", "medusa")}
        return Recorded(kept["tokens"].tolist(), kept["starts"].tolist(), logits)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target and heads with the numbers of the kept files, in float32."""
    folder = tmp_path_factory.mktemp("wide")
    widen(DEMO_DIR / "target.gguf", folder / "target.gguf")
    for name in ("eagle3", "mtp-block", "medusa"):
        widen(HEADS / f"{name}.gguf", folder / f"{name}.gguf")
    compose_mtp(folder / "target.gguf", folder / "mtp-block.gguf", folder / "mtp.gguf")
    return folder


@pytest.fixture
def opened() -> Iterator[list[Context | Model]]:
    """Objects that a test opens; closed in order from the last one."""
    parts: list[Context | Model] = []
    yield parts
    for part in reversed(parts):
        part.close()


def read(target: Context, tap: Tap, tokens: list[int]) -> np.ndarray:
    """The states (N, width of the tap) of a text that the target reads."""
    stored = StoredStates(tap)
    LlamaTarget(target, stored).read(0, tokens)
    assert stored.span(0) == (0, len(tokens))
    return stored.rows(0, 0, len(tokens))


def final_state(target: Context, tokens: list[int]) -> np.ndarray:
    """The (width,) state of the last token of a text, which passes that check drafts have."""
    stored = StoredStates(FinalStates(WIDTH))
    runner = LlamaTarget(target, stored)
    target.truncate(0, 0)
    runner.read(0, tokens[:-1])
    runner.score([Work(0, tokens[-1], no_draft("plain"))])
    runner.keep(0, [])
    assert stored.span(0) == (len(tokens) - 1, len(tokens))
    return stored.rows(0, len(tokens) - 1, len(tokens))[0].copy()


def places(head: Head, tokens: list[int], states: np.ndarray, places: int) -> np.ndarray:
    """(places, V) logits: pairs of the first tokens with the target's states, and then of one token
    a pass with the head's own.
    """
    head.truncate(0, 0)
    n = len(states)
    logits, own = head.extend(0, 0, tokens[:n], states, 1)
    found = [logits[-1].copy()]
    for i in range(n, n + places - 1):
        logits, own = head.guess(0, i, tokens[i], own[-1].copy())
        found.append(logits[-1].copy())
    return np.stack(found)


def test_the_eagle_head_says_what_pytorch_says(
    recorded: Recorded, wide: Path, opened: list[Context | Model]
) -> None:
    target, model = Model(wide / "target.gguf"), Model(wide / "eagle3.gguf", alone=False)
    context = Whole(target, **SIZES)
    head = WholeEagle(model, context, **SIZES)
    opened += [target, model, context, head]
    fused = head.fuse(read(context, LayerInputs(LAYERS, WIDTH), recorded.tokens))
    for start, right in zip(recorded.starts, recorded.logits["eagle3"], strict=True):
        found = places(head, recorded.tokens[1:], fused[:start], len(right))
        np.testing.assert_allclose(found, right, rtol=0, atol=NEAR)


def test_the_layer_for_prediction_says_what_pytorch_says(
    recorded: Recorded, wide: Path, opened: list[Context | Model]
) -> None:
    target = Model(wide / "mtp.gguf", next_layers=True)
    context = Whole(target, **SIZES)
    head = WholeLayer(target, context, **SIZES)
    opened += [target, context, head]
    states = read(context, NextStates(WIDTH), recorded.tokens)
    before = np.vstack([np.zeros_like(states[:1]), states])  # as it was trained
    for start, right in zip(recorded.starts, recorded.logits["mtp"], strict=True):
        found = places(head, recorded.tokens, before[: start + 1], len(right))
        np.testing.assert_allclose(found, right, rtol=0, atol=NEAR)


@pytest.mark.parametrize("how", [medusa.GgmlMedusa, medusa.NumpyMedusa])
def test_the_medusa_heads_say_what_pytorch_says(
    recorded: Recorded, wide: Path, opened: list[Context | Model], how: type
) -> None:
    target = Model(wide / "target.gguf")
    context = Whole(target, **SIZES)
    opened += [target, context]
    states = np.stack([final_state(context, recorded.tokens[:n]) for n in recorded.starts])
    made_of = medusa.weights_of(ModelFile(wide / "medusa.gguf"), ModelFile(wide / "target.gguf"))
    given = {} if how is medusa.NumpyMedusa else {"on_gpu": False, "threads": 1}
    heads = how(made_of, **given)
    found = heads.guess(states, heads.count).swapaxes(0, 1).copy()
    heads.close()
    np.testing.assert_allclose(found, recorded.logits["medusa"], rtol=0, atol=NEAR)
