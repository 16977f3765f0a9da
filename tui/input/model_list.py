"""The list of the model picker: which models match, and their descriptions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual.content import Content

from localspec.core.errors import LocalspecError
from localspec.core.files import paths
from localspec.core.units import size
from localspec.loading.offers import FIT_SHORT, Offer, in_folder
from localspec.models.catalog.pair import MTP_EMBEDDED
from localspec.models.catalog.reference import on_hub, reference
from localspec.models.memory.speed import Expected, MachineSpeed
from tui.render.text import plain

OWN, NONE = "auto", "none"
"""Drafts without a file: the catalogue's choice, and no draft model."""
_OWN_HEAD = "in the target's file: a layer for multi-token prediction"
_NAME_WIDTH = 40
_HERE = 60
"""Columns from which there is one that says whether a model is downloaded."""
_BROAD = 132
"""Columns from which licence and draft have columns of their own."""


@dataclass(frozen=True, slots=True)
class Use:
    """Answer with this model."""

    model: str


@dataclass(frozen=True, slots=True)
class UseDraft:
    """Draft with this model; None is the catalogue's choice."""

    draft: str | None


@dataclass(frozen=True, slots=True)
class Pull:
    """Pull this model."""

    name: str
    force: bool = False
    """Whether to pull a model that is too big for this machine."""


Picked = Use | UseDraft | Pull


def as_drafts(found: Iterable[Offer], below: int | None) -> list[Offer]:
    """The installed models that could draft for a target of ``below`` bytes.

    Of a pair, the smaller model is offered.
    """
    drafts = [
        o
        if o.draft is None
        else replace(o, target=o.draft, target_bytes=o.draft_bytes, draft=None, draft_bytes=0)
        for o in found
        if o.installed
    ]
    none = "no draft model: drafts come from the text"
    return [
        Offer(OWN, "", None, about="what the catalogue pairs with the target"),
        Offer(NONE, "", None, about=none),
        *(o for o in drafts if below is None or (o.target_bytes or 0) < below),
    ]


def matching(found: Iterable[Offer], query: str) -> list[Offer]:
    """The models that match all words of a search."""
    words = query.lower().split()
    return [offer for offer in found if offer.holds(words)]


def typed_folder(query: str) -> Path | None:
    """The folder of a typed path; None where no path is typed."""
    if not (os.sep in query or query.startswith("~")):
        return None
    path = paths.expand(query)
    folder = path if query.endswith(os.sep) else path.parent
    return folder if paths.is_dir(folder) else None


def typed(query: str) -> list[Offer]:
    """Models that are not in the list: files of a typed folder, or a repository to pull."""
    folder = typed_folder(query)
    path = paths.expand(query)
    found: list[Offer] = []
    if folder is not None:
        known = in_folder(folder)
        found = [o for o in known if o.name.startswith(str(path)) or path == folder]
        if paths.is_file(path) and not any(Path(o.name) == path for o in found):
            found.insert(0, Offer(str(path), str(path), path.stat().st_size))
    if not found and folder is None and _pullable(query):
        where = "on the Hub, not checked yet"
        found = [Offer(query, where, None, installed=False, pullable=True)]
    return found


def _pullable(query: str) -> bool:
    """Whether a text names a model of the Hub."""
    try:
        return on_hub(reference(query)) is not None
    except (LocalspecError, OSError):  # no name, no path that may be looked at, or a catalogue that
        # the list of offers reports
        return False


def widest(found: Iterable[Offer], room: int) -> int:
    """Width of the column of names."""
    longest = max((len(_name(offer, room)) for offer in found), default=0)
    return min(longest, _NAME_WIDTH, max(12, room // 2 - 8))


def header(names: int, room: int) -> Content:
    """The header line."""
    line = f"  {'NAME':<{names}}  {'SIZE':>9}  {'FIT':<8}  {'TOK/S':<9}"
    line += f"  {'HERE':<4}" if room >= _HERE else ""
    line += f"  {'LICENCE':<12}  {'DRAFT':<26}  FOR" if room >= _BROAD else "  FOR"
    return Content.styled(line[:room], "$quiet")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a model would run on this machine."""

    fit: str | None = None
    """Verdict of `localspec.models.memory.fit`; None while it is unknown."""
    speed: Expected | None = None
    best: bool = False
    """Whether it is the pair that suits this machine best."""
    measuring: bool = False
    """Whether the speed is not known because this machine is being measured."""

    @property
    def short(self) -> str:
        """The fit in a word or two."""
        slow = self.speed is not None and self.speed.slow
        return "slow" if slow else FIT_SHORT.get(self.fit or "", "")


def row(offer: Offer, standing: Standing, names: int, room: int, *, current: bool) -> Content:
    """The line of one model."""
    special = offer.name in {OWN, NONE}
    about = size(offer.n_bytes) if offer.n_bytes else "" if special else "?"
    approx = "" if offer.exact or not offer.n_bytes else "~"
    short = standing.short
    here = "" if special else "yes" if offer.installed else "no"
    draft = Path(offer.draft.rsplit(" : ")[-1]).name if offer.draft else ""
    more = f"{(offer.licence or '')[:12]:<12}  {_cut(draft, 26):<26}  " if room >= _BROAD else ""
    mark = "●" if current else "★" if standing.best else " "
    known = (
        f"{mark} {_cut(_name(offer, room), names):<{names}}",
        f"  {approx + about:>9}  ",
        f"{short:<8}",
        f"  {_speed(offer, standing):<9}",
        f"  {here:<4}  " if room >= _HERE else "  ",
    )
    purpose = f"best for this machine: {offer.about}" if standing.best else offer.about
    rest = _cut(more + plain(purpose), max(0, room - sum(len(part) for part in known)))
    fit_style = {"too big": "$text-error", "slow": "$text-warning"}.get(short, "$quiet")
    return Content.assemble(
        (known[0], "bold $text-success" if standing.best else ""),
        (known[1], "$quiet"),
        (known[2], fit_style),
        known[3],
        (known[4], "$text-success" if offer.installed else "$quiet"),
        rest,
    )


def _speed(offer: Offer, standing: Standing) -> str:
    if standing.speed is not None:
        return str(standing.speed)
    return "…" if standing.measuring and offer.reads is not None else ""


def of_speeds(best: str | None, machine: MachineSpeed | None, *, measuring: bool) -> str:
    """What the title says of the expected speeds."""
    parts = [f"★ best for this machine: {best}"] if best is not None else []
    if measuring:
        parts.append("measuring this machine …")
    elif machine is None:
        parts.append("this machine could not be measured; localspec doctor says why")
    elif machine.disturbed:
        parts.append("+ at least, it was busy")
    return "; ".join(parts)


def described_draft(offer: Offer, facts: Mapping[str, Any] | None) -> list[str]:
    """The description of a draft; ``facts`` is the output of `localspec show --draft --json`."""
    lines = [f"draft    {offer.target}"] if offer.target else [offer.about]
    draft = facts["draft"] if facts is not None else None
    if draft is not None:
        lines += [] if offer.target else [f"draft    {draft.get('path') or ''}"]
        lines += _file(draft)
        lines += _match(draft)
    elif facts is not None and offer.name == OWN:
        lines.append(
            _OWN_HEAD if facts.get("own_head") else "the catalogue has no draft for this target"
        )
    return [plain(line) for line in lines]


def described(offer: Offer, standing: Standing, facts: Mapping[str, Any] | None) -> list[str]:
    """The description of a model; ``facts`` is the output of `localspec show --json`."""
    lines = [f"for      {offer.about}"] if offer.about else []
    lines.append(f"target   {offer.target}")
    if offer.draft is not None:
        lines.append(f"draft    {offer.draft}")
    elif offer.drafting == MTP_EMBEDDED or (facts or {}).get("own_head"):
        lines.append(f"draft    {_OWN_HEAD}")
    if facts is not None:
        lines += _facts(facts)
    licence = offer.licence or (facts or {}).get("licence") or _licence(facts)
    if standing.speed is not None:
        lines.append(f"speed    {standing.speed.words} (an estimate)")
    known = [standing.fit or "fit not known yet", f"licence {licence or 'not known yet'}"]
    lines.append("  ·  ".join(known if offer.installed else [*known, "not here"]))
    return [plain(line) for line in (*lines, *offer.traps)]


def why_not_alone(facts: Mapping[str, Any]) -> str | None:
    """Why a model cannot answer alone, by its header; None where it can."""
    kind, name = facts.get("kind", "model"), facts.get("name")
    if kind == "model":
        return None
    return f"{name} is a head ({kind}) and cannot run alone; /draft {name} drafts with it"


def _facts(facts: Mapping[str, Any]) -> list[str]:
    draft = facts["draft"]
    return [*_file(facts["target"]), *(_match(draft) if draft is not None else ())]


def _file(facts: Mapping[str, Any]) -> list[str]:
    """The facts of a header; empty where only the catalogue is known."""
    if "description" not in facts:
        return []
    weights = f"{facts['parameters'] / 1e6:.0f} M parameters"
    return [f"         {facts['description']}, {weights}, context {facts['context']}"]


def _match(draft: Mapping[str, Any]) -> list[str]:
    if "mismatch" not in draft:
        return []
    if draft["mismatch"]:
        return [f"match    no: {draft['mismatch']}"]
    if draft["kind"] != "model":
        return [f"match    a head for this target ({draft['kind']})"]
    same = draft["same_vocabulary"]
    return [
        f"match    {'same vocabulary' if same else 'drafts the tokens that both vocabularies have'}"
    ]


def _licence(facts: Mapping[str, Any] | None) -> str | None:
    return facts["target"].get("licence") if facts is not None else None


def _name(offer: Offer, room: int) -> str:
    """The name; of a path that is too long, the file name or its end."""
    if not Path(offer.name).is_absolute():
        return offer.name
    most = min(_NAME_WIDTH, max(12, room // 2 - 8))
    name = offer.name if len(offer.name) <= most else Path(offer.name).name
    return name if len(name) <= most else "…" + name[1 - most :]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
