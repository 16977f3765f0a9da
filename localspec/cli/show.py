"""``localspec show``: files and properties of a model or pair, local or only in the catalogue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import complete
from localspec.cli.containment import contain
from localspec.cli.flags import setting_option
from localspec.cli.models import describe, labelled
from localspec.cli.output import write_json, write_line
from localspec.core import settings_schema as schema
from localspec.core.adapter_list import Adapter, adapters
from localspec.core.errors import LocalspecError, ModelFileError, ModelNotFoundError
from localspec.core.units import size

if TYPE_CHECKING:
    from localspec.models.catalog.pair import Pair
    from localspec.models.catalog.reference import ModelRef
    from localspec.models.catalog.resolve import Resolved
    from localspec.models.gguf.model_file import ModelFile


@click.command("show")
@click.argument("name", shell_complete=complete.models)
@setting_option(schema.DRAFT, sources=False)
@setting_option(schema.LORA, sources=False, default=("[]",), show_default=False)
@setting_option(schema.OFFLINE, sources=False, envvar=schema.OFFLINE.variable)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
def command(name: str, draft: str | None, lora: str, *, offline: bool, as_json: bool) -> None:
    """Show the files of NAME, their properties, and whether target and draft fit together.

    For a repository on the Hub that is not on this machine: the models in it. A file that is cut
    short is shown too, and the exit code is then 7.
    """
    contain()
    from localspec.models.catalog.reference import PairRef, reference
    from localspec.models.catalog.resolve import resolve

    ref = reference(name)
    pair = ref.pair if isinstance(ref, PairRef) else None
    try:
        files = resolve(name, draft)
    except ModelNotFoundError:
        if pair is not None and pair.installed:  # then it is the draft that was named
            raise
        if pair is None:
            found = None if offline else _on_hub(name, ref)
            if found is None:
                raise
            facts, lines = found, _hub_lines(found)
        else:
            facts = describe(pair)
            lines = _lines(facts, pair)
    else:
        facts, lines = _local(name, pair, files, adapters(lora))
    if as_json:
        write_json(facts)
    else:
        for line in lines:
            write_line(line)
    if facts.get("damaged") is not None:
        raise ModelFileError(facts["damaged"])


def _local(
    name: str, pair: Pair | None, files: Resolved, chosen: tuple[Adapter, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Facts and lines about files on this machine, with adapters of the target."""
    from localspec.models.compat.header_vocabulary import unsplit

    facts = _facts(name, files.target, files.draft)
    facts["adapters"] = _adapters(files.target, chosen)
    facts["notices"] = list(files.notices)
    facts["damaged"] = _cut_short(files.target, files.draft)
    if pair is not None:
        facts = describe(pair) | facts
    if facts["kind"] != "model":
        return facts, _head_lines(facts)
    facts["notices"] += filter(None, [unsplit(files.target.header)])
    lines = _lines(facts, pair)
    for one in facts["adapters"]:
        lines.append(f"adapter      {one['path']} at {one['scale']:g}, {size(one['bytes'])}")
    if facts["damaged"] is None:
        lines += _placement(facts, files.target, files.draft)
    return facts, lines


def _adapters(target: ModelFile, chosen: tuple[Adapter, ...]) -> list[dict[str, Any]]:
    """Facts about adapters.

    Raises:
        LocalspecError: one of them is none, or does not fit.
    """
    from localspec.models.compat.adapters import require_fitting
    from localspec.models.gguf.model_file import ModelFile

    for one in chosen:
        require_fitting(ModelFile(one.path), target)
    return [
        {"path": str(one.path), "scale": one.scale, "bytes": one.path.stat().st_size}
        for one in chosen
    ]


def _cut_short(*files: ModelFile | None) -> str | None:
    """A line if one of the files ends before its tensors do; None if none does."""
    from localspec.models.compat.head_checks import cut_short

    found = (cut_short(file.header) for file in files if file is not None)
    return next((told for told in found if told is not None), None)


