"""The pages name places of the code that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benches.run import programs

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
_HISTORY = {"LOG.md", "CHANGELOG.md"}
"""Pages that tell what was."""
_PLACE = re.compile(
    r"`((?:[\w.-]+/)*[\w-]+\.(?:py|h|c|cpp|toml|tcss)|(?:localspec|tui|scripts|tests)(?:/[\w.-]+)+/?)`"
)


def _tracked() -> set[str]:
    found = set()
    for folder in ("localspec", "tui", "scripts", "tests", "docs", "requirements", ".ci"):
        for path in (ROOT / folder).rglob("*"):
            if "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix())
    return found | {path.name for path in ROOT.iterdir()}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in _HISTORY],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_places_that_a_page_names_exist(page: Path) -> None:
    """Written from the root, from a package on, or as the name of a module alone."""
    places = {place.rstrip("/") for place in _PLACE.findall(page.read_text(encoding="utf-8"))}
    there = _tracked()
    ends = {
        "/".join(parts[i:])
        for path in there
        for parts in [path.split("/")]
        for i in range(len(parts))
    }
    others = {"config.toml", "models.toml", "ggml-vulkan.cpp"}
    assert {place for place in places if place not in ends | others} == set()


def test_programs_that_measure_exist() -> None:
    for page in PAGES:
        named = set(re.findall(r"scripts/bench ([a-z]\w*)", page.read_text(encoding="utf-8")))
        assert page.name in _HISTORY or named <= set(programs()), page
