"""A model's header is parsed once per load, whatever asks for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gguf_shapes
import head_files
import pytest
from conftest import Files
from head_pairs import Pair

from localspec.core.options import Options
from localspec.models.gguf import header
from localspec.models.gguf.header import read_header
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import sizes_of
from localspec.runtime import Runtime

TINY = gguf_shapes.Shape(2, 64, 128, 2, 1, head_size=32, vocabulary=300)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Parses by name of the file, from here on."""
    found: Counter[str] = Counter()
    parse = header.parse_header

    def counted(fetch: header.Fetch, size: int, name: str = "the file") -> header.Header:
        found[name] += 1
        return parse(fetch, size, name)

    monkeypatch.setattr(header, "parse_header", counted)
    return found


def load(target: Path, draft: Path | str | None) -> None:
    options = Options(str(target), draft=None if draft is None else str(draft), context=512)
    Runtime.open(options).close()


def test_a_model_alone_is_parsed_once(files: Files, parsed: Counter[str]) -> None:
    load(files.target, "none")
    assert parsed == {"target.gguf": 1}


def test_the_files_of_a_pair_are_parsed_once_each(files: Files, parsed: Counter[str]) -> None:
    load(files.target, files.draft)
    assert parsed == {"target.gguf": 1, "draft.gguf": 1}


@pytest.mark.parametrize("kind", ["mtp", "eagle3, borrowing"])
def test_a_target_and_the_head_named_for_it_are_parsed_once_each(
    head_pairs: dict[str, Pair], kind: str, parsed: Counter[str]
) -> None:
    pair = head_pairs[kind]
    load(pair.target, pair.head)
    assert set(parsed.values()) == {1}
    assert len(parsed) == 1 + (pair.head is not None)


def test_medusa_heads_and_their_target_are_parsed_once_each(
    files: Files, tmp_path: Path, parsed: Counter[str]
) -> None:
    load(files.target, head_files.write_medusa(tmp_path / "heads.gguf"))
    assert parsed == {"target.gguf": 1, "heads.gguf": 1}


def test_a_head_found_in_the_folder_of_its_target_is_parsed_once(
    head_pairs: dict[str, Pair], tmp_path: Path, parsed: Counter[str]
) -> None:
    pair = head_pairs["eagle3, borrowing"]
    assert pair.head is not None
    for path in (pair.target, pair.head):
        (tmp_path / path.name).hardlink_to(path)
    load(tmp_path / pair.target.name, None)
    assert parsed == {pair.target.name: 1, pair.head.name: 1}


def test_each_shard_is_parsed_once_and_the_header_has_the_tensors_of_all(
    tmp_path: Path, parsed: Counter[str]
) -> None:
    first = gguf_shapes.write_shape(tmp_path / "x-00001-of-00002.gguf", TINY)
    second = gguf_shapes.write_shape(tmp_path / "x-00002-of-00002.gguf", TINY)
    file = ModelFile(first)
    assert len(file.header.tensors) == 2 * len(read_header(first).tensors)
    parsed.clear()
    assert sizes_of(file.header).weights == file.header.weight_bytes
    assert file.paths == (first, second)
    assert not parsed
