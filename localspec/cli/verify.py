"""``localspec verify``: check on this machine that drafting does not change the output."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.containment import Unfinished, contain
from localspec.cli.flags import model_argument, model_flags, sampling_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import (
    decode,
    in_lines,
    json_line,
    read_within,
    tell,
    write,
)
from localspec.cli.working import Working
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.exactness import Comparing, Divergence, SettingComparison, Verification
    from localspec.core.events import ModelInfo

_TEMPERATURES = (0.0, 0.7, 1.0)
_MAX_TOKENS = 128
_NOT_EXACT = "NOT EXACT: please report this with the output of `localspec doctor --json`"


@click.command("verify")
@model_argument
@click.option("--prompts", metavar="FILE", help="Read prompts from FILE, one on each line.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Use only the first N prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
@model_flags
@sampling_flags
def command(
    model: str | None,
    prompts: str | None,
    limit: int | None,
    *,
    as_json: bool,
    **flags: Any,
) -> int:
    """Answer prompts with and without drafting, with the same seed, and compare token for token.

    Temperatures are 0, 0.7 and 1, or the one of -t. Drafts have every length and shape that a chat
    may choose, or --draft-max tokens. The exit code is 1 if a divergence is not a near-tie of the
    target's logits.
    """
    contain()
    from localspec.bench.exactness import Comparing
    from localspec.bench.verify_prompts import VERIFY
    from localspec.runtime import Runtime

    asked = sort_flags(model, flags)
    if asked.options.verifier != "match":
        raise UsageError(
            "verify compares token for token, which only --verifier match promises; rejection is "
            "exact in distribution, and its tests are in the test suite"
        )
    source = click.get_current_context().get_parameter_source("temperature")
    given = source is not click.core.ParameterSource.DEFAULT
    temperatures = (asked.sampling.temperature,) if given else _TEMPERATURES
    settings = [dataclasses.replace(asked.sampling, temperature=t) for t in temperatures]
    texts = (_read(Path(prompts)) if prompts else list(VERIFY))[:limit]

    with (
        CtrlC() as ctrl_c,
        Runtime.open(asked.options, cancelled=lambda: ctrl_c.pressed) as runtime,
    ):
        ctrl_c.on_first = runtime.interrupt
        for notice in runtime.info.notices:
            tell(notice)
        comparing = Comparing(
            runtime,
            texts,
            settings,
            max_tokens=asked.max_tokens or _MAX_TOKENS,
            seed=1 if asked.seed is None else asked.seed,
        )
        result = _compare(comparing, len(texts), runtime.info, Working(ctrl_c), as_json=as_json)
    return 0 if result.exact else 1


def _compare(
    comparing: Comparing, prompts: int, info: ModelInfo, working: Working, *, as_json: bool
) -> Verification:
    """Print rows as they are measured, or a JSON object at the end; if it ends early, what was
    measured.
    """
    facts = {
        "target": info.target,
        "draft": info.draft,
        "backend": info.backend,
        "kernels": info.kernels,
        "strict": info.strict or None,
    }
    with Unfinished() as unfinished:
        if as_json:
            unfinished.hold(
                json_line(report(comparing.so_far(), complete=False) | {"model": facts})
            )
        working.tell("comparing")
        for row in comparing.steps():
            result = comparing.so_far()
            if as_json:
                unfinished.hold(json_line(report(result, complete=False) | {"model": facts}))
            elif 0 < row.replies < prompts:
                unfinished.hold(in_lines([*_row(row), *_incomplete(result)]))
            elif row.replies:
                working.clear()
                write(in_lines(_row(row)))
                unfinished.hold(in_lines(_incomplete(result)))
            stage = f"comparing at temperature {row.temperature:g}"
            working.tell(stage, f"{row.replies} of {prompts} prompts")
        result = comparing.so_far()
        working.clear()
        unfinished.hold("")
    closing = [*_closing(result), f"kernels of the target: {info.kernels}"]
    if info.strict:
        closing.append(f"strict mode: {info.strict}")
    write(json_line(report(result) | {"model": facts}) if as_json else in_lines(closing))
    return result


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            lines = decode(read_within(file, str(path)), str(path)).splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise UsageError(f"{path} holds no prompts")
    return texts


def report(result: Verification, *, complete: bool = True) -> dict[str, Any]:
    """The object that ``verify --json`` prints; where it is not ``complete``, nothing is exact."""
    return {
        "complete": complete,
        "exact": result.exact if complete or not result.exact else None,
        "batch_noise": result.batch_noise,
        "typical_noise": result.typical_noise,
        "widths": {str(width): passes for width, passes in result.widths.items()},
        "settings": [
            dataclasses.asdict(c)
            | {
                "acceptance": c.acceptance,
                "divergence_rate": len(c.divergences) / c.replies if c.replies else 0.0,
                "divergences": [_divergence(d) for d in c.divergences],
            }
            for c in result.comparisons
        ],
    }


def _divergence(d: Divergence) -> dict[str, Any]:
    """JSON of a divergence; an infinite gap becomes null."""
    return dataclasses.asdict(d) | {"gap": d.gap if math.isfinite(d.gap) else None}


def _row(c: SettingComparison) -> list[str]:
    """Lines about one temperature and its divergences."""
    per_round = c.tokens / c.rounds if c.rounds else 0.0
    compared = f"{c.identical} of {c.replies} replies identical"
    figures = f"acceptance {c.acceptance:.0%}, {per_round:.1f} tokens per round"
    lines = [f"temperature {c.temperature:g}: {compared} ({c.tokens} tokens, {figures})"]
    for d in c.divergences:
        kind = "near-tie" if d.near_tie else "NOT A NEAR-TIE"
        lines.append(
            f"  {kind}: logit gap {d.gap:.4f} at token {d.position} of {d.prompt!r} "
            f"(plain {d.plain}, drafted {d.drafted})"
        )
    return lines


def _incomplete(result: Verification) -> list[str]:
    """The conclusion from an incomplete set of rows."""
    total = sum(c.replies for c in result.comparisons)
    diverged = sum(len(c.divergences) for c in result.comparisons)
    lines = [f"incomplete: {total} replies compared, {total - diverged} identical"]
    return lines if result.exact else [*lines, _NOT_EXACT]


def _closing(result: Verification) -> list[str]:
    """The conclusion from all rows."""
    noise = f"{result.batch_noise:.2g} here (typically {result.typical_noise:.2g})"
    widest = max(result.widths, default=1)
    passes = f"passes over one and over several tokens (up to {widest})"
    lines = [f"logits of {passes} differ by up to {noise}"]
    total = sum(c.replies for c in result.comparisons)
    diverged = sum(len(c.divergences) for c in result.comparisons)
    if diverged == 0:
        lines.append(f"exact: all {total} replies identical")
    elif result.exact:
        lines.append(
            f"exact up to near-ties: {diverged} of {total} replies ({diverged / total:.1%})"
        )
    else:
        lines.append(_NOT_EXACT)
    return lines
