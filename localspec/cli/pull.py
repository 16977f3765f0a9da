"""``localspec pull``: download a pair from the Hub, checked before the download starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import complete
from localspec.cli.flags import setting_option
from localspec.cli.interrupt import CtrlC
from localspec.cli.models import labelled
from localspec.cli.output import confirm, tell, write_json, write_line
from localspec.cli.progress import Bars, Countdown
from localspec.core import settings_schema as schema
from localspec.core.errors import Interrupted, ModelFileError, ModelNotFoundError
from localspec.core.options import NO_DRAFT
from localspec.core.units import size

if TYPE_CHECKING:
    from localspec.models.hub.pull_plan import PullPart, PullPlan
    from localspec.models.hub.transfers import Fetched

_ROLES = ("target", "draft", "projector")


@click.command("pull")
@click.argument("name", shell_complete=complete.models)
@setting_option(schema.DRAFT, sources=False)
@click.option(
    "--no-mmproj", is_flag=True, help="Without the projector with which the target sees pictures."
)
@click.option("--dry-run", is_flag=True, help="Check everything, download nothing.")
@click.option(
    "--force", is_flag=True, help="Download even if the model is too big for this machine."
)
@setting_option(schema.OFFLINE, sources=False, envvar=schema.OFFLINE.variable)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
def command(
    name: str,
    draft: str | None,
    *,
    no_mmproj: bool,
    dry_run: bool,
    force: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Download NAME and its draft, so that both work offline afterwards.

    A projector in the target's repository (mmproj), with which it sees pictures, comes with it.

    NAME is a pair of `localspec models`, user/repo, user/repo:QUANT, user/repo@REVISION,
    user/repo/FILE.gguf, or a link copied from the Hub. An interrupted pull continues where it
    stopped.
    """
    from localspec.models.catalog.links import is_offline

    say = _Sayer(silent=as_json)
    done = _already_here(name, draft, offline=offline or is_offline(), sees=not no_mmproj)
    if done is None:
        done = _pull(name, draft, say, dry_run=dry_run, force=force, sees=not no_mmproj)
    else:
        for role in _ROLES:
            if done[role]:
                say(f"{role:<9} {done[role]['path']}")
        say(f"{name} is already downloaded and complete")
    if as_json:
        write_json(done)


def _pull(
    name: str, draft: str | None, say: _Sayer, *, dry_run: bool, force: bool, sees: bool
) -> dict[str, Any]:
    """Ask the Hub, check, fetch; returns what --json prints."""
    from localspec.models.hub.pull_plan import require_space
    from localspec.models.hub.pull_planner import prepare

    waits = Countdown()
    plan = prepare(name, draft, waits, sees=sees)
    if plan.suggestion is not None and _wants_draft(plan, ask=not (say.silent or dry_run)):
        plan = prepare(name, plan.suggestion, waits, sees=sees)
    for line in _lines(plan):
        say(line)
    if dry_run:
        say("dry run: nothing was downloaded")
        return _report(plan, None)
    require_space(plan, force=force)
    obtained = _fetch(plan)
    if obtained.fetched == 0:
        say(f"{name} is already downloaded and complete")
    else:
        say(f"ready: localspec chat {_again(plan)}")
    return _report(plan, obtained)


class _Sayer:
    """Writes lines to stdout, unless --json is given."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent

    def __call__(self, line: str) -> None:
        if not self.silent:
            write_line(line)


def _already_here(
    name: str, draft: str | None, *, offline: bool, sees: bool
) -> dict[str, Any] | None:
    """Paths of the files if all are here and complete; does not use the network.

    Only pinned files can be checked without the Hub; offline, any file that is here counts.

    Raises:
        ModelNotFoundError: offline, and something is missing.
        ModelFileError: offline, and something is damaged.
    """
    from localspec.models.catalog.pair import HubFile
    from localspec.models.catalog.reference import PairRef, reference
    from localspec.models.catalog.resolve import resolve
    from localspec.models.hub.transfers import is_here

    ref = reference(name)
    pair = ref.pair if isinstance(ref, PairRef) else None
    found: list[Path | None]
    if pair is None or draft not in {None, NO_DRAFT}:
        if not offline:
            return None
        files = resolve(name, draft)
        found = [files.target.path, files.draft.path if files.draft is not None else None]
    else:
        sources = pair.files if draft is None else (pair.target,)
        if not offline and any(isinstance(f, HubFile) and not f.revision for f in sources):
            return None
        target = pair.target.found()
        if pair.sees and sees and not offline and target is not None and not _seen_by(target):
            return None
        bars = Bars()
        with CtrlC() as ctrl_c:
            found = [
                is_here(f, bars, lambda: ctrl_c.pressed) if isinstance(f, HubFile) else f.found()
                for f in sources
            ]
        lacking = [f for f, path in zip(sources, found, strict=True) if path is None]
        damaged = [f.where for f in lacking if f.found() is not None]
        if lacking and not offline:
            for where in damaged:
                tell(f"{where} is damaged; downloading it again")
            return None
        if damaged:
            raise ModelFileError(
                f"damaged: {', '.join(damaged)}; run `localspec pull {name}` without --offline"
            )
        if lacking:
            raise ModelNotFoundError(
                f"not downloaded: {', '.join(f.where for f in lacking)}; "
                f"run `localspec pull {name}` without --offline"
            )
    target = found[0]
    here = [target, found[1] if len(found) > 1 else None, _seen_by(target) if target else None]
    return {
        "name": name,
        "installed": True,
        "fetched_bytes": 0,
        **{
            role: {"path": str(path), "bytes": path.stat().st_size} if path is not None else None
            for role, path in zip(_ROLES, here, strict=True)
        },
    }


def _seen_by(target: Path) -> Path | None:
    """The projector beside a target's file."""
    from localspec.models.catalog.projectors import find_projector
    from localspec.models.gguf.header import read_header

    return find_projector(read_header(target), target)


