"""Drafts made of the target itself: written whole or not at all, exact, and measured."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Files

from localspec import Message, Options, Runtime, Sampling, cli
from localspec.bench.layer_search import candidates
from localspec.cli.make_draft import _parsed
from localspec.core.errors import Interrupted, LocalspecError, ModelNotFoundError, UsageError
from localspec.core.events import Finished
from localspec.core.interrupt import never
from localspec.llama.draft_from_target import layer_count, make
from localspec.models.gguf.header import read_header


def layers_of(path: Path) -> int:
    return layer_count(path)


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8 there")
def test_files_below_a_folder_whose_name_is_not_utf_8_are_read_and_written(
    files: Files, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    shutil.copyfile(files.target, folder / "target.gguf")
    make(folder / "target.gguf", folder / "draft.gguf", bits=None, layers=[0], cancelled=never)
    assert layers_of(folder / "draft.gguf") == 1


def test_fewer_layers_are_written_and_draft_without_changing_the_text(
    files: Files, tmp_path: Path
) -> None:
    where = tmp_path / "draft.gguf"
    make(files.target, where, bits=None, layers=[0], cancelled=never)
    assert layers_of(where) == 1
    replies = []
    for options in (
        Options(model=str(files.target), drafter=("off",)),
        Options(model=str(files.target), draft=str(where), drafter=("model",), draft_max=3),
    ):
        with Runtime.open(options) as runtime:
            *_, last = runtime.reply(
                [Message("user", "abc")], sampling=Sampling(temperature=0), max_tokens=30
            )
            assert isinstance(last, Finished)
            replies.append(last.reply)
    assert replies[0].tokens == replies[1].tokens
    assert replies[1].stats.verified > 0


def test_fewer_bits_make_a_smaller_file_of_the_same_shape(files: Files, tmp_path: Path) -> None:
    where = tmp_path / "draft.gguf"
    make(files.target, where, bits=4, layers=None, cancelled=never)
    assert where.stat().st_size < files.target.stat().st_size
    assert layers_of(where) == layers_of(files.target)
    assert read_header(where).tokens == read_header(files.target).tokens


def test_a_shard_that_is_not_there_is_named(files: Files, tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    shutil.copyfile(files.target, first)
    with pytest.raises(ModelNotFoundError, match="m-00002-of-00002"):
        make(first, tmp_path / "draft.gguf", bits=None, layers=[0], cancelled=never)


def test_a_draft_must_differ_and_layers_must_be_there(files: Files, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must differ"):
        make(files.target, tmp_path / "d.gguf", bits=None, layers=None, cancelled=never)
    for layers in ([7], []):
        with pytest.raises(UsageError, match="layers 0 to 1"):
            make(files.target, tmp_path / "d.gguf", bits=None, layers=layers, cancelled=never)


def test_no_room_is_said_before_anything_is_written(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1000))
    with pytest.raises(LocalspecError, match="1 kB free"):
        make(files.target, tmp_path / "d.gguf", bits=4, layers=None, cancelled=never)


def test_all_shards_of_a_model_need_room(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    first.write_bytes(files.target.read_bytes())
    second.write_bytes(files.target.read_bytes())
    free = first.stat().st_size + 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    with pytest.raises(LocalspecError, match="writing the draft may need"):
        make(first, tmp_path / "d.gguf", bits=4, layers=None, cancelled=never)


def test_stopped_or_failed_nothing_is_left(files: Files, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        make(files.target, tmp_path / "d.gguf", bits=4, layers=None, cancelled=lambda: True)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(files.target.read_bytes()[:20_000])
    with pytest.raises(LocalspecError, match="cannot write"):
        make(damaged, tmp_path / "d.gguf", bits=4, layers=None, cancelled=never)
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.gguf"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 12, 80])
def test_candidates_are_real_subsets(count: int) -> None:
    for layers in candidates(count):
        assert 0 < len(layers) < count
        assert list(layers) == sorted(set(layers))
        assert layers[-1] < count


def test_lists_of_layers() -> None:
    assert _parsed("0-3, 5") == [0, 1, 2, 3, 5]
    for text in ("", "x", "3-", "-3", "1,,2", "²", "1-²"):
        with pytest.raises(UsageError, match="--layers takes"):
            _parsed(text)


def test_the_command_says_where_the_draft_is(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "mine.gguf"
    target = str(files.target)
    assert cli.call(["make-draft", target, "--layers", "0", "-o", str(where)]) == 0
    said = capfd.readouterr()
    assert said.out == f"{where}\n"
    assert f"use it with: localspec chat {target} -d {where}\n" in said.err
    assert cli.call(["make-draft", target]) == 2
    assert cli.call(["make-draft", target, "--search", "--layers", "0"]) == 2
    assert cli.call(["make-draft", "nothing.gguf", "--bits", "2"]) == 3


def test_no_draft_is_written_over_its_source_even_through_a_link(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, link, hard = tmp_path / "m.gguf", tmp_path / "link.gguf", tmp_path / "hard.gguf"
    source.write_bytes(files.target.read_bytes())
    link.symlink_to(source)
    hard.hardlink_to(source)
    for where in (source, link, hard):
        for force in ([], ["--force"]):
            wanted = ["make-draft", str(source), "--layers", "0", "-o", str(where), *force]
            assert cli.call(wanted) == 2
            assert "is the file to read from" in capfd.readouterr().err
    assert source.read_bytes() == files.target.read_bytes()


def test_an_existing_file_is_overwritten_only_with_force(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "kept.gguf"
    where.write_text("something else")
    wanted = ["make-draft", str(files.target), "--layers", "0", "-o", str(where)]
    assert cli.call(wanted) == 2
    assert "exists already" in capfd.readouterr().err
    assert where.read_text() == "something else"
    searched = ["make-draft", str(files.target), "--search", "-o", str(where)]
    assert cli.call(searched) == 2  # before anything is measured
    assert "LAYERS" not in capfd.readouterr().err
    assert cli.call([*wanted, "--force"]) == 0
    assert layers_of(where) == 1


def test_files_beside_the_draft_stay_while_it_is_written(files: Files, tmp_path: Path) -> None:
    source = tmp_path / "d.part"  # the name under which an unfinished d.gguf once was written
    source.write_bytes(files.target.read_bytes())
    make(source, tmp_path / "d.gguf", bits=None, layers=[0], cancelled=never)
    assert source.read_bytes() == files.target.read_bytes()


def test_a_folder_that_is_missing_is_named(files: Files, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        make(files.target, tmp_path / "no" / "d.gguf", bits=4, layers=None, cancelled=never)


@pytest.mark.slow
def test_the_search_measures_and_decides(files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    code = cli.call(["make-draft", str(files.target), "--search"])
    said = capfd.readouterr()
    assert "LAYERS KEPT" in said.err
    assert code in {0, 1}
    assert ("no selection of its layers makes a faster draft" in said.out) == (code == 1)
