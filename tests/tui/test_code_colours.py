"""Which code has colours: that of languages of which no rule takes long, whatever the text."""

import functools
import itertools
import random
import time

import pytest

from tui.render import code_colours
from tui.render.code_colours import LANGUAGES, LONGEST, is_short, lexer
from tui.render.markdown import typeset

PIECES = [*"aZ_09~`!@#$%^&*()-+=[]{}|\\:;\"'<>,.?/ \t\n", "a ", "a=", "a.", "a:", "::", "a\n"]
PIECES += [
    "/*",
    "*/",
    "//",
    "<!--",
    "{{",
    "${",
    "#{",
    "<a ",
    "</",
    "\\a",
    '\\"',
    "<<a",
    '"""',
    "\n ",
]
PIECES += ["<script>", "<style>", "0x", "1e", "r#", "$(", "((", "- ", "# ", "> ", "def ", "é", "->"]
PIECES += ["<?php "]
HEADS, RUNS = ["", "x", "x = "], ["  \n", "0"]


def colours(text):
    """The styles in a text, beside that of all code."""
    return {span.style for entry in typeset(text) for span in entry.content.spans} - {"$text"}


@functools.cache
def block(head, piece, end):
    """One piece again and again, as often as code with colours may have it; None if never."""
    code = (head + piece * LONGEST)[: LONGEST - 3] + end
    if not is_short(code):  # as long runs of it as may be
        code = ((head + piece * (490 // len(piece)) + "!") * LONGEST)[:LONGEST]
    return code if is_short(code) else None


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_no_rule_takes_long_for_a_block_of_one_piece_again_and_again(language):
    """Computing of a thread: what a rule takes nothing can stop. Later matches are of less text."""
    rules, choice = lexer(language), random.Random(language)
    list(rules.get_tokens("x"))
    several = ["".join(choice.choices(PIECES, k=choice.randint(2, 3))) for _ in range(3)]
    several += choice.sample(PIECES, 3)
    mixed = [(choice.choice(HEADS), piece) for piece in several]
    for head, piece in [*itertools.product(HEADS, RUNS), *mixed]:
        code = block(head, piece, choice.choice(["", "\n!x"]))
        if code is None:
            continue
        since = time.thread_time()
        for _ in itertools.islice(rules.get_tokens(code), 40):
            now = time.thread_time()
            assert now - since < 0.3, piece
            since = now


def test_code_with_a_long_run_of_spaces_or_of_one_character_is_whole_without_colours():
    assert colours("```c\nint main() {\n  return x;\n}\n```")
    for run in ("\n" * 600, " \t\n" * 200, "0" * 600):
        code = f"int main() {{\n  return x{run};\n}}\n"
        assert colours(f"```c\n{code}```") == set()
        assert not is_short(code)


@pytest.mark.parametrize(
    "language", ["janet", "html+ng2", "ini", "nasm", "nolanguage", "python" * 999]
)
def test_code_of_other_languages_has_none(language):
    assert lexer(language) is None
    assert colours(f"~~~{language}\nif x: return 'y'\n~~~\n") == set()


def test_code_inside_of_markdown_has_the_colours_of_markdown_alone():
    assert colours("~~~~markdown\n# Title\n~~~~\n")
    assert colours("~~~~markdown\n~~~janet\n(def x 1)\n~~~\n~~~~\n") <= {"$text-warning"}


@pytest.mark.parametrize("name", ["python", "Python", "py", "c++", "sh", "yml", "JSON", "ts", "md"])
def test_the_usual_names_are_known(name):
    assert lexer(name) is not None


def test_a_longer_block_is_whole_without_colours():
    assert colours("~~~python\nif x: return 'y'\n~~~\n")
    code = "if x: return 'y'\n" * (LONGEST // 16)
    assert colours(f"~~~python\n{code}~~~\n") == set()
    assert len(typeset(f"~~~python\n{code}~~~\n")) == LONGEST // 16 + 1


def test_code_whose_colours_take_too_long_is_whole_without_them(monkeypatch):
    monkeypatch.setattr(code_colours, "_SECONDS", -1.0)
    first, second, _ = typeset("```python\nx = 1\ny = 2\n```")
    assert (first.text, second.text) == ("x = 1", "y = 2")
    assert colours("```python\nx = 1\ny = 2\n```") == set()
