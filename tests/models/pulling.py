"""`localspec pull` as its tests call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_server import (
    DRAFT,
    TARGET,
    Repo,
    sha256,
)

from localspec import cli
from localspec.models.catalog import hf_cache

Pair = tuple[Repo, Repo]


def pull(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    found = cli.call(["pull", *args])
    out, err = capfd.readouterr()
    assert found == code, err
    assert "Traceback" not in err
    assert "defect" not in err
    return out, err


def pulled(capfd: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    return json.loads(pull(capfd, *args, "--json")[0])


def error(capfd: pytest.CaptureFixture[str], *args: str, code: int) -> str:
    _, err = pull(capfd, *args, code=code)
    lines = [x for x in err.splitlines() if x.startswith("localspec: ")]
    assert len(lines) == 1, err
    return lines[0]


def blob(repo: str, data: bytes) -> Path:
    return hf_cache.repo_folder(repo) / "blobs" / sha256(data)


def partial_bytes() -> int:
    return sum(p.stat().st_size for r in (TARGET, DRAFT) for p in hf_cache.partials(r))


def kept_bytes(models) -> int:
    whole = [blob(TARGET, models.target), blob(DRAFT, models.draft)]
    return partial_bytes() + sum(p.stat().st_size for p in whole if p.is_file())
