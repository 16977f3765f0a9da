"""``localspec models``: the catalogue."""

from __future__ import annotations

import json
from typing import Any

import click

from localspec.cli.texts import write
from localspec.pairs.catalog import Pair, catalog


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="A JSON array instead of a table.")
def command(*, as_json: bool) -> None:
    """List the pairs of the catalogue: what they are for, their size, whether they are here."""
    pairs = list(catalog().values())
    if as_json:
        write(json.dumps([describe(p) for p in pairs], ensure_ascii=False) + "\n")
        return
    rows = [("NAME", "SIZE", "HERE", "FOR"), *(_row(p) for p in pairs)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        write("  ".join([*cells, row[3]]) + "\n")


def _row(pair: Pair) -> tuple[str, str, str, str]:
    return pair.name, size(pair.n_bytes), "yes" if pair.installed else "no", pair.about


def describe(pair: Pair) -> dict[str, Any]:
    """A pair as JSON."""
    return {
        "name": pair.name,
        "about": pair.about,
        "target": str(pair.target),
        "draft": str(pair.draft) if pair.draft else None,
        "drafting": pair.drafting,
        "licence": pair.licence,
        "bytes": pair.n_bytes,
        "installed": pair.installed,
    }


def size(n: int) -> str:
    """Bytes for people: 5.7 MB."""
    value = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the loop returns")
