"""``localspec doctor``: check the installation, with one fix for each problem."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from localspec.cli import interface
from localspec.cli.containment import contained
from localspec.cli.flags import setting_option
from localspec.cli.output import write_json, write_line
from localspec.core import settings_schema as schema

if TYPE_CHECKING:
    from localspec.doctor import Finding

_MARKS = {"ok": "✓", "note": "·", "broken": "✗"}
_INDENT = " " * 12


@click.command("doctor")
@setting_option(schema.OFFLINE, sources=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
def command(*, offline: bool, as_json: bool) -> int:
    """Check Python, llama.cpp, devices, memory, folders, the Hub and the embedded pair."""
    from localspec.doctor import diagnose, examiner

    examine = examiner.apart if contained() else examiner.here
    wrong = interface.refused()
    findings = []
    for finding in diagnose(offline=offline, examine=examine, by_interface=wrong):
        findings.append(finding)
        if not as_json:
            _show(finding)
    broken = any(finding.status == "broken" for finding in findings)
    if as_json:
        write_json({"ok": not broken, "findings": [_as_json(f) for f in findings]})
    return 1 if broken else 0


def _show(finding: Finding) -> None:
    write_line(f"{_MARKS[finding.status]} {finding.topic:<9} {finding.text}")
    for line in finding.table:
        write_line(f"{_INDENT}{line}")
    if finding.fix:
        write_line(f"{_INDENT}fix: {finding.fix}")


def _as_json(finding: Finding) -> dict[str, object]:
    """All but the table, which says the same as the details."""
    fields = dataclasses.asdict(finding)
    del fields["table"]
    return fields
