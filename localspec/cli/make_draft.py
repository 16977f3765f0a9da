"""``localspec make-draft``: make a draft model from the model itself."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec.cli import complete
from localspec.cli.containment import contain
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import say, write_line
from localspec.core.errors import UsageError
from localspec.core.options import NO_DRAFT
from localspec.core.units import size

if TYPE_CHECKING:
    from localspec.bench.layer_search import Tried


@click.command("make-draft")
@click.argument("model", shell_complete=complete.models)
@click.option("--bits", type=click.IntRange(2, 4), help="Bits of each weight, roughly: 2, 3 or 4.")
@click.option("--layers", metavar="LIST", help="Keep only these layers, as 0-7 or 0,2,4-6.")
@click.option("--search", is_flag=True, help="Find the layers worth keeping by measurement.")
@click.option(
    "--medusa",
    type=Path,
    metavar="FILE",
    help="Convert the Medusa heads of this checkpoint instead.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["q8_0", "f16"]),
    help="Type of the Medusa heads; default q8_0.",
)
@click.option("-o", "--output", type=Path, metavar="FILE", help="The file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    model: str,
    *,
    bits: int | None,
    layers: str | None,
    search: bool,
    medusa: Path | None,
    kind: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Make a draft model from MODEL: with fewer bits, or with fewer of its layers.

    It has the vocabulary of the target. The acceptance rate depends on the model; the controller
    uses the draft only where it is faster, and `localspec bench` measures the speed-up.

    With --medusa, the draft is a set of Medusa heads trained for MODEL, from a safetensors
    checkpoint.
    """
    contain()
    from localspec.models.catalog.resolve import resolve
    from localspec.models.compat import heads

    if search and layers is not None:
        raise UsageError("--search finds the layers; leave --layers out")
    if medusa is not None and (search or layers is not None or bits is not None):
        raise UsageError("--medusa takes heads as they are; leave --bits, --layers, --search out")
    if medusa is None and kind is not None:
        raise UsageError("--type is for the heads of --medusa")
    file = resolve(model, NO_DRAFT).target
    heads.require_model(file.header)
    source = file.path
    if medusa is None:
        where = _of_itself(source, bits, layers, search=search, output=output, force=force)
    else:
        where = _of_heads(source, medusa, kind or "q8_0", output, force=force)
    if where is None:
        write_line("no selection of its layers makes a faster draft on this machine")
        return 1
    taken = size(where.stat().st_size)
    use = shlex.join(["localspec", "chat", model, "-d", str(where)])
    say(f"{taken}; use it with: {use}")
    write_line(f"{where}")
    return 0


def _of_heads(
    source: Path, checkpoint: Path, kind: str, output: Path | None, *, force: bool
) -> Path:
    from localspec.models.compat import medusa_checkpoint

    where = output or medusa_checkpoint.destination(source)
    with CtrlC() as ctrl_c:
        medusa_checkpoint.make(
            source,
            checkpoint,
            where,
            kind=kind,
            cancelled=lambda: ctrl_c.pressed,
            replace=force,
        )
    return where


def _of_itself(
    source: Path,
    bits: int | None,
    layers: str | None,
    *,
    search: bool,
    output: Path | None,
    force: bool,
) -> Path | None:
    """None where a search finds nothing that pays."""
    from localspec.core.files.checked import require_free
    from localspec.llama import draft_from_target
    from localspec.models.gguf.shards import shards

    with CtrlC() as ctrl_c:

        def cancelled() -> bool:
            return ctrl_c.pressed

        kept = None if layers is None else _parsed(layers)
        if search:
            if output is not None:  # before minutes of measuring, not after
                require_free(output, shards(source), replace=force)
            from localspec.bench import layer_search

            with tempfile.TemporaryDirectory() as folder:
                say("LAYERS KEPT              ACCEPTED  MS/TOKEN  × PLAIN")
                found = layer_search.search(source, Path(folder), _show, cancelled)
            best = found[0] if found else None
            if best is None or best.gain <= 1:
                return None
            kept = list(best.layers)
        where = output or draft_from_target.destination(source, bits, kept)
        draft_from_target.make(
            source, where, bits=bits, layers=kept, cancelled=cancelled, replace=force
        )
    return where


def _show(tried: Tried) -> None:
    layers = ",".join(map(str, tried.layers))
    accepted = tried.acceptance[0] if tried.acceptance else 0.0
    say(f"{layers[:24]:<24} {accepted:>8.0%} {1000 * tried.cost:>9.1f} {tried.gain:>8.2f}")


def _parsed(text: str) -> list[int]:
    """The layers of a list such as 0-3,5.

    Raises:
        UsageError: it is none.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 9:
            raise UsageError(f"--layers takes a list as 0-7 or 0,2,4-6, not {text!r}")
        found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)