def _wants_draft(plan: PullPlan, *, ask: bool) -> bool:
    """Ask on a terminal, mention it elsewhere."""
    what = f"the draft of {plan.suggestion} has the same vocabulary"
    if ask and sys.stdin.isatty() and sys.stderr.isatty():
        return confirm(f"{what}; download it too?", default=True)
    tell(f"{what}; add it with --draft {plan.suggestion}")
    return False


def _lines(plan: PullPlan) -> list[str]:
    from localspec.models.hub.pull_plan import disk

    title = plan.name if plan.pair is None else f"{plan.name}: {plan.pair.about}"
    lines = [title, *(line for part in plan.parts for line in _part_lines(part))]
    if plan.draft is None:
        lines.append("draft     none: drafts come from the text of the conversation")
    else:
        lines.append("match     yes: same vocabulary")
    _, free = disk()
    lines.append(
        f"size      {size(plan.n_bytes)}, {size(plan.missing)} to fetch; disk {size(free)} free"
    )
    lines.append(f"fit       {plan.verdict}")
    lines.append(f"licence   {plan.licence}{' (gated)' if plan.gated else ''}")
    traps = plan.pair.traps if plan.pair is not None else ()
    return lines + [line for text in (*plan.notices, *traps) for line in labelled("note", text)]


def _part_lines(part: PullPart) -> list[str]:
    from localspec.models.catalog.projectors import kind

    header, shards = part.header, len(part.entries)
    if part.role == "projector":
        seen = f"{size(part.n_bytes)}, {kind(header.metadata)}: it sees pictures"
        return [f"{part.role:<9} {part.where}", f"          {seen}"]
    more = f" in {shards} files" if shards > 1 else ""
    facts = (
        f"{size(part.n_bytes)}{more}, {header.architecture}, {header.n_layer} layers, "
        f"{header.n_vocab} tokens, context {header.context}"
    )
    return [f"{part.role:<9} {part.where}", f"          {facts}"]


def _fetch(plan: PullPlan) -> Fetched:
    from localspec.models.hub.transfers import obtain_all

    with CtrlC() as ctrl_c:
        try:
            return obtain_all(plan.jobs, Bars(), lambda: ctrl_c.pressed)
        except Interrupted:
            have = 1 - plan.missing / plan.n_bytes
            raise Interrupted(
                f"interrupted at {have:.0%}; `localspec pull {_again(plan)}` continues from there"
            ) from None


def _again(plan: PullPlan) -> str:
    """The arguments that name this pair."""
    return plan.name if plan.draft_name is None else f"{plan.name} --draft {plan.draft_name}"


def _report(plan: PullPlan, obtained: Fetched | None) -> dict[str, Any]:
    """The object that ``pull --json`` prints."""
    paths = iter(obtained.paths if obtained else ())

    def facts(part: PullPart | None) -> dict[str, Any] | None:
        if part is None:
            return None
        here = [next(paths, None) for _ in part.entries]
        first = part.path or (here[0] if here else None)
        return {
            "repo": part.repo.name if part.repo else None,
            "revision": part.repo.commit if part.repo else None,
            "files": [{"path": e.path, "bytes": e.size, "sha256": e.sha256} for e in part.entries],
            "bytes": part.n_bytes,
            "path": str(first) if first else None,
            "architecture": part.header.architecture,
            "vocabulary": part.header.n_vocab,
            "context": part.header.context,
        }

    return {
        "name": plan.name,
        "installed": obtained is not None or not plan.jobs,
        "fetched_bytes": obtained.fetched if obtained else 0,
        "target": facts(plan.target),
        "draft": facts(plan.draft),
        "projector": facts(plan.projector),
        "drafting": plan.pair.drafting if plan.pair else "draft-model" if plan.draft else "ngram",
        "fit": plan.verdict,
        "licence": plan.licence,
        "gated": plan.gated,
        "bytes": plan.n_bytes,
        "missing_bytes": plan.missing,
        "suggested_draft": plan.suggestion,
        "notices": list(plan.notices),
    }
