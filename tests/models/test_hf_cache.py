"""The Hugging Face cache without huggingface_hub: the same folders, found and filled the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.models.catalog import hf_cache
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.resolve import cached

COMMITS = ["a" * 40, "b" * 40]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"XDG_CACHE_HOME": "/xdg"},
        {"HF_HOME": "~/models $USER"},
        {"HF_HOME": "/home", "HF_HUB_CACHE": "$HOME/hub"},
        {"HUGGINGFACE_HUB_CACHE": "/old"},
    ],
)
def test_the_folder_is_huggingface_hubs(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    probe = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=os.environ
    )
    assert str(hf_cache.cache_folder()) == done.stdout.strip()


def placed(commit: str, file: str, content: bytes, tag: str) -> Path:
    part = hf_cache.partial("u/r", tag)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)
    return hf_cache.place("u/r", commit, file, tag, part)


def test_a_file_is_found_at_its_commit_or_by_its_hash(tmp_path: Path) -> None:
    assert hf_cache.find_file("u/r", "m.gguf") is None
    old = placed(COMMITS[0], "m.gguf", b"old", "1" * 64)
    new = placed(COMMITS[1], "m.gguf", b"new", "2" * 64)
    assert old.read_bytes() == b"old"
    assert old.is_symlink()
    assert not old.readlink().is_absolute()
    assert hf_cache.find_file("u/r", "m.gguf", COMMITS[0]) == old
    assert hf_cache.find_file("u/r", "m.gguf", "c" * 40, "1" * 64) == old
    assert hf_cache.find_file("u/r", "m.gguf", "c" * 40) is None
    hf_cache.write_ref("u/r", "main", COMMITS[1])
    assert hf_cache.find_file("u/r", "m.gguf") == new
    hf_cache.write_ref("u/r", "main", COMMITS[0])
    assert hf_cache.find_file("u/r", "m.gguf") == old
    assert hf_cache.repos() == ["u/r"]


def test_one_content_is_kept_once_and_a_dangling_link_is_no_file() -> None:
    first = placed(COMMITS[0], "sub/m.gguf", b"same", "1" * 64)
    second = hf_cache.place("u/r", COMMITS[1], "sub/m.gguf", "1" * 64, None)
    assert first.resolve() == second.resolve()
    assert hf_cache.cached_files(second.parents[1]) == {"sub/m.gguf": 4}
    second.resolve().unlink()
    assert hf_cache.cached_files(second.parents[1]) == {}
    assert hf_cache.find_file("u/r", "sub/m.gguf", COMMITS[0]) is None


def test_a_file_system_without_links_keeps_the_file_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = placed(COMMITS[0], "m.gguf", b"whole", "1" * 64)
    assert path.read_bytes() == b"whole"
    assert not path.is_symlink()
    assert hf_cache.find_file("u/r", "m.gguf", COMMITS[0]) == path


def test_a_damaged_note_of_a_branch_is_none() -> None:
    hf_cache.write_ref("u/r", "main", COMMITS[0])
    (hf_cache.repo_folder("u/r") / "refs" / "main").write_bytes(b"\xff\xfe")
    assert hf_cache.ref("u/r") is None


@pytest.mark.parametrize("tag", [None, "sub/"])
def test_what_an_interrupted_pull_left_hides_no_whole_model(tag: str | None) -> None:
    left = "sub/m-Q4_K_M-00001-of-00002.gguf"
    placed(COMMITS[0], left, b"GGUF", "1" * 64)
    assert cached(HubRef("u/r", tag)) is None
    whole = placed(COMMITS[0], "sub/m-Q8_0.gguf", b"GGUF", "2" * 64)
    assert cached(HubRef("u/r", tag)) == whole
    assert cached(HubRef("u/r", "Q4_K_M")) is None
    assert cached(HubRef("u/r", left)) is None
