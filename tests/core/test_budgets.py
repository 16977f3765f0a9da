"""What is read of files ends at a budget, in one sentence (docs/security.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.cli import output
from localspec.config import settings
from localspec.core.errors import ModelFileError, UsageError
from localspec.core.files import paths
from localspec.models.catalog import catalog
from localspec.models.gguf.safetensors import read_safetensors
from localspec.tools import servers_file
from tui.input import attachments
from tui.input.message_draft import Draft


def sparse(path: Path, size: int, start: bytes = b"") -> Path:
    """A file of zeros that takes no room."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.toml", settings.settings.__wrapped__),
        ("models.toml", catalog.catalog.__wrapped__),
        ("mcp.json", servers_file.servers),
    ],
)
def test_a_file_of_the_configuration_has_a_megabyte(name: str, read: Callable[[], object]) -> None:
    sparse(paths.make(paths.config_dir()) / name, (1 << 20) + 1)
    with pytest.raises(UsageError, match="larger than 1 MB"):
        read()


def test_a_prompt_has_sixteen_megabytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="larger than 16 MB"):
        output.read_file(str(sparse(tmp_path / "prompt", (16 << 20) + 1)))


@pytest.mark.parametrize(("length", "size"), [(100_000_001, 200_000_000), (993, 1000)])
def test_the_header_of_a_checkpoint_is_in_its_file_and_no_longer_than_100_megabytes(
    tmp_path: Path, length: int, size: int
) -> None:
    file = sparse(tmp_path / "a.safetensors", size, length.to_bytes(8, "little"))
    with pytest.raises(ModelFileError, match="is not a safetensors file"):
        read_safetensors(file)


def test_a_folder_goes_along_with_two_hundred_files_at_most(tmp_path: Path) -> None:
    for i in range(201):
        (tmp_path / f"{i}.txt").write_text("a")
    with pytest.raises(attachments.AttachError, match="more than 200 files"):
        attachments.read(Draft(f"@{tmp_path}/"))