def _on_hub(name: str, ref: ModelRef) -> dict[str, Any] | None:
    """The models of a repository that is not here; None if the Hub cannot have that name."""
    from localspec.cli.progress import Countdown
    from localspec.models.catalog import file_names
    from localspec.models.catalog.links import is_offline
    from localspec.models.catalog.reference import on_hub
    from localspec.models.hub import api
    from localspec.models.memory.fit import quick_verdict

    wanted = on_hub(ref)
    if wanted is None or is_offline():
        return None
    repo = api.look_up(wanted.repo, wanted.revision, Countdown())
    found = file_names.candidates(repo.entries, wanted)
    if wanted.tag is not None:
        found = [file_names.choose(wanted, found)]
    return {
        "name": name,
        "repo": repo.name,
        "revision": repo.commit,
        "licence": repo.licence,
        "gated": repo.gated,
        "models": [
            {
                "quantization": c.label,
                "files": [entry.path for entry in c.entries],
                "bytes": c.n_bytes,
                "fit": quick_verdict(c.n_bytes),
            }
            for c in sorted(found, key=lambda c: (c.n_bytes, c.prefix))
        ],
    }


def _hub_lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['repo']} on the Hub, not here"]
    for model in facts["models"]:
        files, label = model["files"], model["quantization"] or "?"
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        lines.append(f"{label:<12} {size(model['bytes']):>8}  {model['fit']:<13}  {files[0]}{more}")
    if not facts["models"]:
        lines.append("no GGUF model in it")
    lines.append(f"licence      {facts['licence'] or 'not stated'}{' (gated)' * facts['gated']}")
    lines.append(f"get one      localspec pull {facts['repo']}:QUANT")
    return lines


def _placement(facts: dict[str, Any], target: ModelFile, draft: ModelFile | None) -> list[str]:
    """Lines about the placement on this machine; also stored in ``facts``."""
    from localspec.models.memory import report
    from localspec.models.memory.fit import fit_files
    from localspec.models.memory.planner import Wishes

    try:
        beside = sum(one["bytes"] for one in facts["adapters"] if one["scale"])
        fit = fit_files(target, draft, Wishes(), beside=beside)
    except LocalspecError as error:  # what cannot be placed can still be shown
        facts["placement"] = None
        return ["", str(error)]
    facts["placement"] = report.describe(fit)
    return ["", *report.table(fit)]


def _facts(name: str, target: ModelFile, draft: ModelFile | None) -> dict[str, Any]:
    """Properties from the headers of local files."""
    from localspec.core.drafter_registry import MTP
    from localspec.models.compat import heads
    from localspec.models.compat.header_vocabulary import (
        HeaderVocabulary,
        end_tokens,
        vocabulary_mismatch,
    )

    header = target.header
    facts: dict[str, Any] = {
        "name": name,
        "target": _file(target),
        "draft": None,
        "end_tokens": [token.decode("utf-8", "replace") for token in end_tokens(header)],
        "chat_template": header.template is not None,
        "kind": heads.kind(header),
        "projector": _projector(target),
        "own_head": MTP if heads.carries_mtp(header) else None,
        "own_head_trouble": heads.mtp_problem(header) if heads.states_mtp(header) else None,
    }
    if draft is not None:
        other = draft.header
        ours, theirs = HeaderVocabulary(header), HeaderVocabulary(other)
        facts["draft"] = _file(draft) | {
            "kind": heads.kind(other),
            "mismatch": heads.why_incompatible(header, other),
            "same_vocabulary": vocabulary_mismatch(ours, theirs) is None,
        }
    return facts


def _projector(target: ModelFile) -> dict[str, Any] | None:
    """The projector beside a target, which is loaded with the first picture."""
    from localspec.core.options import Options
    from localspec.loading.sight import projector_memory, projector_of

    path = projector_of(target, Options())
    if path is None:
        return None
    return {"path": str(path), "bytes": path.stat().st_size, "memory": projector_memory(path)}


def _file(file: ModelFile) -> dict[str, Any]:
    from localspec.models.gguf.ggml_types import type_name

    path, header = file.path, file.header
    weights: dict[int, int] = {}
    for tensor in header.tensors:
        weights[tensor.ggml_type] = weights.get(tensor.ggml_type, 0) + tensor.n_bytes
    most = max(weights, key=lambda kind: weights[kind], default=0)
    return {
        "path": str(path),
        "bytes": file.n_bytes,
        "description": f"{header.text('general.name') or header.architecture}, {type_name(most)}",
        "architecture": header.architecture,
        "parameters": sum(math.prod(tensor.shape) for tensor in header.tensors),
        "layers": header.n_layer,
        "vocabulary": header.n_vocab,
        "context": header.context,
        "licence": header.licence,
    }


