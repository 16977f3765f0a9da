"""Flags of ``run`` for structured output."""

from __future__ import annotations

from typing import Any

import click

from localspec.cli.flags import several
from localspec.cli.output import require_utf8
from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec

_FLAGS = ("schema", "json_object", "regex", "choice", "grammar")


grammar_flags = several(
    click.option(
        "--schema", metavar="FILE|JSON", help="Reply with JSON that fits this JSON schema."
    ),
    click.option("--json-object", is_flag=True, help="Reply with a JSON object."),
    click.option("--regex", metavar="REGEX", help="Reply with a text that matches."),
    click.option("--choice", metavar="A,B,C", help="Reply with one of these texts."),
    click.option(
        "--grammar",
        metavar="FILE",
        help="Reply with a text that this grammar (Lark or GBNF) allows.",
    ),
)
"""The flags for a grammar, of which one may be given."""


def take_grammar(flags: dict[str, Any]) -> GrammarSpec | None:
    """Take those flags out of ``flags``: the grammar of the reply, checked, or None.

    Raises:
        UsageError: more than one, or a grammar that cannot be followed.
    """
    given = {name: value for name in _FLAGS if (value := flags.pop(name)) not in (None, False)}
    if not given:
        return None
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names} exclude each other: a reply follows one grammar")
    from localspec.grammar import reading

    ((name, value),) = given.items()
    match name:
        case "schema":
            if value.lstrip().startswith("{"):  # else it is the name of a file
                require_utf8(value, "--schema")
            return reading.schema(value)
        case "regex":
            return reading.regex(require_utf8(value, "--regex"))
        case "choice":
            return reading.choices(require_utf8(value, "--choice"))
        case "grammar":
            return reading.grammar(value)
    return GrammarSpec.json_object()
