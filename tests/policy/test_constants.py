"""Every constant of the policy is tuned in the laboratory, or says what it is."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import localspec.policy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
FIXED = {
    "EDGES": "borders of bins: their acceptance is measured",
    "BINS": "follows from EDGES",
    "COMPUTED": "measured on the recorded evidence",
    "COPIED": "measured on the recorded evidence",
    "USUAL": "measured on the recorded evidence",
    "LATEST": "verdicts of a sentence that is shown",
    "QUIET": "rounds of a state that is shown",
    "ENOUGH": "guesses of a share that is shown",
    "BEHIND": "what a draft reads without a pause",
    "KEPT_UP": "the last token and the one that the target added",
    "UNPADDED": "how often a width that is padded from is seen, at no cost to a reply",
    "READ_EVERY": "saves the time of planning only",
    "SETTLE": "passes in which llama.cpp builds and captures graphs",
    "FIRST_ANSWER": "an index is built once",
    "FORMAT": "of the file",
    "STALLS_FADE": "how soon a stall may come again: a choice, no estimate",
    "STALLED": "times that beliefs are off by without a stall",
    "COMPANY": "what a reply may lose for others: a choice, no estimate",
    "WIDE": "rows of a usual draft",
    "WIDTHS": "bounds the time of an observation",
}
"""Constants that are not tuned: each is measured, or follows from what it describes."""

OTHERS = {"MAX_K", "NO_LIMIT"}
"""Names that the policy takes from elsewhere."""


def constants() -> dict[str, object]:
    """All numbers that modules of the policy name in upper case, by name."""
    found: dict[str, object] = {}
    for module in pkgutil.iter_modules(localspec.policy.__path__):
        found |= vars(importlib.import_module(f"localspec.policy.{module.name}"))
    named = {n: x for n, x in found.items() if n.isupper() and n[0] != "_" and n not in OTHERS}
    return {n: x for n, x in named.items() if is_number(x)}


def is_number(value: object) -> bool:
    several = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, int | float) for one in several)


def test_every_constant_is_in_the_table_of_tuned_ones_or_says_what_it_is() -> None:
    table = re.findall(
        r"^\| `([A-Z_]+)` \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    tuned = {name: float(value) for name, value in table}
    known = constants()
    assert set(known) == {*tuned, *FIXED}
    assert {name: known[name] for name in tuned} == tuned
    assert len(tuned) <= 30
