"""The same from an installed wheel: no checkout on the path, a home and a cache of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from hub_server import DRAFT_FILE, TARGET_FILE, Hub, Repo

pytest_plugins = ["hub_fixtures"]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that pip would put into site-packages, dependencies apart."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    (source / "README.md").touch()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_pull_run_and_rm_from_a_wheel(
    installed: Path, hub: Hub, pair: tuple[Repo, Repo], tmp_path: Path, hf_home: Path
) -> None:
    def localspec(*args: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "localspec", *args],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    where = [sys.executable, "-P", "-c", "import localspec; print(localspec.__file__)"]
    found = subprocess.run(
        where,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(installed))
    assert {p["name"] for p in json.loads(localspec("models", "--json"))} >= {"qwen3-8b", "tiny"}
    localspec("run", "x", "-m", "tiny", code=3)
    localspec("pull", "tiny", "--offline", code=3)
    localspec("pull", "tiny", "--dry-run")
    assert json.loads(localspec("pull", "tiny", "--json"))["installed"] is True
    hub.forget()
    assert "complete" in localspec("pull", "tiny")
    assert json.loads(localspec("run", "hi", "-m", "tiny", "-n", "4", "--json"))["tokens"]
    assert hub.log == []
    cache = huggingface_hub.scan_cache_dir(hf_home / "hub")
    names = {f.file_name for r in cache.repos for v in r.revisions for f in v.files}
    assert names == {TARGET_FILE, DRAFT_FILE}
    assert "freed" in localspec("rm", "tiny", "--yes")
    localspec("run", "x", "-m", "tiny", code=3)
