"""LoRA adapters: the logits of a model with its weights changed, exact under drafts, and kept apart
from those of the model without.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import contexts
import gguf
import gguf_tools
import numpy as np
import pytest
from conftest import Files
from faults.adapter_files import ALPHA, Tensor, encoded
from gguf_tools import MATRICES
from replies import cold_and_warm

from localspec import Options, Runtime, cli
from localspec.core.adapter_list import Adapter, adapters, read
from localspec.core.errors import LocalspecError, ModelFileError, ModelNotFoundError, UsageError
from localspec.llama.adapters import Adapters
from localspec.loading import policy
from localspec.models.catalog.resolve import resolve
from localspec.models.compat.adapters import require_fitting
from localspec.models.gguf.ggml_types import TYPES
from localspec.models.gguf.model_file import ModelFile

TOKENS = np.random.default_rng(5).integers(5, 250, 24).tolist()


@dataclass(frozen=True)
class Adapted:
    """An adapter of the test's target, another one, and targets with their weights changed."""

    one: Path
    other: Path
    merged: Path
    """The target and 0.5 of ``one``, and -1 of ``other``."""


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    folder = tmp_path_factory.mktemp("adapters")
    one, other, merged = (folder / f"{name}.gguf" for name in ("one", "other", "merged"))
    first = gguf_tools.write_lora(one, MATRICES, seed=1)
    second = gguf_tools.write_lora(other, MATRICES, seed=2, rank=2)
    added = {name: 0.5 * first[name] - second[name] for name in MATRICES}
    gguf_tools.write_llama(merged, layers=2, seed=3, added=added)
    return Adapted(one, other, merged)


def logits(path: Path, chosen: tuple[Adapter, ...] = (), **more: Any) -> np.ndarray:
    return contexts.logits(path, TOKENS, gpu_layers=0, adapters=Adapters(chosen), **more)


def test_two_adapters_at_their_scales_are_the_model_with_its_weights_changed(
    files: Files, adapted: Adapted
) -> None:
    base = logits(files.target)
    found = logits(files.target, (Adapter(adapted.one, 0.5), Adapter(adapted.other, -1.0)))
    wanted = logits(adapted.merged)
    assert np.abs(wanted - base).max() > 0.5
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_a_scale_of_zero_is_the_model_without_it(files: Files, adapted: Adapted) -> None:
    assert np.array_equal(logits(files.target, (Adapter(adapted.one, 0.0),)), logits(files.target))


def test_our_kernels_compute_with_an_adapter(tmp_path: Path) -> None:
    """The embedded target has 4-bit weights: with ours and llama.cpp's, the adapter adds the same,
    as far as the two agree without it.
    """
    target = resolve("demo", None).target
    shapes = {
        t.name: (t.shape[1], t.shape[0])
        for t in target.header.tensors
        if t.name.endswith(("attn_q.weight", "ffn_down.weight", "attn_output.weight"))
    }
    gguf_tools.write_lora(
        tmp_path / "lora.gguf", shapes, strength=1.5, arch=target.header.architecture
    )
    chosen = (Adapter(tmp_path / "lora.gguf"),)
    with_own = {own: logits(target.path, chosen, own_kernels=own) for own in (True, False)}
    without = {own: logits(target.path, own_kernels=own) for own in (True, False)}
    effect = np.abs(with_own[False] - without[False]).mean()
    differ = np.abs(with_own[True] - with_own[False]).mean()
    usual = np.abs(without[True] - without[False]).mean()
    assert effect > 10 * usual
    assert differ < 3 * usual + 1e-4


def options(files: Files, *listed: str, **more: Any) -> Options:
    return Options(
        model=str(files.target), draft=str(files.draft), draft_max=3, lora=read(listed), **more
    )


def test_drafted_replies_are_the_plain_ones_and_drafts_are_accepted(
    files: Files, adapted: Adapted
) -> None:
    with Runtime.open(options(files, f"{adapted.one}:0.3")) as runtime:
        plain = cold_and_warm(runtime, draft=False)
        assert cold_and_warm(runtime, draft=True) == plain
    with Runtime.open(options(files)) as runtime:
        assert cold_and_warm(runtime, draft=False) != plain
    with Runtime.open(options(files, f"{adapted.one}:0")) as runtime:
        bare = cold_and_warm(runtime, draft=False)
    with Runtime.open(options(files)) as runtime:
        assert cold_and_warm(runtime, draft=False) == bare


