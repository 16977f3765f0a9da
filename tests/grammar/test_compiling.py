"""Grammars are checked before anything runs, and hostile ones are refused in a sentence."""

from __future__ import annotations

import json

import pytest

from localspec.core import codec
from localspec.core.errors import UsageError
from localspec.core.grammar_spec import MAX_GRAMMAR, MAX_TEXT, GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.grammar import reading, tools
from localspec.grammar.compiling import compiled


def test_a_grammar_survives_the_protocol():
    for spec in (
        GrammarSpec.schema({"type": "object"}),
        GrammarSpec.json_object(),
        GrammarSpec.choice(["a", "b"]),
    ):
        request = ReplyRequest(prompt="x", grammar=spec)
        assert codec.decode(ReplyRequest, json.loads(json.dumps(codec.encode(request)))) == request


def test_a_class_that_describes_itself_is_a_schema():
    class Person:
        @classmethod
        def model_json_schema(cls):
            return {"type": "object", "properties": {"name": {"type": "string"}}}

    assert json.loads(GrammarSpec.schema(Person).text)["properties"]["name"]


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"not": {"type": "string"}, "uniqueItems": True}, "not, uniqueItems"),
        ({"type": "object", "propertyNames": {"pattern": "a"}}, "propertyNames"),
        ({"if": {}, "then": {}}, "if, then"),
    ],
)
def test_unsupported_keywords_are_named(schema, named):
    with pytest.raises(UsageError, match=f"not supported: {named};"):
        compiled(GrammarSpec.schema(schema))


def test_alternatives_that_may_both_hold_are_refused_and_others_are_not():
    one = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
    other = {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}
    compiled(GrammarSpec.schema({"oneOf": [{"type": "string"}, {"type": "null"}]}))
    with pytest.raises(UsageError, match="oneOf"):
        compiled(GrammarSpec.schema({"oneOf": [{"type": "string"}, {"minLength": 2}]}))
    del one, other


def nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


HOSTILE = {
    "nested": lambda: GrammarSpec.schema(nested(100)),
    "nested without end": lambda: GrammarSpec.schema("[" * 100_000),
    "brackets": lambda: GrammarSpec.schema('{"a":' + "[" * 300 + "]" * 300 + "}"),
    "megabytes": lambda: GrammarSpec.schema({"enum": [f"{i:09}" for i in range(200_000)]}),
    "alternatives of alternatives": lambda: GrammarSpec.schema(
        {
            "allOf": [
                {"anyOf": [{"properties": {c + str(i): {"type": "null"}}} for c in "ab"]}
                for i in range(20)
            ]
        }
    ),
    "many keys": lambda: GrammarSpec.schema(
        {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(20_000)}}
    ),
    "a reference elsewhere": lambda: GrammarSpec.schema({"$ref": "http://localhost:1/x.json"}),
    "false": lambda: GrammarSpec.schema("false"),
    "a list": lambda: GrammarSpec.schema("[]"),
    "no JSON": lambda: GrammarSpec.schema("{'a': 1}"),
    "parentheses": lambda: GrammarSpec.regex("(" * 5000 + "a" + ")" * 5000),
    "an open group": lambda: GrammarSpec.regex("(a"),
    "an unknown rule": lambda: GrammarSpec.lark("start: nowhere"),
    "no root": lambda: GrammarSpec.gbnf('first ::= "a"'),
    "GBNF in many parentheses": lambda: GrammarSpec.gbnf(
        "root ::= " + "(" * 3000 + '"a"' + ")" * 3000
    ),
    "GBNF in parentheses": lambda: GrammarSpec.gbnf("root ::= " + "(" * 20_000),
    "nothing": lambda: GrammarSpec.lark("  "),
    "an empty choice": lambda: GrammarSpec.choice(["a", ""]),
    "no choice": lambda: GrammarSpec.choice([]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused_in_a_sentence(name):
    with pytest.raises(UsageError) as refused:
        compiled(HOSTILE[name]())
    line = str(refused.value)
    assert "\n" not in line
    assert len(line) < 500
    assert "recursion" not in line
    assert "verbose" not in line


def test_of_an_unsupported_schema_only_its_keywords_are_named():
    schema = {"type": "array", "uniqueItems": True, "items": {"enum": ["if", "x"]}}
    parameters = {"type": "object", "properties": {"a": schema}}
    for spec in (
        GrammarSpec.schema(schema),
        GrammarSpec.lark(f'start: "abc" %json {json.dumps(schema)} "zzz"'),
        tools.spec([{"name": "f", "strict": True, "parameters": parameters}]),
    ):
        with pytest.raises(UsageError, match="not supported: uniqueItems; leave them out"):
            compiled(spec, "<tool_call>")


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a?){3000}a{3000}", "(.*a.{20})", "(a{1000}){1000}"]
)
def test_a_catastrophic_regex_is_followed_in_bounded_steps_or_refused(matcher, model, pattern):
    said = ""
    try:
        one = matcher(GrammarSpec.regex(pattern))
        tokens: list[int] = []
        for token in model.tokenize("a" * 40):
            if not one.mask(tokens).allows_token(token):
                break
            tokens.append(token)
            one.take(tokens)
    except UsageError as error:  # too large, or too complex on the way
        said = str(error)
    assert "\n" not in said


def test_a_grammar_has_a_largest_size():
    with pytest.raises(UsageError, match=str(MAX_GRAMMAR)):
        GrammarSpec.regex("a" * (MAX_GRAMMAR + 1))
    with pytest.raises(UsageError, match=str(MAX_TEXT)):
        GrammarSpec.schema({"const": "a" * MAX_TEXT})


def test_files_are_read_by_what_is_in_them(tmp_path):
    lark, gbnf = tmp_path / "a.lark", tmp_path / "b.txt"
    lark.write_text('start: "a" | "b"', encoding="utf-8")
    gbnf.write_text('root ::= "a" [0-9]+', encoding="utf-8")
    assert reading.grammar(str(lark)).kind == "lark"
    assert reading.grammar(str(gbnf)).kind == "gbnf"
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, said in (("bytes", "not text"), ("missing", "no file"), (".", "cannot read")):
        with pytest.raises(UsageError, match=said):
            reading.grammar(str(tmp_path / name))


@pytest.mark.parametrize("texts", [["a+b", "c d"], ['é\n"x/y'], ["[", "^$", "a-b&&c~#"]])
def test_choices_are_taken_letter_by_letter(matcher, model, texts):
    one = matcher(GrammarSpec.choice(texts))
    for wanted in texts:
        tokens = model.tokenize(wanted)
        piece = b"".join(map(model.piece, tokens)).decode()
        if piece == wanted:  # the demo has no way to write some of them
            canonical = list(tokens)
            assert one.legal([], canonical) == len(canonical)


@pytest.mark.parametrize("number", [-(1 << 63), -(1 << 63) + 1, -(1 << 63) + 512])
def test_a_number_on_which_the_library_faults_is_refused(number):
    """It would end the process, and so the engine of everybody."""
    for spec in (
        GrammarSpec.schema({"enum": ["a", number]}),
        GrammarSpec.schema({"const": {"a": [number]}}),
        GrammarSpec.lark(f'start: %json {{"const": {number}}}'),
        tools.spec([{"name": "f", "parameters": {"properties": {"a": {"const": number}}}}]),
    ):
        with pytest.raises(UsageError, match="too small for 64 bits"):
            compiled(spec, "<tool_call>")
    assert compiled(GrammarSpec.schema({"const": -(1 << 62)}))
