"""What docs/security.md promises names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
