"""Compiles a grammar of the user for llguidance, and checks it before anything runs.

Whole numbers of a JSON schema get an end: small models write digits until the reply is cut.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from localspec.core import json_text
from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar.tool_families import FAMILIES, JSON_STYLE, Family, family_of

DIGITS = 16
"""Most digits of a whole number without bounds, as in llama.cpp; a double has fewer."""
_MOST = 10**DIGITS - 2
"""The largest double with so many digits: llguidance reads bounds as doubles, and the next double
has a digit more."""
_MANY = 100
"""Whole numbers that are bounded: each has an automaton of its own, and there is a limit."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keys with schemas by names; a name is no keyword."""
_NO_SCHEMAS = frozenset({"const", "enum", "default", "examples", "not"})
"""Keys with values, or with what a value must not be. Under any other there may be a schema that a
reference names."""

_LONGEST = 300
"""Most characters of the library's message in ours."""
_INVALID = {
    "schema": "this JSON schema cannot be followed",
    "json": "JSON objects cannot be followed",
    "regex": "this regular expression is not one that can be followed",
    "choice": "these choices cannot be followed",
    "lark": "this Lark grammar is not valid",
    "gbnf": "this GBNF grammar is not valid",
    "tools": "these tools cannot be called",
}


_CRASHES = re.compile(r"-92233720368547(7[5-9]|[89]\d)\d{3}(?!\d)")
"""Literals near -2**63: llguidance 1.9.1 faults on those that a double rounds to it, and takes the
process with it."""


