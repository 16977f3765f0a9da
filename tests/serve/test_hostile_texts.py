"""Texts that patterns would take long for, and much memory: one step of `re` keeps Python's lock
for as long as it takes, and what it may have to try again in memory.
"""

from __future__ import annotations

import json
import re
import sys
import time

import pytest
from costs import cost

from localspec.core.errors import MediaError
from localspec.serve.http import errors, json_body
from localspec.serve.http.errors import without_folders
from localspec.serve.http.json_body import parse
from localspec.serve.requests.pictures import picture_at

SIZE = 7_900_000
PARSE = "from localspec.serve.http.json_body import parse as read"
PICTURE = "from localspec.serve.requests.pictures import picture_at as read"
FOLDERS = "from localspec.serve.http.errors import without_folders as read"
HOSTILE = {
    "escapes in a text with many commas": (
        PARSE,
        rf"""b'{{"a":"' + b'\\n' * {(SIZE - 600_000) // 2} + b',' * 600_000 + b'"}}'""",
        "",
    ),
    "escapes in a text that does not end": (
        PARSE,
        rf"""b'{{"a":"' + b'\\n' * {(SIZE - 600_000) // 2} + b',' * 600_000""",
        "not valid JSON",
    ),
    "parameters of a data URI": (
        PICTURE,
        f"'data:;' + 'a=;' * {SIZE // 3}",
        "send the picture itself, as data:image/png;base64",
    ),
    "a picture in percent signs": (
        PICTURE,
        f"'data:image/png,' + '%41' * {SIZE // 3}",
        "send it in base64, as data:image/png;base64",
    ),
    "a path of many folders": (FOLDERS, f"'/' + 'a/' * {SIZE // 2}", ""),
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_text_takes_many_times_its_size(kind: str) -> None:
    setup, text, said = HOSTILE[kind]
    found = cost(f"{setup}\ntext = {text}", "read(text)")
    assert said in found.said
    assert bool(said) == bool(found.said)
    assert found.megabytes < 10 * SIZE / 1e6


def test_whether_all_characters_are_whole_takes_a_few_times_as_long_as_reading() -> None:
    raw = b'{"x": "' + rb"\ud83d\ude00" + rb"\n" * (SIZE // 2) + b'"}'

    def seconds(read: object) -> float:
        assert callable(read)
        since = time.thread_time()
        read(raw)
        return time.thread_time() - since

    assert min(seconds(parse) for _ in range(3)) < 10 * max(seconds(json.loads) for _ in range(3))


def test_a_picture_may_have_a_head_and_percent_signs_as_any_client_writes_them() -> None:
    named = ";name=" + "a" * 900
    assert picture_at(f"data:image/png{named},%89{'%50' * 65_535}").data[:2] == b"\x89P"
    with pytest.raises(MediaError, match="more than 65536 bytes written as %41"):
        picture_at("data:image/png," + "%50" * 65_537)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no /a/b/c.gguf, nor ~/d/e here", "no c.gguf, nor e here"),
        ("'/a b/c/d e.gguf' and '~/f/g'", "'d e.gguf' and 'g'"),
        ("in /a/b/ or //c", "in b/ or //c"),
        ("'/a/b/'", "'b/'"),
    ],
)
def test_folders_are_left_out_of_errors(text: str, shown: str) -> None:
    assert without_folders(text) == shown


def test_patterns_of_bodies_and_errors_try_nothing_again() -> None:
    """What is taken is kept, also where the rest does not fit: the same matches as without it."""
    for pattern in (json_body._PARTS, errors._FOLDERS):
        tried_again = re.compile(pattern.pattern.replace("*+", "*").replace("++", "+"), re.DOTALL)
        for text in ('"a\\"b",{"x":"\\\\"}', '"ab\\', '"abc', "'/a/b/c", "'/a/b'", "/a/b/ /c/d"):
            found = [match.span() for match in pattern.finditer(text)]
            assert found == [match.span() for match in tried_again.finditer(text)]
