"""``localspec models``: the catalogue."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.output import tell, write, write_json, write_line
from localspec.core.errors import LocalspecError
from localspec.core.units import size
from localspec.loading.offers import FIT_SHORT, best, of_pair
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.pair import HubFile, Pair, PairFile
from localspec.models.memory.speed import Expected

if TYPE_CHECKING:
    from localspec.models.catalog.catalog import CachedModel


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def command(*, as_json: bool) -> None:
    """List the pairs of the catalogue with size, fit and whether they are downloaded.

    FIT is GPU (all layers fit there), GPU+CPU, CPU only, slow (fewer than 2 tokens per second), or
    too big for this machine. TOK/S is the expected speed, without and with drafting. It is an
    estimate: this machine is measured once, for two seconds. A + marks lower bounds: other programs
    were busy then, and it is measured again when they are not. The pair that suits the machine best
    is the first one. Other models in the Hugging Face cache follow.
    """
    from localspec.models.catalog.catalog import uncatalogued, unfinished

    pairs, more = list(catalog().values()), uncatalogued()
    speeds = Speeds.of_this_machine(pairs)
    if as_json:
        listed = [describe(p) | speeds.describe(p) for p in pairs]
        write_json(listed + [_describe_other(f) for f in more])
        return
    pairs.sort(key=lambda pair: pair.name != speeds.best)  # stable
    rows = [("NAME", "SIZE", "FIT", "TOK/S", "HERE", "FOR"), *(_row(p, speeds) for p in pairs)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    room = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 10**6
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[5]])
        write_line(line if len(line) <= room else line[: room - 1] + "…")
    if any(speed.at_least for speed in speeds.known.values()):
        tell(
            "+ at least: other programs were busy when this machine was measured; it is measured "
            "again when they are not"
        )
    if more:
        write("\nAlso in the cache:\n")
    for other in more:
        write_line(f"{size(other.n_bytes):>8}  {other.name}")
    for repo, n in unfinished().items():
        tell(
            f"{size(n)} of {repo} is not whole: pull it again to complete it, or, where no pull of "
            f"it runs, remove all of {repo} with localspec rm {repo}"
        )


@dataclass(frozen=True, slots=True)
class Speeds:
    """Expected speeds of pairs by name."""

    known: Mapping[str, Expected]
    """Without pairs that do not fit or whose size is unknown; empty if nothing could be measured.
    """
    best: str | None
    """Name of the pair that suits this machine best."""

    @classmethod
    def of_this_machine(cls, pairs: Iterable[Pair]) -> Speeds:
        """Measure this machine, if that has not been done, and estimate all pairs."""
        from localspec.loading.machine_speed import machine_speed
        from localspec.models.memory.fit import memory_now

        machine = machine_speed()
        if machine is None:
            return cls({}, None)
        memory, found = memory_now(), [of_pair(pair) for pair in pairs]
        speeds = {offer.name: offer.speed(machine, memory) for offer in found}
        chosen = best(found, machine, memory)
        known = {name: speed for name, speed in speeds.items() if speed is not None}
        return cls(known, chosen.offer.name if chosen is not None else None)

    def describe(self, pair: Pair) -> dict[str, Any]:
        """The part of a pair's JSON about speed; tokens per second, null where unknown."""
        speed = self.known.get(pair.name)
        return {
            "expected_plain": round(speed.plain, 2) if speed is not None else None,
            "expected_drafted": round(speed.drafted, 2) if speed is not None else None,
            "expected_at_least": speed.at_least if speed is not None else None,
            "best": pair.name == self.best,
        }


def _describe_other(found: CachedModel) -> dict[str, Any]:
    """A model without an entry in the catalogue, in the same form."""
    from localspec.models.memory.fit import quick_verdict

    return {
        "name": found.name,
        "about": "",
        "target": {"path": str(found.path), "bytes": found.n_bytes},
        "draft": None,
        "drafting": "ngram",
        "bytes": found.n_bytes,
        "bytes_exact": True,
        "fit": quick_verdict(found.n_bytes),
        "installed": True,
    }


def _row(pair: Pair, speeds: Speeds) -> tuple[str, str, str, str, str, str]:
    n, speed = pair.n_bytes, speeds.known.get(pair.name)
    about = "?" if n is None else size(n) if pair.exact else f"~{size(n)}"
    fit = FIT_SHORT[fit_verdict(pair) or "too big"] if n is not None else "?"
    if speed is not None and speed.slow:
        fit = "slow"
    purpose = pair.about
    if pair.name == speeds.best:
        purpose = f"best for this machine: {purpose}"
    expected = str(speed) if speed is not None else ""
    return pair.name, about, fit, expected, "yes" if pair.installed else "no", purpose


def fit_verdict(pair: Pair) -> str | None:
    """How it would run on this machine; None if its size is not known."""
    from localspec.models.memory.fit import quick_verdict

    target = pair.target.size
    if target is None:
        return None
    draft = 0 if pair.draft is None else pair.draft.size or 0
    return quick_verdict(target, draft + projector_bytes(pair))


def projector_bytes(pair: Pair) -> int:
    """Bytes of the projector beside a pair's target; 0 where there is none on this machine."""
    from localspec.models.catalog.projectors import find_projector
    from localspec.models.gguf.model_file import ModelFile

    target = pair.target.found() if pair.sees else None
    if target is None:
        return 0
    try:
        path = find_projector(ModelFile(target).header, target)
        return 0 if path is None else path.stat().st_size
    except (LocalspecError, OSError):  # loading it says what is wrong
        return 0


def describe(pair: Pair) -> dict[str, Any]:
    """A pair as JSON."""
    return {
        "name": pair.name,
        "about": pair.about,
        "target": describe_file(pair.target),
        "draft": describe_file(pair.draft) if pair.draft else None,
        "drafting": pair.drafting,
        "sees": pair.sees,
        "projector_bytes": projector_bytes(pair),
        "licence": pair.licence,
        "context": pair.context,
        "draft_length": pair.draft_length,
        "memory_gb": pair.memory,
        "traps": list(pair.traps),
        "bytes": pair.n_bytes,
        "bytes_exact": pair.exact,
        "fit": fit_verdict(pair),
        "installed": pair.installed,
    }


def describe_file(file: PairFile) -> dict[str, Any]:
    """A file of a pair as JSON."""
    found = file.found()
    facts: dict[str, Any] = {"path": str(found) if found else None, "bytes": file.size}
    if isinstance(file, HubFile):
        facts |= {
            "repo": file.repo,
            "file": file.file,
            "revision": file.revision,
            "sha256": file.sha256,
        }
    else:
        facts["file"] = file.where
    return facts


def labelled(label: str, text: str) -> list[str]:
    """A text under a label, within 80 columns; paths and links stay whole."""
    return textwrap.wrap(
        text,
        80,
        initial_indent=f"{label:<10}",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )
