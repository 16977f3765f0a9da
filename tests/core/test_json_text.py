"""JSON that a request holds as a text has limits: one step reads all of it."""

import json

import pytest

from localspec.core import json_text
from localspec.core.errors import UsageError
from localspec.core.events import MessageCall
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.json_text import (
    LONGEST_NUMBER,
    MOST_DEPTH,
    MOST_FRACTIONS,
    MOST_MARKS,
    object_or_text,
    read,
    read_plain,
)
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampler_settings import read_breakers
from localspec.grammar.compiling import compiled

COSTLY = {
    "names": ("{" + ",".join(f'"{i}":""' for i in range(200_000)) + "}", "commas, colons"),
    "objects": ('{"a":[' + "{}," * 200_000 + "0]}", "commas, colons"),
    "fractions": ('{"a":[' + "1e-300," * (MOST_FRACTIONS + 1) + "0]}", "not whole"),
    "a long number": ('{"a":' + "9" * (LONGEST_NUMBER + 1) + "}", "a number of 401"),
    "depth": ('{"a":' * (MOST_DEPTH + 1) + "0" + "}" * (MOST_DEPTH + 1), "inside each other"),
    "depth without end": ('{"a":' * 100_000, "inside each other"),
    "a long fraction": ('{"a":0.' + "7" * 700 + "}", "a number of 702"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_what_takes_long_in_one_step_is_refused(kind):
    text, said = COSTLY[kind]
    with pytest.raises(UsageError, match=said):
        read(text)
    with pytest.raises(UsageError, match=said):
        MessageCall("1", "f", text)
    with pytest.raises(UsageError, match=said):
        GrammarSpec.schema(text)
    with pytest.raises(UsageError, match=said):
        ReplyRequest(tools=f"[{text}]")
    with pytest.raises(UsageError, match=said):
        ReplyRequest(template_arguments=text)
    with pytest.raises(UsageError, match=said):
        read_breakers(f"[{text}]")


def test_what_looks_alike_is_read():
    numbers = [1] * (MOST_MARKS - 3) + [10**399 - 1]
    assert read(json.dumps({"a": numbers})) == {"a": numbers}
    fractions = [0.25] * MOST_FRACTIONS
    assert read(json.dumps(fractions)) == fractions
    deep = '{"a":' * MOST_DEPTH + '"' + "[" * 1000 + '"' + "}" * MOST_DEPTH
    assert json.dumps(read(deep), separators=(",", ":")) == deep


UNWRITABLE = {
    "a number beyond floating point": '{"x": 1e999}',
    "no number": '{"x": NaN}',
    "half a character": '{"x": "\\ud800"}',
    "half a character in a name": '{"\\udc00": 1}',
    "the beginning of a call": '{"x": ',
    "depth": '{"x":' * (MOST_DEPTH + 1) + "0" + "}" * (MOST_DEPTH + 1),
    "a long number": '{"x": ' + "9" * 5000 + "}",
    "a name twice": '{"path": "notes", "path": "/etc"}',
    "a name twice, inside": '{"x": [{"a": 1, "a": 2}]}',
}


@pytest.mark.parametrize("kind", UNWRITABLE)
def test_what_cannot_be_written_again_stays_the_text_that_was_shown(kind):
    text = UNWRITABLE[kind]
    with pytest.raises((ValueError, RecursionError)):
        read_plain(text)
    assert object_or_text(text) == {"arguments": text}


class Compared(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str(self) == str(other)

    __hash__ = str.__hash__


def test_a_name_twice_is_found_in_one_pass_however_many_there_are():
    names = [*map(str, range(2000)), "1999"]
    with pytest.raises(ValueError, match="two values of '1999'"):
        json_text._single([(Compared(name), 0) for name in names])
    assert Compared.times < 10 * len(names)


def test_what_can_be_written_again_is_read():
    found = {"x": [1, 0.5, "\U0001f989 é", None]}
    assert read_plain(json.dumps(found)) == object_or_text(json.dumps(found)) == found
    assert object_or_text("") == {}
    assert object_or_text("[]") == {"arguments": "[]"}


def test_a_schema_has_no_number_that_it_cannot_be_written_with():
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        GrammarSpec.schema('{"const": 1e400}')
    with pytest.raises(UsageError, match="1e400 is a number beyond floating point"):
        compiled(GrammarSpec("schema", '{"const": 1e400}'))
    MessageCall("1", "f", '{"x": 1e400}')  # a model wrote it, and the conversation goes on
