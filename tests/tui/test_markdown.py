"""Markdown as lines: the same in pieces or at once, and nothing lost on any width."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from linkify_it import LinkifyIt
from rich.cells import cell_len
from test_block_splitter import documents, feed_all
from textual.content import Content

from localspec.core.errors import Interrupted
from tui.render.lines import Line, lines_of
from tui.render.markdown import typeset
from tui.render.markdown_parser import code_blocks
from tui.render.text import plain
from tui.terminal.resources import Rests

WIDE = st.text(st.sampled_from("ab漢🙂é \u05d0\u0301\u200d[]*`|-"), max_size=60)


def looks(lines):
    """Everything that is shown of lines."""
    return [
        (type(line), line.text, line.style, [looks_of(row, line) for row in line.rows(40)])
        for line in lines
    ]


def looks_of(row, line):
    return (row.lead.plain, row.text.plain, row.text.spans, line.height(40))


def texts(text, width=60):
    return [(row.lead + row.text).plain for line in typeset(text) for row in line.rows(width)]


@settings(max_examples=150)
@given(documents, st.lists(st.integers(0, 60)))
@example("- a\n- b\n\n1. c\n\n| a | b |\n|---|---|\n| c |\n\nend", [])
@example("> a\n\n[x]: http://y\n\n[x]", [3, 9])
def test_a_text_in_pieces_ends_as_the_lines_of_the_whole(text, cuts):
    history = feed_all(text, [min(cut, len(text)) for cut in cuts])
    pieces, before, links = [], "", {}
    for _, closed, _ in history:
        if closed != before:
            pieces += typeset(closed[len(before) :], links=links)
            before = closed
    pieces += typeset(history[-1][2], links=links)
    assert looks(pieces) == looks(typeset(text))


@settings(max_examples=150)
@given(documents | WIDE, st.integers(8, 90))
@example("| aaaa | b |\n|---|---|\n| a much longer cell | 漢字 |", 12)
@example("> > > > - - - - 1. deep and long enough to be broken somewhere", 9)
def test_no_row_is_wider_than_the_screen_and_heights_are_true(text, width):
    for line in typeset(plain(text)):
        rows = line.rows(width)
        assert len(rows) == line.height(width)
        assert all(cell_len(row.lead.plain) + cell_len(row.text.plain) <= width for row in rows)


@given(
    WIDE | st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])), st.integers(4, 30)
)
def test_a_broken_line_loses_nothing_but_spaces(text, width):
    for fold in (False, True):
        line = Line(Content(text), fold=fold)
        rows = line.rows(width)
        assert "".join(row.text.plain for row in rows).split() == text.split() or not fold
        assert "".join("".join(row.text.plain.split()) for row in rows) == "".join(text.split())
        for row in rows:
            there = line.text[row.start : row.start + len(row.text.plain.rstrip())]
            assert there == row.text.plain.rstrip()


def test_a_line_without_end_is_cut_where_the_row_ends():
    line = Line(Content("word " * 20_000))
    assert line.height(50) == 2000
    assert "".join(row.text.plain for row in line.rows(50)) == line.text


def test_lines_of_a_text_joined_are_the_text():
    assert "\n".join(line.text for line in lines_of(Content("a\n\nb\n"))) == "a\n\nb\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Title\n\ntext", ["Title", "", "text", ""]),
        ("- a\n- b\n  - c", ["• a", "• b", "  ▪ c", ""]),
        ("9. a\n10. b", [" 9. a", "10. b", ""]),
        ("- a\n\n  b", ["• a", "", "  b", ""]),
        ("> a\n>\n> b", ["│ a", "│ ", "│ b", ""]),
        ("```py\nx = 1\n\ny\n```", [" x = 1", " ", " y", ""]),
        ("    indented", [" indented", ""]),
        ("a<b>c</b>  \nd", ["a<b>c</b>", "d", ""]),
        ("![alt](x)", ["🖼  alt", ""]),
        ("***", ["─" * 60, ""]),
        (
            "| a | b |\n|--:|:-:|\n| ccc | ddd |\n| e |",
            ["  a │  b ", "────┼────", "ccc │ ddd", "  e │    ", ""],
        ),
        ("", []),
    ],
)
def test_blocks_are_set(text, shown):
    assert [line.rstrip() for line in texts(text)] == [line.rstrip() for line in shown]


def test_a_poem_keeps_its_lines():
    text = "Roses are red,\nViolets are *blue,\nsugar* is sweet.\n"
    lines = [entry.text for entry in typeset(text)]
    assert lines == ["Roses are red,", "Violets are blue,", "sugar is sweet.", ""]
    assert [entry.text for entry in typeset("Two\nlines\n===\n")] == ["Two", "lines", ""]


def test_items_of_a_task_list_have_boxes():
    entries = typeset("- [ ] to *do*\n- [x] done\n- [link](x)\n")
    rows = [row for entry in entries for row in entry.rows(40)]
    assert [row.lead.plain + row.text.plain for row in rows] == [
        "☐ to do",
        "☑ done",
        "• link",
        "",
    ]


def test_prose_is_no_wider_than_can_be_read_and_code_as_wide_as_there_is_room():
    prose, _ = typeset("word " * 80)
    assert all(row.text.cell_length <= 100 for row in prose.rows(190))
    assert prose.height(190) == len(prose.rows(190)) > 3
    code, _ = typeset("```\n" + "x" * 150 + "\n```\n")
    assert code.height(190) == 1


def test_a_table_that_does_not_fit_is_broken_in_its_columns():
    text = "| name | what it is |\n|---|---|\n| fox | a small animal of the forest |"
    assert [line.rstrip() for line in texts(text, 20)] == [
        "name │ what it is",
        "─────┼──────────────",
        "fox  │ a small",
        "     │ animal of the",
        "     │ forest",
        "",
    ]
    columns = "| a " * 30 + "|\n" + "|---" * 30 + "|\n" + "| b " * 30 + "|"
    assert "".join(texts(columns, 20)).count("b") == 30


def test_links_can_be_clicked_and_only_say_so_in_their_style():
    [line, _] = typeset("see [here](https://example.org/a'b)")
    look, *targets = line.content.spans
    assert look.style == "underline"
    assert {line.text[span.start : span.end] for span in targets} == {"here"}
    [click] = [span.style.meta for span in targets if span.style.meta]
    assert click == {"@click": 'link("https://example.org/a\'b")'}
    [address] = [span.style.link for span in targets if span.style.link]
    assert address == "https://example.org/a'b"  # for terminals that open links (OSC 8)


@pytest.mark.parametrize("text", ["*" * 10_000 + "a" + "*" * 10_000, "![" * 4_000 + "](b)" * 4_000])
def test_emphasis_and_links_are_nested_as_deep_as_the_text_says(text):
    [line, _] = typeset(text)
    assert len(line.content.spans) < 100


def test_emphasis_in_emphasis_of_another_kind_has_both_styles():
    [line, _] = typeset("*a **b *c* ~~d~~** e*")
    spans = {(line.text[span.start : span.end], span.style) for span in line.content.spans}
    assert spans == {("a b c d e", "italic"), ("b c d", "bold"), ("d", "strike")}


def test_typesetting_stops_where_nobody_waits_for_it():
    with pytest.raises(Interrupted):
        typeset("```python\nx = 1\n```", rest=Rests(lambda: True))


def test_addresses_in_a_long_line_are_text_and_others_links():
    """To find them takes quadratic time; a line is as long as a paragraph that a model writes."""
    short, far = "see https://example.org/a now", "https://example.org/" + "x" * 2000

    def linked(text):
        meta = [s.style for e in typeset(text) for s in e.content.spans if s.style != "underline"]
        return [style.link for style in meta if style.link]

    assert linked(short) == ["https://example.org/a"]
    assert linked(f"{short}\n{far}\n\n{short}") == ["https://example.org/a"]
    assert linked(f"[it]({far})") == [far]


def test_a_line_of_beginnings_of_addresses_is_searched_for_none(monkeypatch):
    monkeypatch.setattr(LinkifyIt, "match_at_start", lambda *_: pytest.fail("searched"))
    assert len(typeset("a://" * 4000)) == 2
    assert code_blocks("a://\n\n```\nx\n```\n") == ["x\n"]


def test_code_blocks_are_found_inside_of_lists():
    assert code_blocks("- a\n\n  ```\n  x\n  ```\n") == ["x\n"]
