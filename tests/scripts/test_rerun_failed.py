"""Tests that failed beside others are run once more, alone; what that can excuse, and what not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE = """
import os
def test_beside_others(): assert "PYTEST_XDIST_WORKER" not in os.environ
def test_sound(): pass
"""
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
"""The plugin that matters here; all that are installed take a second of each process to import."""
ALWAYS = "def test_always(): print('seen again'); assert False\n"

pytestmark = pytest.mark.slow


class Runs:
    """Runs tests in a folder as scripts/test --all does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, **files: str) -> tuple[int, str]:
        """The exit code and the output, of the first run and, where there was one, of the next."""
        for name, text in files.items():
            (self.folder / f"test_{name}.py").write_text(text)
        code, said = self._python(
            "-m", "pytest", "-n", "2", "-p", "scripts.rerun_failed", *arguments
        )
        if code != 1:
            return code, said
        code, more = self._python(str(ROOT / "scripts/rerun_failed.py"))
        return code, more

    def _python(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            # With a folder of its own: else it would remove those of earlier whole runs at its end.
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "PYTEST_DEBUG_TEMPROOT": str(self.folder)}
            | PLUGINS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return Runs(tmp_path)


def test_what_passes_alone_is_named_at_the_end_and_the_run_succeeds(runs: Runs) -> None:
    code, said = runs(beside=BESIDE)
    assert code == 0
    *_, title, name = said.splitlines()
    assert "PASSED ONLY WHEN RUN ALONE" in title
    assert name.split() == ["test_beside.py::test_beside_others"]


def test_what_fails_again_fails_the_run_and_shows_its_output(runs: Runs) -> None:
    code, said = runs(beside=BESIDE, always=ALWAYS)
    assert code == 1
    assert "seen again" in said
    passed, failed = said.split("== PASSED ONLY WHEN RUN ALONE")[1].split("== FAILED ALONE TOO")
    assert "test_beside_others" in passed
    assert failed.split()[1:] == ["test_always.py::test_always"]


MANY = """
import os, pytest
@pytest.mark.parametrize("i", range(6))
def test_one_of_many(i): assert "PYTEST_XDIST_WORKER" not in os.environ
"""
CRASH = "import os\ndef test_crash(): 'PYTEST_XDIST_WORKER' in os.environ and os.abort()\n"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (MANY, ()),
        (CRASH, ()),
        ("import no_such_module\n", ()),
        (BESIDE, ("--maxfail", "1")),
        (BESIDE, ("-n", "0", "--no-such-option")),
    ],
    ids=["many", "crash", "collection", "stopped", "usage"],
)
def test_other_failures_are_not_excused(runs: Runs, text: str, arguments: tuple[str, ...]) -> None:
    code, said = runs(*arguments, text=text)
    assert code != 0
    assert "once more" not in said
    assert "ALONE" not in said
