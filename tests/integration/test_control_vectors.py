"""Control vectors: the logits of a model whose layers have them as a bias, exact under drafts, and
part of the key of all that is saved.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import contexts
import gguf_tools
import numpy as np
import pytest
from conftest import Files
from replies import cold_and_warm

from localspec import Options, Runtime
from localspec.core.adapter_list import Adapter, read_vectors
from localspec.core.errors import LocalspecError, ModelFileError, ModelNotFoundError, UsageError
from localspec.llama.control_vectors import ControlVectors
from localspec.loading import policy

TOKENS = np.random.default_rng(5).integers(5, 250, 24).tolist()
WIDTH, LAYERS = 64, 4


@dataclasses.dataclass(frozen=True)
class Steered:
    target: Path
    one: Path
    other: Path
    biased: Path
    """The target with 0.5 of ``one`` and -1 of ``other`` as biases of its layers."""


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Steered:
    folder, rng = tmp_path_factory.mktemp("vectors"), np.random.default_rng(9)
    target, one, other, biased = (
        folder / f"{n}.gguf" for n in ("target", "one", "other", "biased")
    )
    first = {i: rng.normal(0, 0.4, WIDTH).astype(np.float32) for i in (1, 2, 3)}
    second = {2: rng.normal(0, 0.4, WIDTH).astype(np.float32)}
    gguf_tools.write_control_vector(one, first)
    gguf_tools.write_control_vector(other, second)
    none = np.zeros(WIDTH, np.float32)
    biases = {f"blk.{i}.ffn_down.bias": 0.5 * first[i] - second.get(i, none) for i in first}
    gguf_tools.write_llama(target, layers=LAYERS, seed=3)
    gguf_tools.write_llama(biased, layers=LAYERS, seed=3, biases=biases)
    return Steered(target, one, other, biased)


def logits(path: Path, *chosen: Adapter) -> np.ndarray:
    return contexts.logits(path, TOKENS, gpu_layers=0, vectors=ControlVectors(chosen))


def test_two_vectors_at_their_scales_are_biases_of_the_layers(steered: Steered) -> None:
    base = logits(steered.target)
    found = logits(steered.target, Adapter(steered.one, 0.5), Adapter(steered.other, -1.0))
    wanted = logits(steered.biased)
    assert np.abs(wanted - base).max() > 0.1
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.array_equal(logits(steered.target, Adapter(steered.one, 0.0)), base)


def options(steered: Steered, files: Files, *listed: str, **more: Any) -> Options:
    return Options(
        model=str(steered.target),
        draft=str(files.draft),
        draft_max=3,
        context=512,
        control_vector=read_vectors(listed),
        **more,
    )


@pytest.mark.parametrize("strict", [False, True])
def test_drafted_replies_are_the_plain_ones(
    steered: Steered, files: Files, *, strict: bool
) -> None:
    with Runtime.open(options(steered, files, str(steered.one), strict=strict)) as runtime:
        plain = cold_and_warm(runtime, draft=False)
        assert cold_and_warm(runtime, draft=True) == plain
        assert any("control vector one.gguf at 1" in told for told in runtime.info.notices)
    with Runtime.open(options(steered, files, strict=strict)) as runtime:
        assert cold_and_warm(runtime, draft=False) != plain


def test_what_is_saved_is_kept_apart_by_file_and_scale(steered: Steered, files: Files) -> None:
    found = []
    one, other = steered.one, steered.other
    for listed in ([], [f"{one}:0"], [str(one)], [f"{one}:0.5"], [str(other)]):
        with Runtime.open(options(steered, files, *listed)) as runtime:
            context = runtime.pair.target.context
            found.append((runtime.pair.identity, policy.costs_file(context, {})))
    assert found[0] == found[1]
    assert len(set(found)) == len(found) - 1


def wrong(folder: Path, kind: str, steered: Steered) -> Path:
    path, right = folder / f"{kind}.gguf", np.ones(WIDTH, np.float32)
    match kind:
        case "text":
            path.write_text("no vector")
        case "model":
            return steered.target
        case "width":
            gguf_tools.write_control_vector(path, {1: np.ones(32, np.float32)})
        case "layer":
            gguf_tools.write_control_vector(path, {LAYERS: right})
        case "zero":
            gguf_tools.write_control_vector(path, {0: right})
        case "type":
            gguf_tools.write_control_vector(path, {1: right.astype(np.float16)})
        case "empty":
            gguf_tools.write_control_vector(path, {})
        case "nothing":
            gguf_tools.write_control_vector(path, {1: 0 * right})
        case "cut":
            gguf_tools.write_control_vector(path, {1: right})
            path.write_bytes(path.read_bytes()[:-100])
    return path


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("missing", ModelNotFoundError, "no model file at"),
        ("text", ModelFileError, "not a GGUF file"),
        ("model", UsageError, "is no control vector but of the kind llama"),
        ("width", UsageError, "has 32 numbers, and the states of target.gguf have 64"),
        ("layer", UsageError, "is for layer 4, and target.gguf has the layers 0 to 3"),
        ("zero", UsageError, "has the tensor direction.0"),
        ("type", UsageError, "is not of float32 numbers"),
        ("empty", UsageError, "has no directions"),
        ("nothing", UsageError, "change nothing"),
        ("cut", ModelFileError, "cut"),
    ],
)
def test_what_is_no_vector_of_the_model_is_refused_in_a_line(
    steered: Steered,
    files: Files,
    tmp_path: Path,
    kind: str,
    error: type[LocalspecError],
    said: str,
) -> None:
    path = wrong(tmp_path, kind, steered)
    with pytest.raises(error, match=said) as caught:
        Runtime.open(options(steered, files, str(path)))
    assert "\n" not in str(caught.value)


def test_a_list_of_vectors_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(UsageError, match="control_vector names a file twice"):
        Options(control_vector=read_vectors(["a.gguf", "./a.gguf:2"]))
    with pytest.raises(UsageError, match=r"the scale of a\.gguf must be between"):
        read_vectors("a.gguf:nan")
    with pytest.raises(UsageError, match="control vectors are not sent to workers"):
        Options(control_vector=read_vectors("a.gguf"), rpc="127.0.0.1:50052")
