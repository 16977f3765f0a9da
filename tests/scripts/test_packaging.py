"""The archives that pip, pipx and package indexes get."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from llama_wheel import unpack

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
METADATA = f"localspec-{VERSION}.dist-info"


def build(target: str, source: Path, destination: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", destination]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (built,) = destination.iterdir()
    return built


def tracked(*folders: str) -> set[str]:
    command = ["git", "ls-files", "-z", "--", *folders]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip("not a git checkout")
    return set(filter(None, result.stdout.split("\0")))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source archive, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    archive = build("sdist", ROOT, folder / "built")
    unpack(archive, folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel, built from the source archive as an installer does it."""
    archive = build("wheel", sdist, tmp_path_factory.mktemp("wheel") / "built")
    with zipfile.ZipFile(archive) as bundle:
        yield bundle


@pytest.mark.slow
def test_the_wheel_carries_both_packages_whole(wheel):
    names = set(wheel.namelist())
    wanted = {name for name in tracked("localspec", "tui") if (ROOT / name).is_file()}
    assert not wanted - names
    assert {name.split("/")[0] for name in names} == {"localspec", "tui", METADATA}


@pytest.mark.slow
def test_the_wheel_carries_the_catalogue_and_the_embedded_pair(wheel):
    names = wheel.namelist()
    assert wheel.read("localspec/models.toml") == (ROOT / "models.toml").read_bytes()
    assert "localspec/demo/MODEL_CARD.md" in names
    pair = [n for n in names if n.startswith("localspec/demo/") and n.endswith(".gguf")]
    assert len(pair) >= 2


@pytest.mark.slow
def test_the_wheel_starts_the_command_line(wheel):
    entry_points = wheel.read(f"{METADATA}/entry_points.txt").decode()
    assert "localspec = localspec.__main__:main" in entry_points.splitlines()


@pytest.mark.slow
def test_the_source_archive_can_be_worked_on(sdist):
    for name in ("LICENSE", "CHANGELOG.md", "README.md", "models.toml", "requirements/dev.lock"):
        assert (sdist / name).is_file(), name
    assert (sdist / "scripts" / "test").stat().st_mode & 0o111
    assert not (sdist / ".venv").exists()
