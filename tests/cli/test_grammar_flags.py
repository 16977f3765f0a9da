"""Flags for structured output: one at a time, checked before a model is loaded."""

from __future__ import annotations

import json

import pytest

from localspec import cli
from localspec.cli.grammar_flags import take_grammar
from localspec.core.errors import UsageError

NONE = {"schema": None, "json_object": False, "regex": None, "choice": None, "grammar": None}


def taken(**flags: object):
    return take_grammar({**NONE, **flags})


def test_a_schema_is_given_in_braces_or_as_a_file(tmp_path):
    file = tmp_path / "s.json"
    file.write_text('{"type": "object"}', encoding="utf-8")
    assert taken(schema=str(file)) == taken(schema=' {"type": "object"}')
    assert taken() is None
    assert taken(json_object=True).kind == "json"
    assert taken(choice="a, b,c").choices == ("a", "b", "c")
    assert taken(regex="[0-9]+").text == "[0-9]+"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"schema": "{}", "regex": "a"}, "--schema and --regex exclude each other"),
        ({"schema": "no.json"}, "no file no.json"),
        ({"schema": '{"type": '}, "not JSON"),
        ({"schema": '{"uniqueItems": true}'}, "not supported: uniqueItems"),
        ({"regex": "("}, "regular expression"),
        ({"choice": "a,,b"}, "empty"),
        ({"grammar": "no.lark"}, "no file no.lark"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_a_sentence(flags, said):
    with pytest.raises(UsageError, match=said):
        taken(**flags)


def test_a_bad_schema_ends_run_before_a_model_is_looked_for(capsys):
    code = cli.call(["run", "-m", "/no/such/model.gguf", "hi", "--schema", '{"not": {}}'])
    assert code == 2
    assert "not supported: not" in capsys.readouterr().err


def test_run_prints_what_fits_the_schema(capsys):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
        "required": ["name", "ok"],
        "additionalProperties": False,
    }
    asked = ["run", "Who?", "--json", "--seed", "1", "--draft-max", "4"]
    code = cli.call([*asked, "--schema", json.dumps(schema)])
    assert code == 0
    report = json.loads(capsys.readouterr().out)
    assert set(json.loads(report["text"])) == {"name", "ok"}
    assert report["finish_reason"] == "stop"
    assert report["stats"]["by_drafter"]["grammar"]["accepted"] > 0


def test_a_reply_that_is_cut_within_its_schema_is_a_failure(capsys, tmp_path):
    schema = '{"type": "array", "items": {"const": "word"}, "minItems": 9, "maxItems": 9}'
    asked = ["--schema", schema, "-n", "5", "--seed", "1"]
    assert cli.call(["run", "Words?", *asked]) == 1
    assert "the text is not valid" in capsys.readouterr().err
    lines = tmp_path / "prompts"
    lines.write_text("Words?\n")
    assert cli.call(["run", "--parallel", str(lines), *asked]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["valid"], report["finish_reason"]) == (False, "length")
