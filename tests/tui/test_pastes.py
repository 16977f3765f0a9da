"""What is pasted is text, whatever escapes it has and wherever a read cuts it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser
from textual.events import Paste

from tui.terminal.pastes import PasteFilter

BEGIN, END = "\x1b[200~", "\x1b[201~"
PIECES = ["\x1b", "[", "2", "0", "1", "~", "m", "(", "B", "\r", "a", ";", " ", "1" * 33, BEGIN]
PIECES += ["\x1b[0m", "\x1b[20", "\x1b[1;31", "/new\r"]


def parsed(chunks):
    """What the parser makes of chunks, as keys and pasted texts."""
    pastes, parser, found = PasteFilter(), XTermParser(), []
    for chunk in chunks:
        if clean := pastes.clean(chunk):
            found += parser.feed(clean)
    return [one.text if isinstance(one, Paste) else one.key for one in found]


def cut(text, places):
    at = sorted({min(place, len(text)) for place in places})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.lists(st.integers(0, 99)))
@example("log:\r\x1b[0m\r/folder /etc\rend of it, longer than the 32 characters of a sequence", [])
@example("\x1b[20" + "\x1b", [6, 11, 12])
def test_a_paste_is_one_text_without_escapes_wherever_it_is_cut(text, places):
    whole = "x" + BEGIN + text + END + "y"
    before, pasted, after = parsed([whole])
    assert (before, after) == ("x", "y")
    assert "\x1b" not in pasted
    assert parsed(cut(whole, places)) == parsed(whole) == [before, pasted, after]
    assert parsed(cut(whole[: -1 - len(END)], places)) == ["x"]  # its end has not come yet


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31merror\x1b[0m: none\r/new\r", "error: none\r/new\r"),
        ("\x1b(B\x1b[mplain", "plain"),
        ("\x1b[" + "1" * 40 + "m \x1b]0;x\x07 \x1bOA", "[" + "1" * 40 + "m ]0;x\x07 OA"),
        (f"a{BEGIN}b", "ab"),
    ],
)
def test_colours_of_a_pasted_log_are_left_out(text, shown):
    assert parsed([BEGIN + text + END]) == [shown]


@given(st.lists(st.sampled_from([*PIECES[:-4], "\x1b[A", "\x1b[<0;1;1M"])).map("".join))
def test_keys_are_passed_on_as_they_come(text):
    """A key that waited for the next one would be late."""
    text = text.replace(BEGIN, "")
    pastes = PasteFilter()
    assert [pastes.clean(one) for one in text] == list(text)


def test_keys_after_a_paste_are_keys():
    chunks = [BEGIN, "a", END + "\x1b[A", "\x1b[2", "00~b\x1b", "[201", "~\r"]
    assert parsed(chunks) == ["a", "up", "b", "enter"]