def _sight_lines(facts: dict[str, Any]) -> list[str]:
    if seen := facts.get("projector"):
        return [
            *labelled("sees", f"with {seen['path']} ({size(seen['bytes'])})"),
            f"          about {size(seen['memory'])} of memory from the first picture on",
        ]
    if facts.get("sees") and not facts.get("installed"):
        return ["sees      pictures: `localspec pull` fetches its projector too"]
    return []


def _lines(facts: dict[str, Any], pair: Pair | None) -> list[str]:
    about = f": {pair.about}" if pair is not None and pair.about else ""
    lines = [f"{facts['name']}{about}"]
    carried = facts.get("own_head") or facts.get("drafting") == "mtp-embedded"
    for role in ("target", "draft"):
        if role == "draft" and facts[role] is None and carried:
            lines.append("draft     in the target's file: a layer for multi-token prediction")
        else:
            lines += _file_lines(role, facts[role])
    lines += _sight_lines(facts)
    if facts["draft"] is not None and "mismatch" in facts["draft"]:
        mismatch = facts["draft"]["mismatch"]
        same = facts["draft"]["same_vocabulary"]
        found = (
            "yes: same vocabulary"
            if same
            else "partly: drafts the tokens that both vocabularies have"
        )
        if facts["draft"]["kind"] != "model":
            found = f"yes: a head for this target ({facts['draft']['kind']})"
        lines.append(f"match     {'no: ' + mismatch if mismatch else found}")
    notes = (facts.get("own_head_trouble"), *facts.get("notices", ()))
    lines += [line for text in filter(None, notes) for line in labelled("note", text)]
    if pair is not None:
        lines += _pair_lines(pair, facts)
    if "chat_template" in facts:
        lines.append(f"template  {'in the file' if facts['chat_template'] else 'none in the file'}")
        ends = ", ".join(facts["end_tokens"]) or "none: replies end only at the token limit"
        lines.append(f"ends with {ends}")
    licence = facts.get("licence") or facts["target"].get("licence")
    lines.append(f"licence   {licence or 'not stated'}")
    if pair is not None:
        lines += [line for text in pair.traps for line in labelled("note", text)]
        if not pair.installed:
            lines.append(f"get it    localspec pull {pair.name}")
    return lines


def _head_lines(facts: dict[str, Any]) -> list[str]:
    """Lines about a file that only drafts for a model."""
    file = facts["target"]
    return [
        facts["name"],
        *_file_lines("head", file),
        f"kind      {facts['kind']}: drafts for the model it was made for, cannot run alone",
        f"use it    localspec chat MODEL --draft {file['path']}",
        f"licence   {file['licence'] or 'not stated'}",
    ]


def _file_lines(role: str, facts: dict[str, Any] | None) -> list[str]:
    if facts is None:
        return [f"{role:<9} none: drafts come from the text of the conversation"]
    if "layers" not in facts:  # known from the catalogue only
        n = facts["bytes"]
        where = f"{facts['repo']} : {facts['file']}" if "repo" in facts else facts["path"]
        where = where or f"{facts['file']}, which is missing"
        lines = [f"{role:<9} {where}", f"          {size(n) if n else 'size not known'}"]
        if facts.get("revision"):
            lines[1] += f", commit {facts['revision'][:12]}"
        if facts.get("sha256"):
            lines[1] += f", sha256 {facts['sha256'][:12]}…"
        return lines
    return [
        f"{role:<9} {facts['path']}",
        f"          {facts['description']}, {size(facts['bytes'])}",
        (
            f"          {facts['parameters'] / 1e6:.1f} M parameters, {facts['layers']} layers, "
            f"vocabulary {facts['vocabulary']}, context {facts['context']}"
        ),
    ]


def _pair_lines(pair: Pair, facts: dict[str, Any]) -> list[str]:
    lines = [f"drafting  {pair.drafting}"]
    if pair.draft_length:
        lines[0] += f", {pair.draft_length} tokens at a time as a rule"
    if pair.context:
        lines.append(f"context   {pair.context} tokens")
    if facts.get("fit"):
        meant = f"; meant for {pair.memory} GB of memory" if pair.memory else ""
        lines.append(f"fit       {facts['fit']}{meant}")
    return lines
