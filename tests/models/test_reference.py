"""The meaning of a MODEL string, in the one place that interprets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core.errors import ModelFileError, ModelNotFoundError, UsageError
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.portable import portable
from localspec.models.catalog.reference import LocalRef, PairRef, on_hub, reference
from localspec.models.gguf.model_file import ModelFile


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, cache and configuration."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    catalog.cache_clear()
    yield
    catalog.cache_clear()


def in_cache(repo: str) -> None:
    folder = Path("../hub") / f"models--{repo.replace('/', '--')}" / "snapshots" / "c"
    folder.mkdir(parents=True)


@pytest.mark.parametrize("name", [".", "/"])
def test_a_folder_without_a_name_of_its_own_is_one_file_that_is_none(name: str) -> None:
    found = reference(name)
    assert isinstance(found, LocalRef)
    with pytest.raises(ModelFileError, match=r"[Ii]s a directory"):
        _ = ModelFile(found.path).header


def test_a_name_that_is_too_long_for_a_file_is_none() -> None:
    assert reference(f"{'a' * 300}/b") == HubRef(f"{'a' * 300}/b")


def test_a_name_of_the_catalogue_is_a_pair_even_where_a_file_has_that_name() -> None:
    Path("demo").touch()
    assert reference("demo") == PairRef(catalog()["demo"])
    assert portable("demo") == "demo"
    assert on_hub(reference("demo")) is None


def test_what_exists_is_local_and_a_file_is_never_looked_for_on_the_hub() -> None:
    Path("user").mkdir()
    Path("user/repo").touch()
    ref = reference("user/repo")
    assert ref == LocalRef(Path("user/repo"), HubRef("user/repo"))
    assert on_hub(ref) is None
    assert portable("user/repo") == str(Path("user/repo").resolve())


def test_a_folder_is_local_and_still_names_the_repository_to_commands_of_the_hub() -> None:
    Path("user/repo").mkdir(parents=True)
    assert isinstance(reference("user/repo"), LocalRef)
    assert on_hub(reference("user/repo")) == HubRef("user/repo")


def test_a_missing_gguf_is_a_path_unless_the_cache_has_that_repository() -> None:
    name = "models/some.gguf"
    assert reference(name) == LocalRef(Path(name), HubRef(name))
    assert reference("some.gguf") == LocalRef(Path("some.gguf"), None)
    in_cache(name)
    assert reference(name) == HubRef(name)
    assert reference("user/repo:some.gguf") == HubRef("user/repo", "some.gguf")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("user/repo", HubRef("user/repo")),
        ("user/repo:Q4_K_M", HubRef("user/repo", "Q4_K_M")),
        ("user/repo@v2:Q4_K_M", HubRef("user/repo", "Q4_K_M", "v2")),
        ("hf.co/user/repo:Q8_0", HubRef("user/repo", "Q8_0")),
        ("https://huggingface.co/user/repo/tree/v2", HubRef("user/repo", None, "v2")),
    ],
)
def test_names_and_links_of_the_hub_are_hub_references(name: str, meant: HubRef) -> None:
    assert reference(name) == meant == on_hub(reference(name))
    assert portable(name) == name


def test_a_name_that_can_be_nothing_is_refused_with_similar_names() -> None:
    with pytest.raises(ModelNotFoundError, match=r"did you mean .*qwen3-8b"):
        reference("qwen3-8")
    with pytest.raises(UsageError, match="empty"):
        reference("  ")


def test_a_path_stays_portable_where_the_catalogue_cannot_be_read() -> None:
    Path("some.gguf").touch()
    Path("../home/config").mkdir(parents=True)
    Path("../home/config/models.toml").write_text("[broken")
    assert portable("some.gguf") == str(Path("some.gguf").resolve())
    assert portable("user/repo") == "user/repo"
    with pytest.raises(UsageError):
        reference("some.gguf")
