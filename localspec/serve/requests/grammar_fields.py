"""Structured output: the fields of OpenAI, llama.cpp and vLLM as one grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localspec.core.grammar_spec import GrammarSpec
from localspec.errors import UsageError
from localspec.serve.http.errors import bad_request
from localspec.serve.http.fields import Fields


def read_grammar(fields: Fields) -> GrammarSpec | None:
    """The grammar of a request; None: any text.

    Raises:
        ApiError: more than one grammar, or an invalid one.
    """
    found = [
        (name, spec)
        for name, read in _READERS
        if fields.has(name) and (spec := _checked(fields, name, read)) is not None
    ]
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise bad_request(f"{names} exclude each other: a reply follows one grammar", found[1][0])
    return found[0][1] if found else None


_Reader = Callable[[Fields, str], GrammarSpec | None]


def _checked(fields: Fields, name: str, read: _Reader) -> GrammarSpec | None:
    try:
        return read(fields, name)
    except UsageError as error:
        raise bad_request(f"{name}: {error}", fields.place(name)) from None


def _response_format(fields: Fields, name: str) -> GrammarSpec | None:
    given = fields.object(name)
    if given is None:
        return None
    kind = given.choice("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise given.refuse("type", "is missing")
    if kind == "text":
        return None
    # llama.cpp's clients put a schema behind json_object, and leave out the inner object.
    place = given.object("json_schema") or given
    schema = place.raw("schema")
    if schema is None and kind == "json_schema":
        raise place.refuse("schema", "is missing")
    return GrammarSpec.json_object() if schema is None else GrammarSpec.schema(schema)


def _schema(fields: Fields, name: str) -> GrammarSpec | None:
    return GrammarSpec.schema(fields.raw(name))


def _regex(fields: Fields, name: str) -> GrammarSpec | None:
    return GrammarSpec.regex(fields.text(name) or "")


def _choice(fields: Fields, name: str) -> GrammarSpec | None:
    return GrammarSpec.choice(fields.texts(name))


def _grammar(fields: Fields, name: str) -> GrammarSpec | None:
    text = fields.text(name) or ""
    if not text.strip():
        return None
    return GrammarSpec.gbnf(text) if "::=" in text else GrammarSpec.lark(text)


def _json_object(fields: Fields, name: str) -> GrammarSpec | None:
    return GrammarSpec.json_object() if fields.flag(name) else None


_INNER: tuple[tuple[str, _Reader], ...] = (
    ("json", _schema),
    ("regex", _regex),
    ("choice", _choice),
    ("grammar", _grammar),
    ("json_object", _json_object),
)


def _structured(fields: Fields, name: str) -> GrammarSpec | None:
    given: Any = fields.object(name)
    found = [read(given, inner) for inner, read in _INNER if given.has(inner)]
    if len(found) > 1:
        raise fields.refuse(name, "has more than one grammar")
    return found[0] if found else None


_READERS: tuple[tuple[str, _Reader], ...] = (
    ("response_format", _response_format),
    ("grammar", _grammar),
    ("json_schema", _schema),
    ("guided_json", _schema),
    ("guided_regex", _regex),
    ("guided_choice", _choice),
    ("guided_grammar", _grammar),
    ("structured_outputs", _structured),
)

__all__ = ["read_grammar"]
