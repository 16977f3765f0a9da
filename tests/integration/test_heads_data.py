"""The drafting heads of the embedded target, and the model composed from it with a block."""

from __future__ import annotations

from pathlib import Path

import gguf
import gguf_heads
import gguf_tools
import numpy as np
import pytest
from contexts import logits
from heads.compose import compose_mtp, value

from localspec.core.files.paths import DEMO_DIR

TARGET = DEMO_DIR / "target.gguf"
HEADS = Path(__file__).parents[1] / "data" / "heads"
TEXT = "The same text for both files: 12 and 30 is 42."
FILES = ("eagle3.gguf", "mtp-block.gguf", "medusa.gguf")


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mtp")
    block = gguf_heads.write_mtp_block(folder / "block.gguf")
    compose_mtp(TARGET, block, folder / "mtp.gguf")
    return folder / "mtp.gguf"


@pytest.mark.parametrize("name", FILES)
def test_a_kept_head_is_small_and_brings_no_copy_of_the_target(name: str) -> None:
    assert (HEADS / name).stat().st_size <= 3_000_000
    assert not {"token_embd.weight", "output.weight"} & {t.name for t in gguf_tensors(HEADS / name)}


def test_the_eagle_head_names_the_target_it_reads_from() -> None:
    reader, target = gguf.GGUFReader(HEADS / "eagle3.gguf"), gguf.GGUFReader(TARGET)
    layers = value(reader, "eagle3.target_layers")
    assert len(layers) == 3
    assert max(layers) < value(target, "llama.block_count")
    assert value(reader, "eagle3.target_hidden_size") == value(target, "llama.embedding_length")
    assert value(reader, "tokenizer.ggml.tokens") == value(target, "tokenizer.ggml.tokens")


def test_the_kept_block_goes_behind_the_demo_target(tmp_path: Path) -> None:
    compose_mtp(TARGET, HEADS / "mtp-block.gguf", tmp_path / "mtp.gguf")
    assert gguf_tensors(tmp_path / "mtp.gguf")[-1].name.startswith("blk.6.")


def test_the_medusa_heads_have_the_shapes_that_their_keys_say() -> None:
    reader, tensors = gguf.GGUFReader(HEADS / "medusa.gguf"), gguf_tensors(HEADS / "medusa.gguf")
    width, vocab = value(reader, "medusa.embedding_length"), value(reader, "medusa.vocab_size")
    shapes = {t.name: [int(n) for n in t.shape] for t in tensors}
    assert len(shapes) == 3 * value(reader, "medusa.heads") * value(reader, "medusa.blocks")
    for k in range(value(reader, "medusa.heads")):
        assert shapes[f"medusa.{k}.res.0.weight"] == [width, width]
        assert shapes[f"medusa.{k}.res.0.bias"] == [width]
        assert shapes[f"medusa.{k}.output.weight"] == [width, vocab]


def test_the_composed_header_names_one_block_to_predict_with(composed: Path) -> None:
    reader = gguf.GGUFReader(composed)
    assert value(reader, "general.architecture") == "glm4moe"
    assert value(reader, "glm4moe.block_count") == 7
    assert value(reader, "glm4moe.nextn_predict_layers") == 1
    assert value(reader, "glm4moe.leading_dense_block_count") == 6
    assert value(reader, "glm4moe.expert_weights_norm") is True


def test_the_composed_file_keeps_the_tokenizer_and_the_template(composed: Path) -> None:
    reader, source = gguf.GGUFReader(composed), gguf.GGUFReader(TARGET)
    for key in source.fields:
        if key.startswith("tokenizer."):
            assert value(reader, key) == value(source, key)


def test_every_tensor_of_target_and_block_is_in_the_composed_file(composed: Path) -> None:
    names = {t.name for t in gguf.GGUFReader(composed).tensors}
    source = {t.name.replace("ffn_norm", "post_attention_norm") for t in gguf_tensors(TARGET)}
    assert source | {t.name for t in gguf_tensors(composed.with_name("block.gguf"))} == names


def test_the_composed_trunk_computes_what_the_target_computes(tmp_path: Path) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf", seed=4)
    block = gguf_heads.write_mtp_block(tmp_path / "block.gguf", layer=2, width=64, hidden=32)
    compose_mtp(small, block, tmp_path / "mtp.gguf")
    assert np.abs(logits(small, TEXT) - logits(tmp_path / "mtp.gguf", TEXT)).max() < 1e-2


def test_the_composed_demo_target_says_what_the_demo_target_says(composed: Path) -> None:
    want, got = logits(TARGET, TEXT), logits(composed, TEXT)
    assert (want.argmax(1) == got.argmax(1)).mean() > 0.9


def test_a_block_for_another_depth_or_width_is_refused(tmp_path: Path) -> None:
    deep = gguf_heads.write_mtp_block(tmp_path / "deep.gguf", layer=9)
    with pytest.raises(ValueError, match=r"lacks blk\.6\.nextn\.eh_proj"):
        compose_mtp(TARGET, deep, tmp_path / "out.gguf")
    wide = gguf_heads.write_mtp_block(tmp_path / "wide.gguf", width=512)
    with pytest.raises(ValueError, match="width 256"):
        compose_mtp(TARGET, wide, tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out*"))


def gguf_tensors(path: Path) -> list[gguf.ReaderTensor]:
    return gguf.GGUFReader(path).tensors
