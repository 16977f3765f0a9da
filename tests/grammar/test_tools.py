"""Calls of tools are well formed by construction, in every family's way to write them."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar import tools
from localspec.grammar.call_splitter import parameter_json
from localspec.grammar.checking import Checker
from localspec.grammar.compiling import compiled
from localspec.grammar.matching import GrammarMatcher
from localspec.grammar.reply_parts import WholeCall
from localspec.grammar.tool_families import FAMILIES, Tool, family_of

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"$ref": "#/$defs/count"},
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["city", "unit"],
    "$defs": {"count": {"type": "integer", "minimum": 1, "maximum": 9}},
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"name": "stop.it"},
]
TEMPLATES = {
    "hermes": "<tool_call>{...}</tool_call>",
    "qwen3-coder": "<tool_call><function=...><parameter=...>",
    "mistral": "[TOOL_CALLS][...]",
    "mistral-args": "[TOOL_CALLS]name[ARGS]{}",
    "llama3": "<|python_tag|>",
}
WRITTEN = {
    "hermes": (
        'Let me see.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2,'
        ' "unit": "c"}}\n</tool_call>\n<tool_call>\n{"name": "stop.it", "arguments": {}}\n'
        "</tool_call>"
    ),
    "qwen3-coder": (
        "Let me see.<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n<parameter=unit>\nc\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=stop.it>\n</function>\n</tool_call>"
    ),
    "mistral": (
        'Let me see.[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome", "days": 2,'
        ' "unit": "c"}}, {"name": "stop.it", "arguments": {}}]'
    ),
    "mistral-args": (
        'Let me see.[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 2, "unit": "c"}'
        "[TOOL_CALLS]stop.it[ARGS]{}"
    ),
    "llama3": (
        '{"name": "get_weather", "parameters": {"city": "Rome", "days": 2, "unit": "c"}}; '
        '{"name": "stop.it", "parameters": {}}'
    ),
}


def matcher(model, vocabulary, spec: GrammarSpec, family: str) -> GrammarMatcher:
    return GrammarMatcher(
        vocabulary,
        compiled(spec, TEMPLATES[family]),
        spec.kind,
        start=0,
        n_vocab=model.n_vocab,
        end_ids=model.end_ids,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_text_and_parallel_calls_are_allowed_and_read_back(family, model, vocabulary):
    assert family_of(TEMPLATES[family]).name == family
    spec = tools.spec(TOOLS)
    one = matcher(model, vocabulary, spec, family)
    tokens = vocabulary.tokenize_str(WRITTEN[family])
    assert one.legal([], tokens) == len(tokens)
    choice = tools.Choice.of(spec)
    before, found = tools.calls(FAMILIES[family], WRITTEN[family], choice.tools)
    assert before == ("" if family == "llama3" else "Let me see.")
    assert found == [
        tools.ToolCall("get_weather", {"city": "Rome", "days": 2, "unit": "c"}),
        tools.ToolCall("stop.it", {}),
    ]
    plain = vocabulary.tokenize_str("No tool is needed here.")
    assert one.legal([], plain) == len(plain)


AGE = GrammarSpec.schema(
    {
        "type": "object",
        "properties": {"age": {"type": "integer"}},
        "required": ["age"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.open])
def test_a_reply_is_a_call_or_the_json_that_is_asked_for(family, model, vocabulary):
    spec = tools.with_answer(tools.spec(TOOLS), AGE)
    one = matcher(model, vocabulary, spec, family)
    call = vocabulary.tokenize_str(WRITTEN[family].removeprefix("Let me see."))
    answer = vocabulary.tokenize_str('{"age": 5}')
    for tokens in (call, answer):
        assert one.legal([], tokens) == len(tokens)
    for text in ("No tool is needed.", '{"age": "old"}', '{"name": "get_weather"', "Let me see."):
        tokens = vocabulary.tokenize_str(text)
        assert one.legal([], tokens) < len(tokens)
    endless = vocabulary.tokenize_str('{"age": ' + "1" * 17)
    assert one.legal([], endless) < len(endless)


def test_a_reply_that_must_call_has_no_other_answer(model, vocabulary):
    spec = tools.with_answer(tools.spec(TOOLS, choice="required"), AGE)
    one = matcher(model, vocabulary, spec, "hermes")
    assert one.legal([], vocabulary.tokenize_str('{"age": 5}')) == 0


def test_calls_without_a_marker_cannot_be_told_from_json():
    with pytest.raises(UsageError, match="cannot be told from an answer in JSON"):
        compiled(tools.with_answer(tools.spec(TOOLS), AGE), TEMPLATES["llama3"])


def test_an_answer_that_cannot_be_followed_is_said_to_be_that():
    odd = GrammarSpec.schema({"type": "object", "properties": {"a": {"not": {}}}})
    with pytest.raises(UsageError, match="this JSON schema"):
        compiled(tools.with_answer(tools.spec(TOOLS), odd), TEMPLATES["hermes"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_any_reply_that_must_call_has_valid_calls_only(family, seed, model, vocabulary):
    spec = tools.spec(TOOLS, choice="required", several=False)
    one = matcher(model, vocabulary, spec, family)
    rng, tokens = np.random.default_rng(seed), list[int]()
    for _ in range(300):
        tokens.append(int(rng.choice(one.mask(tokens).ids)))
        if one.take(tokens) or tokens[-1] in model.end_ids:
            break
    assert one.complete
    said = b"".join(model.piece(t) for t in tokens if t not in model.end_ids).decode()
    before, found = tools.calls(FAMILIES[family], said, tools.Choice.of(spec).tools)
    assert before == ""
    (call,) = found
    if call.name == "get_weather":
        jsonschema.validate(json.loads(json.dumps(call.arguments)), WEATHER)
    else:
        assert call.arguments == {}


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"const": "true"}, "true", "true"),
        ({"const": True}, "true", True),
        ({"const": "5"}, "5", "5"),
        ({"const": 5}, "5", 5),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, "1"]}, "1", 1),
        ({"enum": [1, "1"]}, '"1"', "1"),
        ({"enum": ["true", True]}, "true", True),
        ({"enum": ["null", None]}, '"null"', "null"),
    ],
)
def test_a_value_without_a_type_is_read_as_the_grammar_has_it_written(
    schema, written, value, model, vocabulary
):
    one = {"name": "f", "parameters": {"properties": {"x": schema}, "required": ["x"]}}
    spec = tools.spec([one], choice="f")
    reply = f"<tool_call>\n<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>\n"
    tokens = vocabulary.tokenize_str(f"{reply}</tool_call>")
    assert matcher(model, vocabulary, spec, "qwen3-coder").legal([], tokens) == len(tokens)
    choice, family = tools.Choice.of(spec), FAMILIES["qwen3-coder"]
    _, (call,) = tools.calls(family, f"{reply}</tool_call>", choice.tools)
    assert (call.arguments["x"], type(call.arguments["x"])) == (value, type(value))


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"properties": {"x": {"type": "string", "pattern": "^[0-9]{4}$"}}}, "pattern"),
        ({"properties": {"x": {"type": "string", "format": "date", "title": "X"}}}, "format"),
        ({"properties": {"x": {"type": "string", "minLength": "a"}}}, "minLength"),
        ({"properties": {"x": {"enum": ["a", "bb"], "maxLength": 1}}}, "maxLength"),
        ({"properties": {"x": {"type": "string"}}, "required": ["x", "y"]}, "required"),
        ({"properties": {"x": {"type": "string"}}, "minProperties": 1}, "minProperties"),
    ],
)
def test_a_strict_tool_is_refused_where_texts_without_quotes_cannot_follow_it(parameters, named):
    one = {"name": "f", "parameters": parameters, "strict": True}
    with pytest.raises(UsageError, match=f"calls of f cannot follow {named} "):
        compiled(tools.spec([one]), family=FAMILIES["qwen3-coder"])
    compiled(tools.spec([one | {"strict": False}]), family=FAMILIES["qwen3-coder"])


@pytest.mark.parametrize(
    ("parameters", "written", "fits"),
    [
        ({"properties": {"x": {"type": "string", "minLength": 2.0}}}, "ab", True),
        ({"properties": {"x": {"type": "string", "minLength": 2.0}}}, "a", False),
        ({"properties": {"x": {"type": "string", "title": "X", "maxLength": 2}}}, "abc", False),
        ({"required": ["x"], "additionalProperties": {"type": "string"}}, "12", True),
        ({"required": ["x"], "additionalProperties": {"type": "integer"}}, "12", True),
        ({"required": ["x"], "additionalProperties": {"type": "integer"}}, "ab", False),
    ],
)
def test_a_strict_tool_is_followed_in_texts_without_quotes(
    parameters, written, fits, model, vocabulary
):
    spec = tools.spec([{"name": "f", "parameters": parameters, "strict": True}], choice="f")
    reply = f"<tool_call>\n<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>\n"
    tokens = vocabulary.tokenize_str(f"{reply}</tool_call>")
    legal = matcher(model, vocabulary, spec, "qwen3-coder").legal([], tokens)
    assert (legal == len(tokens)) is fits
    if fits:
        choice, family = tools.Choice.of(spec), FAMILIES["qwen3-coder"]
        _, (call,) = tools.calls(family, f"{reply}</tool_call>", choice.tools)
        jsonschema.validate(call.arguments, parameters)


@pytest.mark.parametrize("family", ["hermes", "qwen3-coder", "mistral", "mistral-args"])
def test_text_cannot_hold_half_a_call(family, model, vocabulary):
    one = matcher(model, vocabulary, tools.spec(TOOLS), family)
    marker = FAMILIES[family].open
    tokens = vocabulary.tokenize_str(f"so {marker}oops")
    assert one.legal([], tokens) < len(tokens)
    begun = vocabulary.tokenize_str(f"so {marker}")
    assert one.legal([], begun) == len(begun)
    for n in range(len(begun)):
        one.take(begun[: n + 1])
    assert not one.complete
    assert not model.end_ids & set(one.mask(begun).ids.tolist())


def test_one_tool_may_be_demanded_and_unknown_ones_are_refused(model, vocabulary):
    spec = tools.spec(TOOLS, choice="stop.it")
    one = matcher(model, vocabulary, spec, "hermes")
    forced = vocabulary.decode_str(one.forced([]))
    assert forced.startswith('<tool_call>\n{"name": "stop.it", "arguments": {}}\n</tool_call>')
    with pytest.raises(UsageError, match="no tool 'other'"):
        tools.spec(TOOLS, choice="other")
    with pytest.raises(UsageError, match="a tool needs a name"):
        tools.spec([{"name": "rm -rf"}])
    with pytest.raises(UsageError, match="no tools"):
        tools.spec([])
    with pytest.raises(UsageError, match="no known way to call"):
        compiled(tools.spec(TOOLS), "a template without calls")
    with pytest.raises(UsageError, match="not supported: not"):
        compiled(
            tools.spec([{"name": "f", "strict": True, "parameters": {"not": {}}}]),
            TEMPLATES["hermes"],
        )


def test_a_marker_that_is_a_token_is_written_by_its_id(model, vocabulary):
    end = max(model.end_ids)
    spec = tools.spec(TOOLS, choice="required")
    grammar = compiled(spec, TEMPLATES["hermes"], {"<tool_call>": end}.get)
    one = GrammarMatcher(
        vocabulary, grammar, "tools", start=0, n_vocab=model.n_vocab, end_ids=frozenset({0})
    )
    assert one.forced([])[:1] in ([], [end])
    assert one.mask([]).only == end


def test_half_a_marker_is_held_back():
    assert tools.held_back("so <tool", "<tool_call>") == 5
    assert tools.held_back("so <tool_call>", "<tool_call>") == 0
    assert tools.held_back("a < b", "<tool_call>") == 0
    assert tools.held_back("", "<tool_call>") == 0
    assert isinstance(Tool("a", {}), Tool)


@pytest.mark.parametrize("family", FAMILIES)
def test_tools_with_keywords_that_cannot_be_followed_are_called_without_them(family):
    """Editors and agents send what they have: nobody is there to leave a keyword out."""
    odd = {
        "type": "object",
        "properties": {
            "uri": {"type": "string", "format": "uri", "pattern": "^(?!x)"},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "any": True,
            "odd": {"not": {"type": "null"}, "pattern": "^(?=x)"},
        },
        "required": ["tags"],
    }
    spec = tools.spec([{"name": "odd", "parameters": odd}, *TOOLS], choice="required")
    assert compiled(spec, TEMPLATES[family])
    strict = tools.spec([{"name": "odd", "parameters": odd, "strict": True}])
    with pytest.raises(UsageError):
        compiled(strict, TEMPLATES[family])


@pytest.mark.parametrize(
    "parameters",
    [
        [1],
        {"type": "string"},
        {"type": "object", "properties": [1]},
        {"properties": {"a": 1}},
        {"required": "a"},
        {"required": [1]},
    ],
)
def test_parameters_that_describe_no_object_are_refused(parameters):
    with pytest.raises(UsageError, match="not a JSON schema of an object"):
        tools.spec([{"name": "f", "parameters": parameters}])


def test_parameters_that_are_nested_too_deep_are_refused():
    deep: dict = {}
    for _ in range(3000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(UsageError, match="nested too deep"):
        tools.spec([{"name": "f", "parameters": deep}])


def test_arguments_may_hold_markers(model, vocabulary):
    said = '[TOOL_CALLS]get_weather[ARGS]{"city": "[TOOL_CALLS]", "unit": "c"}'
    _, found = tools.calls(FAMILIES["mistral-args"], said)
    assert found == [tools.ToolCall("get_weather", {"city": "[TOOL_CALLS]", "unit": "c"})]


def test_text_cannot_spell_the_marker_of_a_call(model, vocabulary):
    one = matcher(model, vocabulary, tools.spec(TOOLS), "llama3")
    tokens = vocabulary.tokenize_str("<|python_tag|>{oops")
    assert one.legal([], tokens) < len(tokens)


@pytest.mark.parametrize(
    ("written", "json_text"),
    [
        ("9" * 4301, f'"{"9" * 4301}"'),
        ("[" * 5000 + "]" * 5000, None),
        ("1e400", "1e400"),
        ("12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("NaN", '"NaN"'),
        ("not JSON", '"not JSON"'),
        ('{"a": 1}\n', '{"a": 1}'),
    ],
)
def test_a_parameter_is_what_was_written(written: str, json_text: str | None) -> None:
    found = parameter_json(written, {})
    assert found in ((json_text,) if json_text else (written, json.dumps(written)))


@pytest.mark.parametrize("arguments", ['{"x": 1e400}', '{"x": ' + "9" * 4301 + "}", "[1]"])
def test_arguments_that_no_value_holds_are_given_as_text(arguments: str) -> None:
    assert WholeCall("1", "f", arguments).value() == {"arguments": arguments}
    assert WholeCall("1", "f", '{"x": 1.5}').value() == {"x": 1.5}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tools": 1}, "tools is missing, or of a wrong type"),
        ({"tools": [1]}, "the tools are not objects"),
        ({"tools": [{"name": "f", "parameters": 5}]}, "the parameters of f are not a JSON schema"),
        ({"tools": [{"name": "f", "parameters": {"properties": 5}}]}, "are not a JSON schema"),
        ({"tools": [{"name": 5, "parameters": {}}]}, "a tool needs a name"),
        ({"choice": 5}, "choice is missing"),
        ({"several": "no"}, "several is missing"),
        ({"family": []}, "family is missing"),
        ({"answer": 5}, "answer is missing"),
        (None, "tools is missing"),
    ],
)
@pytest.mark.parametrize("family", ["hermes", "qwen3-coder"])
def test_a_spec_of_another_shape_is_refused_by_name(
    changed: dict[str, object] | None, said: str, family: str
) -> None:
    fields = json.loads(tools.spec(TOOLS).text)
    text = "[]" if changed is None else json.dumps(fields | changed)
    with pytest.raises(UsageError, match=said):
        Checker().checked(GrammarSpec("tools", text), family)
    assert (
        tools.Choice.of(tools.spec(TOOLS)).tools[0].parameters == fields["tools"][0]["parameters"]
    )


def test_calls_before_one_that_is_no_json_are_read() -> None:
    good = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    said = f"x {good}\n{good.replace('1', 'oops')}"
    assert tools.calls(FAMILIES["hermes"], said)[1] == [tools.ToolCall("f", {"a": 1})]


def test_a_reply_that_was_cut_has_the_calls_whose_arguments_are_whole() -> None:
    good = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    for cut in range(len(good)):
        assert tools.calls(FAMILIES["hermes"], good + good[:cut])[1][0] == tools.ToolCall(
            "f", {"a": 1}
        )
