"""What the README promises is run as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"\d+ tokens/s, acceptance \d+%", out)
    assert len(out.splitlines()[0]) > 10


def test_every_command_is_listed() -> None:
    for name in COMMANDS:
        assert f"`{name}" in README, name


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
