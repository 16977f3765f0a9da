"""Whole numbers under a schema end, except where the schema itself has longer ones."""

from __future__ import annotations

import pytest

from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar import compiling, tools
from localspec.grammar.compiling import compiled

WHOLE = {"type": "integer"}
OBJECT = {"type": "object", "properties": {"b": WHOLE}, "required": ["b"]}


def takes(matcher, model, spec: GrammarSpec, text: str) -> bool:
    """Whether the reply may be this text, and end there."""
    one = matcher(spec, 1)
    tokens = model.tokenize(text)
    if one.legal([5], tokens) < len(tokens):
        return False
    sequence = [5]
    for token in tokens:
        sequence.append(token)
        one.take(sequence)
    return bool(one.complete)


@pytest.mark.parametrize(
    ("schema", "around"),
    [
        (WHOLE, "%s"),
        ({"type": ["integer", "null"]}, "%s"),
        ({"$defs": {"n": WHOLE}, "$ref": "#/$defs/n"}, "%s"),
        ({"anyOf": [WHOLE, {"type": "boolean"}]}, "%s"),
        ({"type": "array", "items": WHOLE}, "[%s]"),
        ({"type": "array", "prefixItems": [WHOLE]}, "[%s]"),
        ({"type": "object", "additionalProperties": WHOLE}, '{"x": %s}'),
        (OBJECT, '{"b": %s}'),
        ({"x": {"y": WHOLE}, "$ref": "#/x/y"}, "%s"),
        ({"x": {"y": [WHOLE]}, "type": "array", "items": {"$ref": "#/x/y/0"}}, "[%s]"),
        (WHOLE | {"description": "an id, e.g. for 550e8400-e29b"}, "%s"),
        (WHOLE | {"title": "not as long as 12345678901234567"}, "%s"),
        ({"type": "object", "properties": {"1e9": WHOLE}, "required": ["1e9"]}, '{"1e9": %s}'),
        ({"anyOf": [WHOLE, {"const": "9" * 20}, {"const": 0.12345678901234567}]}, "%s"),
    ],
)
def test_a_whole_number_has_sixteen_digits_at_most(matcher, model, schema, around) -> None:
    spec = GrammarSpec.schema(schema)
    for number in ("0", "-7", "9" * 15 + "8", "-" + "9" * 15 + "8"):
        assert takes(matcher, model, spec, around % number)
    for number in ("1" * 17, "-" + "1" * 17, "1" + "0" * 16, "-1" + "0" * 16, "9" * 40):
        assert not takes(matcher, model, spec, around % number)


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({"type": "integer", "minimum": 10**17}, str(10**17 + 1)),
        ({"type": "integer", "const": 10**17}, str(10**17)),
        ({"type": "integer", "enum": [1, 10**17]}, str(10**17)),
        ({"type": "integer", "maximum": 1e18}, "1" * 18),
        ({"type": "integer", "examples": [10**17]}, "1" * 20),
        ({"type": "integer", "multipleOf": 10}, "1" * 30 + "0"),
        ({"type": "number"}, "1" * 30),
        ({"type": ["number", "integer"]}, "1" * 30),
    ],
)
def test_who_asks_for_longer_numbers_gets_them(matcher, model, schema, number) -> None:
    assert takes(matcher, model, GrammarSpec.schema(schema), number)


def test_one_bound_of_the_user_stays_and_the_other_is_added(matcher, model) -> None:
    spec = GrammarSpec.schema({"type": "integer", "minimum": 18})
    assert takes(matcher, model, spec, "18")
    assert not takes(matcher, model, spec, "17")
    assert not takes(matcher, model, spec, "9" * 17)


def test_the_arguments_of_tools_are_bounded_too() -> None:
    spec = tools.spec([{"name": "f", "parameters": OBJECT}])
    assert "9" * 15 + "8" in compiled(spec, "<tool_call>")


def test_values_are_no_schemas_and_many_numbers_stay_as_they_are() -> None:
    value = {"enum": [{"type": "integer"}], "default": {"type": "integer"}}
    many = {"type": "object", "properties": {f"k{i}": WHOLE for i in range(101)}}
    assert compiling.bounded([value, many]) == [value, many]
    assert compiling.bounded([value, OBJECT]) != [value, OBJECT]
