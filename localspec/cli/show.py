"""``localspec show``: what is known of one model or pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from localspec.cli.models import size
from localspec.cli.texts import write


@click.command("show")
@click.argument("name")
@click.option("-d", "--draft", metavar="MODEL", help="Draft model, or none.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of text.")
def command(name: str, draft: str | None, *, as_json: bool) -> None:
    """Show the files behind NAME, what they hold, and whether they make a pair."""
    from localspec.llama import library
    from localspec.llama.model import Model
    from localspec.pairs.catalog import catalog
    from localspec.pairs.check import vocabulary_mismatch
    from localspec.pairs.resolve import resolve

    library.start()
    files = resolve(name, draft)
    target = Model(files.target)
    facts: dict[str, Any] = {"name": name, "target": _facts(files.target, target), "draft": None}
    if files.draft is not None:
        other = Model(files.draft)
        facts["draft"] = _facts(files.draft, other)
        facts["draft"]["mismatch"] = vocabulary_mismatch(target, other)
        other.close()
    facts["end_tokens"] = [
        target.token_text(i).decode("utf-8", "replace") for i in sorted(target.end_ids)
    ]
    facts["chat_template"] = target.template is not None
    target.close()
    if pair := catalog().get(name):
        facts |= {"about": pair.about, "licence": pair.licence, "drafting": pair.drafting}
    if as_json:
        write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for line in _lines(facts):
        write(line + "\n")


def _facts(path: Path, model: Any) -> dict[str, Any]:
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "description": model.description,
        "architecture": model.architecture,
        "parameters": model.n_params,
        "layers": model.n_layer,
        "vocabulary": model.n_vocab,
        "context": model.n_ctx_train,
        "licence": model.metadata.get("general.license"),
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['name']}" + (f": {facts['about']}" if "about" in facts else "")]
    for role in ("target", "draft"):
        if facts[role] is None:
            lines.append("draft     none: drafts come from n-grams of the conversation")
            continue
        f = facts[role]
        lines.append(f"{role:<9} {f['path']}")
        lines.append(
            f"          {f['description']}, {size(f['bytes'])}, {f['parameters'] / 1e6:.1f} M "
            f"weights, {f['layers']} layers, {f['vocabulary']} tokens, context {f['context']}"
        )
    if facts["draft"] is not None:
        mismatch = facts["draft"]["mismatch"]
        lines.append(f"match     {'no: ' + mismatch if mismatch else 'yes: same vocabulary'}")
    lines.append(f"template  {'in the file' if facts['chat_template'] else 'none in the file'}")
    lines.append(f"ends with {', '.join(facts['end_tokens']) or 'nothing: it never stops'}")
    licence = facts.get("licence") or facts["target"]["licence"]
    lines.append(f"licence   {licence or 'not stated'}")
    return lines
