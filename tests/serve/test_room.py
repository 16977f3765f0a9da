"""Whether a further model fits beside the others is asked of all its files."""

import pytest

from localspec.core.options import Options
from localspec.models.catalog.pair import LocalFile
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.machine import host_only
from localspec.serve import serving


@pytest.fixture
def split(tmp_path):
    """A model in two files, of which the second needs more memory than there is."""
    first, second = (tmp_path / f"big-{i:05}-of-00002.gguf" for i in (1, 2))
    first.write_bytes(b"GGUF")
    with second.open("wb") as file:
        file.truncate(4 * host_only().host_usable)
    return first


def test_a_model_in_several_files_is_as_large_as_all_of_them(split, monkeypatch):
    size = 4 + 4 * host_only().host_usable
    assert ModelFile(split).n_bytes == pytest.approx(size, rel=0.5)
    assert LocalFile(split).size == ModelFile(split).n_bytes
    found = []
    verdict = "localspec.models.memory.fit.verdict"
    monkeypatch.setattr(verdict, lambda _, *sizes: found.append(sizes) or "fits")
    assert serving._fits(Options(model=str(split), draft="none"))
    assert found == [(ModelFile(split).n_bytes, 0)]


def test_a_file_that_is_missing_fits_nowhere(split):
    (split.parent / "big-00002-of-00002.gguf").unlink()
    assert LocalFile(split).size is None
    assert not serving._fits(Options(model=str(split), draft="none"))
