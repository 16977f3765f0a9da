"""The block splitter against a whole Markdown parser."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tui.render.block_splitter import BlockSplitter
from tui.render.text import plain

LINES = [
    "",
    "",
    "",
    "word",
    "two words",
    "# heading",
    "#tag",
    "- item",
    "* item",
    "  - inner",
    "    deep",
    "  more",
    "   three",
    "1. one",
    "2. two",
    "10) ten",
    "-",
    "1.",
    "- - x",
    "```",
    "```python",
    "  ```",
    "    ```",
    "````",
    "~~~",
    "- ```",
    "``` not ` a fence",
    "> quote",
    "> - item",
    "> ```",
    "| a | b |",
    "|---|---|",
    "---",
    "***",
    "- - -",
    "===",
    "--",
    "\ttab",
    "-\ttab item",
    "**bold** `code` [link](x)",
    "<div>",
    "é 漢字 🙂",
]
documents = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


def parser():
    return MarkdownIt("gfm-like", {"html": False})


def outline(text):
    """The top-level blocks: their types and their source lines."""
    return [
        (token.type, token.map, token.content)
        for token in parser().parse(text)
        if token.level == 0 and token.nesting >= 0
    ]


def feed_all(text, cuts):
    splitter, closed, history = BlockSplitter(), "", []
    start = 0
    for cut in [*sorted(cuts), len(text)]:
        closed += splitter.feed(text[start:cut])
        start = cut
        history.append((cut, closed, splitter.rest))
    return history


@given(st.text() | documents, st.lists(st.integers(0, 60)))
def test_closed_and_rest_joined_are_what_was_fed(text, cuts):
    cuts = [min(cut, len(text)) for cut in cuts]
    closed_before = ""
    for cut, closed, rest in feed_all(text, cuts):
        assert closed + rest == text[:cut]
        assert closed.startswith(closed_before)
        closed_before = closed


@settings(max_examples=200)
@given(documents)
@example("***\n2. b\n   ```\n\ntext")
@example("para\n2. b\n   ```\n\ntext\n```\n")
@example("> a\n    code\n\n    more\n\nx")
@example("- a\n\n  ```\n  b\n\n  c\n  ```\nnext")
@example("|---|---|\n# heading\n* item\n  ```\ntwo words\n  ```\n***\n* item\n1.")
@example("``` not ` a fence\n--\n-\n-\ttab item\n* item\n# heading\n-")
@example("<div>\n> - item\n    deep\n> quote\n```")
def test_closed_blocks_are_blocks_of_the_whole_text_whatever_follows(text):
    whole, splitter, closed = outline(text), BlockSplitter(), ""
    for letter in text:
        if newly := splitter.feed(letter):
            closed += newly
            blocks = outline(closed)
            assert blocks == whole[: len(blocks)], (closed, text)


@given(documents)
def test_it_does_not_matter_how_the_text_was_cut(text):
    whole = feed_all(text, [])[-1]
    assert feed_all(text, range(len(text)))[-1] == whole


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("One paragraph.", ""),
        ("One paragraph.\n", ""),
        ("One paragraph.\n\n", "One paragraph.\n\n"),
        ("# Title\n", "# Title\n"),
        ("Look:\n```py\nx\n\ny\n", "Look:\n"),
        ("```py\nx\n\ny\n```\n", "```py\nx\n\ny\n```\n"),
        ("- a\n- b\n\n", ""),
        ("- a\n- b\n\nN", "- a\n- b\n\n"),
        ("- a\n\n- b\n\n  more\n\nN", "- a\n\n- b\n\n  more\n\n"),
        ("Intro:\n1. a\n2. b\n", "Intro:\n"),
        ("| a |\n|---|\n| b |\n\n", "| a |\n|---|\n| b |\n\n"),
        ("> quote\n\n", "> quote\n\n"),
    ],
)
def test_usual_blocks_close_as_early_as_they_can(text, closed):
    assert feed_all(text, [])[-1][1] == closed


@given(st.text(st.characters(exclude_categories=())))
def test_plain_text_cannot_move_the_cursor_or_break_lines_in_secret(text):
    shown = plain(text)
    assert "\x1b" not in shown
    assert shown.splitlines() == shown.removesuffix("\n").split("\n") or not shown
    shown.encode()
    assert plain(shown) == shown


def test_plain_keeps_ordinary_text():
    text = "Grüße,\n\tint x[2]; // 漢字 🙂 [red]x[/]\r\n"
    assert plain("a\u202eb\u2066c") == "a\ufffdb\ufffdc"  # would turn round what follows
    assert plain(text) == "Grüße,\n    int x[2]; // 漢字 🙂 [red]x[/]\n"
