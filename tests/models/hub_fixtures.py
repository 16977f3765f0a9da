"""The Hub on loopback, a home for its cache, and a small pair to serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import huggingface_hub.constants
import pytest
from hub_server import (
    DRAFT,
    DRAFT_FILE,
    TARGET,
    TARGET_FILE,
    Hub,
    Repo,
    own_catalogue,
    sha256,
)

from localspec.models.hub import retry


@dataclass(frozen=True)
class Models:
    """Bytes of real files."""

    target: bytes
    draft: bytes
    foreign: bytes
    """A draft of another vocabulary."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("served")
    words = gguf_tools.foreign_vocabulary(50)

    def made(name: str, **settings: object) -> bytes:
        return gguf_tools.write_llama(folder / name, **settings).read_bytes()  # type: ignore[arg-type]

    return Models(
        made("target.gguf", layers=2, width=128, seed=3),
        made("draft.gguf", layers=1, width=32, seed=3),
        made("foreign.gguf", layers=1, width=32, vocabulary=words),
    )


@pytest.fixture
def hf_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "hf ünd home"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(home / "token"))
    return home


@pytest.fixture
def hub(hf_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.01)
    yield server
    server.close()


@pytest.fixture
def pair(hub: Hub, models: Models) -> tuple[Repo, Repo]:
    """``tiny`` in the user's own catalogue, pinned as the shipped ones are."""
    target = hub.repo(TARGET, {TARGET_FILE: models.target, "README.md": b"# tiny"})
    draft = hub.repo(DRAFT, {DRAFT_FILE: models.draft})
    own_catalogue(
        f"""
[tiny]
about = "a tiny pair"
target = {{ repo = "{TARGET}", file = "{TARGET_FILE}", revision = "{target.main}", sha256 = "{sha256(models.target)}", bytes = {len(models.target)} }}
draft = {{ repo = "{DRAFT}", file = "{DRAFT_FILE}", revision = "{draft.main}", sha256 = "{sha256(models.draft)}", bytes = {len(models.draft)} }}
drafting = "draft-model"
licence = "MIT"
family = "llama"
"""  # noqa: E501
    )
    return target, draft
