"""Rows of the report: what was checked, how it ended, and the figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "finding", "not checkable here"]
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}")


@dataclass(frozen=True, slots=True)
class Row:
    """One check."""

    group: str
    what: str
    status: Status
    figures: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(group: str, what: str, figures: str) -> Row:
    """A check that passed."""
    return Row(group, what, "ok", clean(figures))


def finding(group: str, what: str, figures: str) -> Row:
    """A check that failed; the figures say how."""
    return Row(group, what, "finding", clean(figures))


def skipped(group: str, what: str, why: str) -> Row:
    """A check that this machine, this build or this script cannot make."""
    return Row(group, what, "not checkable here", clean(why))


def judged(group: str, what: str, figures: str, *, passed: bool) -> Row:
    """A check that passed or failed with the same figures."""
    return ok(group, what, figures) if passed else finding(group, what, figures)


def clean(text: str) -> str:
    """One line, without the paths in it: those may name the user."""
    return " ".join(_PATH.sub("(path)", text).split())


def markdown(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[Row]) -> str:
    """The report. ``facts`` are (name, value) of the machine and the build."""
    found = sum(row.status == "finding" for row in rows)
    passed = sum(row.status == "ok" for row in rows)
    lines = [f"# {title}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts]
    lines += [
        "",
        f"{passed} ok, {found} findings, {len(rows) - passed - found} not checkable here.",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        lines += ["", f"## {group}", "", "| check | result | figures |", "|---|---|---|"]
        lines += [
            f"| {_cell(row.what)} | {_marked(row.status)} | {_cell(row.figures)} |"
            for row in rows
            if row.group == group
        ]
    return "\n".join(lines) + "\n"


def _marked(status: Status) -> str:
    return "**finding**" if status == "finding" else status


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
