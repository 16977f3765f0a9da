"""``localspec verify --url``: exactness of a server, from outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli.containment import Unfinished
from localspec.cli.elsewhere import Servers
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import in_lines, json_line, tell, write
from localspec.cli.working import Working

if TYPE_CHECKING:
    from localspec.core.events import ModelInfo
    from localspec.remote.exactness import RemoteDivergence, RemoteVerification

NOT_EXACT = "NOT EXACT: what this server emits is not what its model alone would"


def verify(servers: Servers, prompts: Sequence[str], max_tokens: int, *, as_json: bool) -> bool:
    """Check a server and print the result; whether it is exact.

    Raises:
        LocalspecError: a server does not answer, or refuses.
    """
    from localspec.remote.exactness import RemoteComparing

    with (
        CtrlC() as ctrl_c,
        servers.connected(lambda: ctrl_c.pressed) as (engine, plain),
        Unfinished() as unfinished,
    ):
        facts = _facts(engine.info, engine.client.server)
        comparing = RemoteComparing(engine, prompts, max_tokens=max_tokens, plain=plain)
        working = Working(ctrl_c)
        working.tell("comparing")
        for result in comparing.steps():
            lines = in_lines(_lines(result, complete=False))
            report = json_line(_report(result, complete=False) | {"model": facts})
            unfinished.hold(report if as_json else lines)
            working.tell("comparing", f"{result.replies} of {len(prompts)} prompts")
        result = comparing.so_far()
        working.clear()
    if not facts["speculates"]:
        tell(f"{facts['server']} does not say that it speculates; there may be nothing to check")
    report = json_line(_report(result) | {"model": facts})
    write(report if as_json else in_lines(_lines(result)))
    return result.exact


def _facts(info: ModelInfo, server: str) -> dict[str, Any]:
    return {
        "server": server,
        "engine": info.backend,
        "name": info.name,
        "speculates": info.speculation.state == "on",
    }


def _report(result: RemoteVerification, *, complete: bool = True) -> dict[str, Any]:
    """The object of ``--json``."""
    return {
        "complete": complete,
        "exact": result.exact if complete or not result.exact else None,
        **dataclasses.asdict(result),
    }


def _lines(result: RemoteVerification, *, complete: bool = True) -> list[str]:
    """The result as lines of text."""
    accepted = f", {result.accepted} of {result.drafted} drafted accepted" * bool(result.drafted)
    checked = f"{result.replies} greedy replies, {result.tokens} tokens{accepted}"
    how = {
        "scored": "each scored again by the server, as a prompt",
        "equal": "compared with those of the plain server",
    }[result.way]
    if result.by_text:
        how += f", {result.by_text} by the text alone"
    lines = [f"{checked}; {how}", *map(_line, result.divergences)]
    if result.noise is not None:
        lines.append(f"log-probabilities of two passes differ by up to {result.noise:.2g} there")
    if result.empty:
        lines.append(f"{result.empty} more were empty on both servers: nothing to compare")
    total, same = result.replies, result.identical
    if not complete:
        lines.append(f"incomplete: {total} replies compared, {same} identical")
    elif same == total:
        lines.append(f"exact: all {total} replies")
    elif result.exact:
        lines.append(f"exact up to near-ties: {total - same} of {total} replies")
    return lines if result.exact else [*lines, NOT_EXACT]


def _line(d: RemoteDivergence) -> str:
    kind = "near-tie" if d.near_tie else "NOT A NEAR-TIE"
    gap = "beyond what the server tells" if d.gap > 1e6 else f"{d.gap:.4f}"
    return (
        f"  {kind}: logit gap {gap} at token {d.position} of {d.prompt!r} "
        f"(emitted {d.emitted}, expected {d.expected})"
    )