def bounded(schemas: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The schemas of one grammar, with bounds on their whole numbers where they have none.

    A schema that itself has a longer number means it. That one stays as it is, and so do all where
    there are too many.
    """
    added: list[None] = []
    found = [schema if _has_longer(schema) else _bounded(schema, added) for schema in schemas]
    return found if len(added) <= _MANY else list(schemas)


def _has_longer(schema: Mapping[str, Any]) -> bool:
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, int | float) and abs(one) > _MOST:
            return True
    return False


def _bounded(schema: Mapping[str, Any], added: list[None]) -> dict[str, Any]:
    """``added`` gets an entry for each whole number."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            found[key] = {name: _inside(one, added) for name, one in value.items()}
        else:
            found[key] = value if key in _NO_SCHEMAS else _inside(value, added)
    if _is_whole(found.get("type")) and "multipleOf" not in found:
        added.append(None)
        if not {"minimum", "exclusiveMinimum"} & found.keys():
            found["minimum"] = -_MOST
        if not {"maximum", "exclusiveMaximum"} & found.keys():
            found["maximum"] = _MOST
    return found


def _is_whole(kind: Any) -> bool:
    return kind == "integer" or (
        isinstance(kind, list) and "integer" in kind and "number" not in kind
    )


def _inside(one: Any, added: list[None]) -> Any:
    if isinstance(one, Mapping):
        return _bounded(one, added)
    return [_inside(each, added) for each in one] if isinstance(one, list) else one


def limits() -> Any:
    """Limits of what a token of a reply may cost: some 50 ms. They do not hold while a matcher is
    made: see `localspec.grammar.rehearsal`.

    A regular expression of a million steps took 11 s for its first mask with the default fuel.
    Items cost more than their number says: a completed one is compared with all of the row where
    it began, and what comes of it with all of its own row. With the default of 2,000 items in a
    row and 50,000 in a step, a mask behind the places that a rehearsal reaches took 1.8 s. States
    cost memory for as long as the reply goes on.
    """
    from llguidance._lib import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=300_000,
        step_lexer_fuel=200_000,
        step_max_items=8_000,
        max_items_in_row=800,
        max_lexer_states=16_384,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def compiled(
    spec: GrammarSpec,
    template: str | None = None,
    marker: Callable[[str], int | None] = lambda _: None,
    family: Family | None = None,
) -> str:
    """The grammar of a request in llguidance's own form, checked as far as that goes without a
    vocabulary.

    For calls of tools, ``template`` is the model's chat template, ``marker`` gives the id of a
    marker that is a token of its own, and ``family`` is the way to call them where the spec names
    none; by default that of the template.

    Raises:
        UsageError: it is not valid, or has parts that are not supported; they are named.
    """
    from llguidance import LLMatcher

    if spec.kind in {"schema", "lark", "tools"} and _CRASHES.search(spec.text):
        raise UsageError(f"{_INVALID[spec.kind]}: it has a number that is too small for 64 bits")
    try:
        grammar = (
            _written(spec) if spec.kind != "tools" else _of_tools(spec, template, marker, family)
        )
        failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    except RecursionError:
        refuse(spec.kind, "it is nested too deep")
    except ValueError as error:
        refuse(spec.kind, str(error))
    if failed:
        refuse(spec.kind, messages[0])
    return grammar


def one_line(reason: str) -> str:
    """The library's reason on one line, without its notes to itself."""
    return " ".join(reason.replace("<non-verbose/>", "").split())


def refuse(kind: str, reason: str) -> NoReturn:
    """Refuse a grammar with the library's reason on one line.

    Raises:
        UsageError: always.
    """
    _, found, rest = reason.partition("nimplemented keys: [")  # the request may repeat it
    if found and "]" in rest:
        named = ", ".join(re.findall(r'"([^"]*)"', rest.partition("]")[0]))
        what = "the schema of a tool" if kind == "tools" else "this JSON schema"
        raise UsageError(f"{what} uses keywords that are not supported: {named}; leave them out")
    if "oneOf constraints" in reason:
        raise UsageError(
            "this JSON schema uses oneOf with alternatives that may hold together; use anyOf, or "
            "tell them apart by a key with different constants"
        )
    reason = one_line(reason)
    if kind in {"regex", "choice"}:  # the library shows the grammar that it made of it
        reason = re.sub(r"^.*regex parse error: | \d+ \| start:.*$", "", reason)
    if len(reason) > _LONGEST:
        reason = reason[:_LONGEST] + "..."
    raise UsageError(f"{_INVALID[kind]}: {reason}")


def _written(spec: GrammarSpec) -> str:
    """The grammar in llguidance's own form.

    Raises:
        ValueError: it cannot be written so.
    """
    from llguidance import LLMatcher

    match spec.kind:
        case "schema":
            schema = json.loads(spec.text, parse_float=json_text.finite)
            if isinstance(schema, dict):
                (schema,) = bounded([schema])
            return str(LLMatcher.grammar_from_json_schema(schema, overrides=JSON_STYLE))
        case "json":
            schema = {"type": "object"}
            return str(LLMatcher.grammar_from_json_schema(schema, overrides=JSON_STYLE))
        case "regex":
            return str(LLMatcher.grammar_from_regex(spec.text))
        case "choice":
            return str(LLMatcher.grammar_from_regex("|".join(map(_literal, spec.choices))))
        case "lark":
            return str(LLMatcher.grammar_from_lark(spec.text))
        case "gbnf":
            return str(LLMatcher.grammar_from_lark(_lark_of_gbnf(spec.text)))
        case "tools":
            raise AssertionError("calls of tools depend on the model")


def _of_tools(
    spec: GrammarSpec,
    template: str | None,
    marker: Callable[[str], int | None],
    default: Family | None,
) -> str:
    """The grammar of calls of tools in llguidance's own form.

    Raises:
        UsageError: there are no such tools, or the model has no known way to call one.
    """
    from llguidance import LLMatcher

    from localspec.grammar.tools import Choice, lark

    choice = Choice.of(spec)
    family = default or family_of(template)
    if choice.family is not None:
        family = FAMILIES[choice.family]
    if family is None:
        raise UsageError("the chat template of this model has no known way to call tools")
    followed = bounded([tool.parameters for tool in choice.tools])
    tools = [
        dataclasses.replace(tool, parameters=parameters)
        for tool, parameters in zip(choice.tools, followed, strict=True)
    ]
    choice = dataclasses.replace(choice, tools=tuple(tools))
    if choice.answer is not None:
        compiled(GrammarSpec.schema(choice.answer))  # says what is wrong with it, if anything is
        (answer,) = bounded([choice.answer])
        choice = dataclasses.replace(choice, answer=answer)
    grammar = str(LLMatcher.grammar_from_lark(lark(choice, family, marker)))
    if _is_valid(grammar):
        return grammar
    tools.clear()
    for tool in choice.tools:
        alone = lark(dataclasses.replace(choice, tools=(tool,)), family, marker)
        if not tool.strict and not _is_valid(str(LLMatcher.grammar_from_lark(alone))):
            # A pattern that no automaton can follow, or the like: any object will do.
            tool = dataclasses.replace(tool, parameters={"type": "object"})  # noqa: PLW2901
        tools.append(tool)
    choice = dataclasses.replace(choice, tools=tuple(tools))
    return str(LLMatcher.grammar_from_lark(lark(choice, family, marker)))


def _is_valid(grammar: str) -> bool:
    from llguidance import LLMatcher

    failed, _ = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    return not failed


def _literal(text: str) -> str:
    """A regular expression for one text."""
    return re.sub(r"[\\.+*?()|\[\]{}^$#&\-~/]", r"\\\g<0>", text)


def _lark_of_gbnf(text: str) -> str:
    """A GBNF grammar in Lark's syntax.

    Raises:
        ValueError: it is no GBNF.
    """
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 - the converter raises whatever it runs into
        raise ValueError(str(error) or type(error).__name__) from None