def test_what_is_saved_is_kept_apart_by_file_and_scale(files: Files, adapted: Adapted) -> None:
    found = []
    lists = ([], [f"{adapted.one}:0"], [str(adapted.one)], [f"{adapted.one}:0.5"])
    for listed in (*lists, [str(adapted.other)], [str(adapted.one), str(adapted.other)]):
        with Runtime.open(options(files, *listed)) as runtime:
            context = runtime.pair.target.context
            found.append((runtime.pair.identity, policy.costs_file(context, {})))
    assert found[0] == found[1]
    assert len(set(found)) == len(found) - 1


def test_the_info_of_a_pair_names_its_adapters(files: Files, adapted: Adapted) -> None:
    with Runtime.open(options(files, f"{adapted.one}:0.25", f"{adapted.other}:0")) as runtime:
        assert any(
            "adapter one.gguf at 0.25" in notice and "other" not in notice
            for notice in runtime.info.notices
        )


def test_show_lists_adapters_and_leaves_them_room(
    files: Files, adapted: Adapted, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--lora", f"{adapted.one}:0.5", "--lora", str(adapted.other)]
    assert cli.call(["show", str(files.target), *named, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(Path(one["path"]).name, one["scale"]) for one in facts["adapters"]] == [
        ("one.gguf", 0.5),
        ("other.gguf", 1.0),
    ]
    assert all(one["bytes"] > 0 for one in facts["adapters"])
    assert cli.call(["show", str(files.target), *named]) == 0
    assert "one.gguf at 0.5" in capsys.readouterr().out
    assert cli.call(["show", str(files.target), "--lora", str(files.draft)]) == 2
    assert "is no adapter" in capsys.readouterr().err


def wrong(folder: Path, kind: str, target: Path) -> Path:
    path = folder / f"{kind}.gguf"
    one = {"blk.0.attn_q.weight": (64, 64)}
    match kind:
        case "missing":
            pass
        case "text":
            path.write_text("no model")
        case "model":
            return target
        case "arch":
            gguf_tools.write_lora(path, one, arch="qwen2")
        case "shape":
            gguf_tools.write_lora(path, {"blk.0.attn_q.weight": (64, 32)})
        case "tensor":
            gguf_tools.write_lora(path, {"blk.9.attn_q.weight": (64, 64)})
        case "half":
            gguf_tools.write_lora(path, one, halves=["lora_a"])
        case "empty":
            gguf_tools.write_lora(path, {})
        case "cut":
            gguf_tools.write_lora(path, one)
            path.write_bytes(path.read_bytes()[:-300])
        case _:
            path.write_bytes(ODD[kind])
    return path


A, B = Tensor("blk.0.attn_q.weight.lora_a", (64, 4)), Tensor("blk.0.attn_q.weight.lora_b", (4, 64))
HIDDEN = "blk.0.attn_k.weight.lora_{}\0_norm.weight"
UNSIGNED = struct.pack("<II", 4, 8)
ODD = {
    "integers": encoded("llama", (A, replace(B, kind=TYPES["I32"]))),
    "doubles": encoded("llama", (replace(A, kind=TYPES["F64"]), B)),
    "dimensions": encoded("llama", (replace(A, shape=(64, 4, 2)), B)),
    "tied": encoded(
        "llama",
        (
            Tensor("token_embd.weight.lora_a", (4, 259)),
            Tensor("token_embd.weight.lora_b", (4, 64)),
        ),
    ),
    "name": encoded(
        "llama",
        (
            *(A, B, replace(A, name=HIDDEN.format("a"))),
            Tensor(HIDDEN.format("b"), (4, 32), TYPES["I32"]),
        ),
    ),
    "key": encoded("llama", (A, B), key=ALPHA + b"\0", alpha=UNSIGNED),
    "integer": encoded("llama", (A, B), alpha=UNSIGNED),
    "nan": encoded("llama", (A, B), alpha=struct.pack("<If", 6, math.nan)),
}
"""Adapters with which llama.cpp ended the process, when it loaded or first used them, but for the
last.
"""


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("missing", ModelNotFoundError, "no model file at"),
        ("text", ModelFileError, "not a GGUF file"),
        ("model", UsageError, "is no adapter but a model"),
        ("arch", UsageError, "is for qwen2 models"),
        ("shape", UsageError, "does not fit the 64x64"),
        ("tensor", UsageError, "adapts blk.9.attn_q.weight, which target.gguf does not have"),
        ("half", ModelFileError, "has one half of blk.0.attn_q.weight alone"),
        ("empty", UsageError, "has no tensors"),
        ("cut", ModelFileError, "cut"),
        ("tied", UsageError, "token_embd.weight, which is the output matrix of target.gguf too"),
        ("integers", UsageError, "lora_b of integers.gguf is I32, which cannot be computed with"),
        ("doubles", UsageError, "lora_a of doubles.gguf is F64, which cannot be computed with"),
        ("dimensions", UsageError, "64x4x2 and 4x64, which does not fit the 64x64"),
        ("name", ModelFileError, "it has the name"),
        ("key", ModelFileError, "it has the name"),
        ("integer", ModelFileError, "an alpha that is no number"),
        ("nan", ModelFileError, "an alpha that is no number"),
    ],
)
def test_what_is_no_adapter_of_the_model_is_refused_in_a_line(
    files: Files, tmp_path: Path, kind: str, error: type[LocalspecError], said: str
) -> None:
    path = wrong(tmp_path, kind, files.target)
    with pytest.raises(error, match=said) as caught:
        Runtime.open(options(files, str(path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [1, 2])
def test_an_adapter_in_two_files_is_refused(files: Files, tmp_path: Path, part: int) -> None:
    """llama.cpp would read the tensors of one, and nobody the metadata of the other."""
    for i, name in ((1, "blk.0.attn_q.weight"), (2, "blk.1.attn_q.weight")):
        gguf_tools.write_lora(tmp_path / f"split-0000{i}-of-00002.gguf", {name: (64, 64)})
    with pytest.raises(UsageError, match="part of a split file"):
        Runtime.open(options(files, str(tmp_path / f"split-0000{part}-of-00002.gguf")))


def test_embeddings_are_adapted_where_the_output_matrix_is_another(tmp_path: Path) -> None:
    output = np.random.default_rng(1).normal(0, 0.1, (259, 64)).astype(np.float32)
    rank, whole, adapter = 4, tmp_path / "whole.gguf", tmp_path / "adapter.gguf"
    first = np.random.default_rng(2).normal(0, 0.5, (259, rank)).astype(np.float32)
    second = np.random.default_rng(3).normal(0, 0.5, (64, rank)).astype(np.float32)
    writer = gguf.GGUFWriter(adapter, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_tensor("token_embd.weight.lora_a", first)
    writer.add_tensor("token_embd.weight.lora_b", second)
    gguf_tools.written(writer)
    biases = {"output.weight": output}
    target = gguf_tools.write_llama(tmp_path / "target.gguf", seed=3, biases=biases)
    require_fitting(ModelFile(adapter), ModelFile(target))
    added = {"token_embd.weight": first @ second.T}
    gguf_tools.write_llama(whole, seed=3, biases=biases, added=added)
    found, wanted = logits(target, (Adapter(adapter),)), logits(whole)
    assert np.abs(wanted - logits(target)).max() > 0.1
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_adapters_of_another_way_are_refused(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "dora")
    writer.add_tensor("x", np.zeros((2, 2), np.float32))
    gguf_tools.written(writer)
    with pytest.raises(UsageError, match="of the kind dora"):
        require_fitting(ModelFile(path), ModelFile(files.target))


def test_a_list_of_adapters_is_read_in_every_form() -> None:
    assert adapters(read("")) == ()
    assert adapters(read("a.gguf:0.5")) == (Adapter(Path("a.gguf"), 0.5),)
    assert adapters(read("a:b.gguf")) == (Adapter(Path("a:b.gguf"), 1.0),)
    both = (Adapter(Path("a"), -2.0), Adapter(Path("b"), 1.0))
    assert adapters(read(["a:-2", '["b"]'])) == adapters(read('["a:-2", "b"]')) == both
    for text in (":1", "a:nan", "a:1000", "[5]", '{"a": 1}'):
        if text.startswith("{"):
            assert adapters(read(text)) == (Adapter(Path(text), 1.0),)
            continue
        with pytest.raises(UsageError, match=r"lora|scale"):
            read(text)
    with pytest.raises(UsageError, match="16 is the most"):
        read([f"{i}" for i in range(17)])
    with pytest.raises(UsageError, match="names a file twice"):
        adapters(json.dumps(["a:1", "./a:2"]))
