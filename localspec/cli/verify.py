"""``localspec verify``: check on this machine that drafting does not change the output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.containment import contain
from localspec.cli.elsewhere import Servers, plain_url_flag, url_flag
from localspec.cli.flags import (
    REPLIES,
    chosen,
    flags_of,
    given,
    model_argument,
    model_flags,
    sort_flags,
)
from localspec.cli.images import image_flag, read_images, require_messages
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import lines_of, read_file, tell
from localspec.cli.verify_report import DRAFTED, TOGETHER, compare
from localspec.cli.working import Working, open_runtime
from localspec.core.endpoint import endpoints
from localspec.core.errors import OutOfMemoryError, UsageError

if TYPE_CHECKING:
    from localspec.core.events import ModelInfo
    from localspec.core.options import Options

_TEMPERATURES = (0.0, 0.7, 1.0)
_MAX_TOKENS = 128
_SEED = 1


@click.command("verify")
@model_argument
@click.option("--prompts", metavar="FILE", help="Read prompts from FILE, one on each line.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Use only the first N prompts.")
@click.option(
    "--together",
    type=click.IntRange(2, 16),
    metavar="N",
    help="Compare replies beside N - 1 others with plain ones alone.",
)
@image_flag
@url_flag
@plain_url_flag
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
@model_flags
@flags_of(REPLIES, temperature="0, 0.7 and 1", seed=str(_SEED), max_tokens=str(_MAX_TOKENS))
def command(
    model: str | None,
    prompts: str | None,
    limit: int | None,
    together: int | None,
    images: tuple[str, ...],
    *,
    url: str | None,
    plain_url: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Answer prompts with and without drafting, with the same seed, and compare token for token.

    Temperatures are 0, 0.7 and 1, or the one that is set. Drafts have every length and shape that a
    chat may choose, or --draft-max tokens. With --together, drafted replies that share their passes
    with others, whose prompts, lengths and settings differ and who come and go, are compared with
    plain replies alone, once with an empty KV cache and once with a used one. The exit code is 1 if
    a divergence is not a near-tie of the target's logits, or nothing was checked.
    """
    pictures, servers = read_images(images), Servers.named(url, plain_url, model)
    require_messages(pictures, raw=False, url=url)
    if servers is not None:
        if together is not None:
            raise UsageError("--together is for a model that is loaded here; leave it out")
        return _elsewhere(servers, prompts, limit, flags, as_json=as_json)
    contain()
    from localspec.bench.exactness import Comparing
    from localspec.bench.together import ComparingTogether
    from localspec.bench.workloads import VERIFY

    asked = sort_flags(model, flags)
    if asked.options.verifier != "match":
        raise UsageError(
            "verify compares token for token, which only --verifier match promises; rejection is "
            "exact in distribution, and its tests are in the test suite"
        )
    temperatures = (asked.sampling.temperature,) if chosen("temperature") else _TEMPERATURES
    settings = [dataclasses.replace(asked.sampling, temperature=t) for t in temperatures]
    texts = (_read(prompts) if prompts else list(VERIFY))[:limit]

    options = dataclasses.replace(asked.options, sees=bool(pictures))
    if together is not None:
        options = dataclasses.replace(options, parallel=max(together, options.parallel))
    with (
        CtrlC() as ctrl_c,
        open_runtime(options, lambda: ctrl_c.pressed) as runtime,
    ):
        ctrl_c.on_first = runtime.interrupt
        for notice in runtime.info.notices:
            tell(notice)
        if together is not None and runtime.info.parallel < together:
            raise OutOfMemoryError(
                f"there is memory for {runtime.info.parallel} replies at a time, not {together}; "
                "try a smaller --ctx or --together"
            )
        most = asked.max_tokens or _MAX_TOKENS
        seed = _SEED if asked.seed is None else asked.seed
        facts, working = _facts(runtime.info, options), Working(ctrl_c)
        asking: dict[str, Any] = {"max_tokens": most, "seed": seed, "pictures": pictures}
        comparing: Comparing | ComparingTogether
        if together is None:
            comparing, words = Comparing(runtime, texts, settings, **asking), DRAFTED
        else:
            comparing = ComparingTogether(runtime, texts, settings, together=together, **asking)
            words = TOGETHER
        exact = compare(comparing, words, len(texts), facts, working, as_json=as_json)
    return 0 if exact else 1


def _elsewhere(
    servers: Servers,
    prompts: str | None,
    limit: int | None,
    flags: dict[str, Any],
    *,
    as_json: bool,
) -> int:
    """Check a server."""
    from localspec.bench.workloads import VERIFY
    from localspec.cli.remote_verify import verify

    asked = sort_flags(servers.model, flags)
    if given("temperature") and asked.sampling.temperature:
        raise UsageError(
            "a server is checked at temperature 0: sampling there has noise of its own"
        )
    texts = (_read(prompts) if prompts else list(VERIFY))[:limit]
    most = asked.max_tokens or _MAX_TOKENS
    exact = verify(servers, texts, most, as_json=as_json)
    return 0 if exact else 1


def _facts(info: ModelInfo, options: Options) -> dict[str, Any]:
    """The model, for the output."""
    return {
        "target": info.target,
        "draft": info.draft,
        "backend": info.backend,
        "workers": ", ".join(map(str, endpoints(options.rpc))) or None,
        "kernels": info.kernels,
        "strict": info.strict or None,
    }


def _read(place: str) -> list[str]:
    texts = [line for line in lines_of(read_file(place)) if line.strip()]
    if not texts:
        raise UsageError(f"{place} holds no prompts")
    return texts
