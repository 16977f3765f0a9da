"""GGUF headers: what they tell, how little is fetched for it, and damaged ones."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import gguf
import gguf_tools
import numpy as np
import pytest
from conftest import Files
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.errors import LocalspecError, ModelFileError, ModelNotFoundError
from localspec.llama.model import Model
from localspec.models.compat.header_vocabulary import HeaderVocabulary, vocabulary_mismatch
from localspec.models.gguf import ggml_types
from localspec.models.gguf.header import parse_header, read_header, read_opening
from localspec.models.gguf.source import LARGEST_HEADER
from localspec.models.gguf.vocabulary_damage import vocabulary_damage


def test_a_header_tells_what_gguf_py_tells(files: Files) -> None:
    header, reader = read_header(files.target), gguf.GGUFReader(files.target)
    assert header.architecture == "llama"
    assert (header.context, header.n_embd, header.n_layer) == (512, 64, 2)
    assert (header.n_head, header.n_head_kv, header.key_length, header.value_length) == (
        2, 1, 32, 32,
    )  # fmt: skip
    assert header.heads_kv() == (1, 1)
    assert header.template == gguf_tools.CHATML
    assert [t.decode() for t in header.tokens] == gguf_tools.byte_vocabulary()
    assert header.end == header.size == files.target.stat().st_size
    theirs = {
        t.name: (tuple(t.shape), t.tensor_type, t.n_bytes, t.data_offset) for t in reader.tensors
    }
    ours = {
        t.name: (t.shape, t.ggml_type, t.n_bytes, header.data_offset + t.offset)
        for t in header.tensors
    }
    assert ours == theirs
    assert header.weight_bytes == sum(t.n_bytes for t in header.tensors)


def test_block_sizes_are_those_of_llama_cpp() -> None:
    import llama_cpp

    path, *_ = sorted((Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.*"))
    ggml = ctypes.CDLL(str(path))
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_type_name.restype = ctypes.c_char_p
    for kind, (name, block, size) in ggml_types.BLOCKS.items():
        assert ggml.ggml_type_name(kind).decode().upper() == name.upper()
        assert (block, size) == (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind))


def test_quantized_tensors_have_their_bytes(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    weights = np.ones((6, 256), np.float32)
    kinds = [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0]
    for kind in kinds:
        data = gguf.quants.quantize(weights, kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
    gguf_tools.written(writer)
    header = read_header(tmp_path / "q.gguf")
    assert [t.n_bytes for t in header.tensors] == [6 * 8 * 34, 6 * 8 * 18]
    assert [t.shape for t in header.tensors] == [(256, 6)] * 2


def test_a_tensor_without_dimensions_has_one_value_as_llama_cpp_sees_it(tmp_path: Path) -> None:
    """Checks of heads and adapters, which ask for its first or last dimension, were defects."""
    writer = gguf.GGUFWriter(tmp_path / "scalar.gguf", "eagle3")
    writer.add_tensor("token_embd.weight", np.array(2.0, np.float32))
    gguf_tools.written(writer)
    (tensor,) = read_header(tmp_path / "scalar.gguf").tensors
    assert (tensor.shape, tensor.n_bytes) == ((1,), 4)


def test_only_the_header_is_fetched(tmp_path: Path) -> None:
    path = gguf_tools.write_llama(tmp_path / "large.gguf", width=512, layers=4)
    raw, asked = path.read_bytes(), []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return raw[start:end]

    header = parse_header(fetch, len(raw), "large")
    assert header.data_offset < 1 << 18 < len(raw)
    assert asked == [(0, 1 << 18)]


def test_a_large_vocabulary_takes_few_requests(tmp_path: Path) -> None:
    words = gguf_tools.byte_vocabulary(extra=60_000)
    path = gguf_tools.write_llama(tmp_path / "wide.gguf", width=32, vocabulary=words)
    raw, asked = path.read_bytes(), []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return raw[start:end]

    assert parse_header(fetch, len(raw)).n_vocab == len(words)
    assert len(asked) <= 4
    assert asked == sorted(asked)
    assert asked[-1][1] < len(raw) / 2


def test_the_vocabulary_is_the_one_that_llama_cpp_sees(files: Files) -> None:
    model, ours = Model(files.target), HeaderVocabulary(read_header(files.target))
    try:
        assert vocabulary_mismatch(model, ours) is None
        assert vocabulary_mismatch(ours, model) is None
        for name in ("bos", "eos"):
            assert ours.special_ids[name] == model.special_ids[name]
        assert ours.adds_bos == model.adds_bos
    finally:
        model.close()


@given(data=st.data())
def test_damage_anywhere_is_a_typed_error_or_harmless(files: Files, data: st.DataObject) -> None:
    raw = bytearray(files.target.read_bytes()[:6000])
    size = files.target.stat().st_size
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 8))
        patch = data.draw(st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\x08\0\0\0", b"\x7f"]))
        raw[at : at + len(patch)] = patch
    whole = bytes(raw) + files.target.read_bytes()[6000:]
    try:
        header = parse_header(lambda a, b: whole[a:b], size)
    except ModelFileError:
        return
    assert header.weight_bytes >= 0


@given(cut=st.integers(0, 5000))
def test_a_cut_header_is_a_typed_error(files: Files, cut: int) -> None:
    raw = files.target.read_bytes()[:cut]
    with pytest.raises(ModelFileError):
        parse_header(lambda a, b: raw[a:b], len(raw))
    with pytest.raises(ModelFileError):  # the size states more than arrives
        parse_header(lambda a, b: raw[a:b], 400_000)


def test_a_count_of_layers_that_nothing_could_hold_is_damage(files: Files) -> None:
    raw = files.target.read_bytes()
    key = b"llama.block_count"
    at = raw.index(key) + len(key) + 4
    raw = raw[:at] + b"\xff" * 4 + raw[at + 4 :]
    with pytest.raises(ModelFileError, match="states 4294967295 layers"):
        parse_header(lambda a, b: raw[a:b], len(raw))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nothing-here"):
        read_header(tmp_path / "nothing-here.gguf")
    with pytest.raises(LocalspecError, match="cannot read"):
        read_header(tmp_path)
    text = tmp_path / "page.gguf"
    text.write_text("<html>not found</html>")
    with pytest.raises(ModelFileError, match=r"page\.gguf is not a GGUF"):
        read_header(text)


def _opening(key: bytes, kind: int, count: int) -> bytes:
    """A header of one entry whose value has ``count`` bytes or entries."""
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    if kind == 8:
        return start + struct.pack("<IQ", 8, count)
    return start + struct.pack("<IIQ", 9, kind, count)


@pytest.mark.parametrize(
    ("kind", "count"), [(8, 12 << 30), (8, 5 << 20), (0, 12 << 30), (4, 5 << 20), (12, 1 << 30)]
)
def test_no_text_and_no_array_of_a_header_takes_more_than_its_budget(
    tmp_path: Path, kind: int, count: int
) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(_opening(b"general.name", kind, count))
    os.truncate(path, 13 << 30)  # sparse: the bytes that it states are there
    asked = []
    with path.open("rb") as file:

        def fetch(start: int, end: int) -> bytes:
            asked.append(end)
            file.seek(start)
            return file.read(end - start)

        with pytest.raises(ModelFileError, match="damaged"):
            parse_header(fetch, 13 << 30)
    assert asked[-1] <= LARGEST_HEADER
    assert read_opening(path) == {}


def test_many_small_texts_end_at_the_budget_of_the_header() -> None:
    text = struct.pack("<Q", 3 << 20) + b"x" * (3 << 20)
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<I", 8) + text
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 30) + entry * 30
    with pytest.raises(ModelFileError, match="larger than 64 MB"):
        parse_header(lambda a, b: raw[a:b], len(raw))


@pytest.mark.parametrize("place", [8, 16])
def test_a_count_of_tensors_or_entries_beyond_any_model_is_damage(place: int) -> None:
    raw = bytearray(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    raw[place : place + 8] = struct.pack("<Q", 1 << 18)
    with pytest.raises(ModelFileError, match="states 262144 entries"):
        parse_header(lambda a, b: bytes(raw[a:b]).ljust(b - a, b"\0"), 1 << 33)


def _vocabulary(words: dict[int, str]) -> list[str]:
    return [words.get(i, word) for i, word in enumerate(gguf_tools.byte_vocabulary())]


@pytest.mark.parametrize(
    "words", [{9: "same", 200: "same"}, {7: "a\0b", 8: "a\0c"}, {7: "\0", 8: "[EMPTY_7]"}]
)
def test_two_tokens_of_one_text_on_which_llama_cpp_aborts_are_damage(
    tmp_path: Path, words: dict[int, str]
) -> None:
    path = gguf_tools.write_llama(tmp_path / "twice.gguf", vocabulary=_vocabulary(words))
    with pytest.raises(ModelFileError, match="have the same text"):
        read_header(path)


def test_a_byte_that_is_none_and_a_marker_that_is_missing_are_damage() -> None:
    spelled = tuple(b"<0x%02X>" % byte for byte in range(256))
    texts = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": (b"a", b"b", *spelled)}
    kinds = {"tokenizer.ggml.token_type": (1, 6, *[6] * 256)}
    assert "token 1 should be a byte" in (vocabulary_damage(texts | kinds) or "")
    assert vocabulary_damage(texts) is None
    less = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": (b"a", b"b", *spelled[:-1])}
    assert "no token for the byte 0xff" in (vocabulary_damage(less) or "")
    alone = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": (b"a",)}
    alone |= {"tokenizer.ggml.add_bos_token": True}
    assert "requires bos in front" in (vocabulary_damage(alone) or "")
    assert vocabulary_damage(alone | {"tokenizer.ggml.bos_token_id": 0}) is None
