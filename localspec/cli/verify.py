"""``localspec verify``: proof on this machine that drafting changes nothing."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.flags import model_argument, model_flags, sampling_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import decode, read_within, say_over, tell, write_json, write_line
from localspec.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from localspec.bench.exactness import Divergence, Verification

_TEMPERATURES = (0.0, 0.7, 1.0)
_MAX_TOKENS = 128
_DRAFT_LENGTH = 4


@click.command("verify")
@model_argument
@click.option("--prompts", metavar="FILE", help="One prompt a line instead of the built-in ones.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N prompts.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of text.")
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
    """Answer many prompts with and without drafting, same seed, and compare token for token.

    At temperatures 0, 0.7 and 1, or only at -t; with drafts of 4 tokens, or --draft-max. Exit
    code 1 if a difference is more than a near-tie of the target's own arithmetic.
    """
    from localspec.bench.exactness import verify
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
    options = asked.options
    if options.draft_max is None:  # the policy might park, and then there is nothing to test
        options = dataclasses.replace(options, draft_max=_DRAFT_LENGTH)
    texts = (_read(Path(prompts)) if prompts else list(VERIFY))[:limit]

    with CtrlC() as ctrl_c:

        def progress(temperature: float, done: int) -> None:
            if ctrl_c.pressed:
                raise Interrupted("interrupted; nothing was concluded")
            say_over(f"temperature {temperature:g}: {done} of {len(texts)} prompts ", 40)

        with Runtime.open(options, cancelled=lambda: ctrl_c.pressed) as runtime:
            ctrl_c.on_first = runtime.interrupt
            for notice in runtime.info.notices:
                tell(notice)
            result = verify(
                runtime,
                texts,
                settings,
                max_tokens=asked.max_tokens or _MAX_TOKENS,
                seed=1 if asked.seed is None else asked.seed,
                on_progress=progress,
            )
            info = runtime.info
    say_over("", 40)
    if as_json:
        model_facts = {"target": info.target, "draft": info.draft, "backend": info.backend}
        write_json(report(result) | {"model": model_facts})
    else:
        for line in _lines(result):
            write_line(line)
    return 0 if result.exact else 1


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


def report(result: Verification) -> dict[str, Any]:
    """The object that ``verify --json`` prints."""
    return {
        "exact": result.exact,
        "batch_noise": result.batch_noise,
        "typical_noise": result.typical_noise,
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
    """As JSON, which has no word for an infinite gap: null."""
    return dataclasses.asdict(d) | {"gap": d.gap if math.isfinite(d.gap) else None}


def _lines(result: Verification) -> list[str]:
    lines = []
    for c in result.comparisons:
        per_round = c.tokens / c.rounds if c.rounds else 0.0
        lines.append(
            f"temperature {c.temperature:g}: {c.identical} of {c.replies} replies identical "
            f"({c.tokens} tokens, acceptance {c.acceptance:.0%}, {per_round:.1f} tokens per round)"
        )
        for d in c.divergences:
            kind = "near-tie" if d.near_tie else "NOT A NEAR-TIE"
            lines.append(
                f"  {kind}: logit gap {d.gap:.4f} at token {d.position} of {d.prompt!r} "
                f"(plain {d.plain}, drafted {d.drafted})"
            )
    lines.append(
        f"logits of passes over one and over several tokens differ by up to "
        f"{result.batch_noise:.2g} here (typically {result.typical_noise:.2g})"
    )
    total = sum(c.replies for c in result.comparisons)
    apart = sum(len(c.divergences) for c in result.comparisons)
    if apart == 0:
        lines.append(f"exact: all {total} replies identical")
    elif result.exact:
        lines.append(f"exact up to near-ties: {apart} of {total} replies ({apart / total:.1%})")
    else:
        lines.append("NOT EXACT: please report this with the output of `localspec doctor --json`")
    return lines
