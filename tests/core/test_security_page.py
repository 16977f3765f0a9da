"""What docs/security.md and docs/reliability.md promise names tests and searches that are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from faults.registry import SEARCHES

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`((?:tests|scripts)/[\w/.]+)`", PAGE)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


PROMISED = PAGE.partition("## What is promised")[2].partition("## What is not promised")[0]
PROMISES = re.split(r"\n\n(?=\*\*)", PROMISED)[1:]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[2:40])
def test_a_promise_names_its_tests(promise: str) -> None:
    assert "`tests/" in promise


RELIABLE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
FAULTS = RELIABLE.partition("## What is promised")[2].partition("Not promised:")[0]


@pytest.mark.skipif(sys.platform != "linux", reason="where all searches are")
@pytest.mark.parametrize("promise", FAULTS.split("\n- ")[1:], ids=lambda promise: promise[2:40])
def test_a_promise_about_faults_names_its_searches(promise: str) -> None:
    named = re.findall(r"`(\w+)`", promise.rpartition("(")[2])
    assert named
    assert set(named) <= set(SEARCHES)


def test_every_budget_names_a_test() -> None:
    rows = re.findall(r"^\|.*\|$", PROMISED, re.MULTILINE)[2:]
    assert len(rows) > 20
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)`", row.split("|")[-2])
        assert named, row
        assert set(named) <= there, row
