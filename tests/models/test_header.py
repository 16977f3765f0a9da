"""GGUF headers: what they tell, how little is fetched for it, and damaged ones."""

from __future__ import annotations

import ctypes
from pathlib import Path

import gguf
import gguf_tools
import numpy as np
import pytest
from conftest import Files
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import LocalspecError, ModelFileError, ModelNotFoundError
from localspec.llama.model import Model
from localspec.models.compat.vocabularies import vocabulary_mismatch
from localspec.models.gguf import ggml_types
from localspec.models.gguf.header import parse_header, read_header
from localspec.models.gguf.vocabulary import HeaderVocabulary


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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(tmp_path / "q.gguf")
    assert [t.n_bytes for t in header.tensors] == [6 * 8 * 34, 6 * 8 * 18]
    assert [t.shape for t in header.tensors] == [(256, 6)] * 2


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
    with pytest.raises(ModelFileError):  # the size promises more than comes
        parse_header(lambda a, b: raw[a:b], 400_000)


def test_a_count_of_layers_that_nothing_could_hold_is_damage(files: Files) -> None:
    raw = files.target.read_bytes()
    key = b"llama.block_count"
    at = raw.index(key) + len(key) + 4
    raw = raw[:at] + b"\xff" * 4 + raw[at + 4 :]
    with pytest.raises(ModelFileError, match="promises 4294967295 layers"):
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
