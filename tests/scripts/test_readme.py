"""The README's examples are run as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


def test_the_python_example_of_structured_output_runs() -> None:
    page = (ROOT / "docs/structured.md").read_text(encoding="utf-8")
    example, names = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], dict[str, Any]()
    exec(compile(example, "structured.md", "exec"), names)
    assert names["person"].age <= 120


def test_every_command_is_listed() -> None:
    for name in COMMANDS:
        assert f"`{name}" in README, name


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in headings}


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in _anchors(target), f"{page.name} links to {link}"


def test_every_script_that_a_page_names_exists() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        if page.name == "LOG.md":
            continue
        for name in re.findall(
            r"`(?:python )?(scripts/[\w./-]+)", page.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
