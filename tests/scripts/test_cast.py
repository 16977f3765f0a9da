"""Recordings show what the program wrote, however its output was cut into pieces."""

from __future__ import annotations

import re
from pathlib import Path

import cast

DOCS = Path(__file__).resolve().parents[2] / "docs"
WRITTEN = (
    "\x1b[>1u\x1b[?1049h\x1b[1;38;2;139;148;158;48;2;20;23;27mEnter\x1b[0m. \x1b[=5;1u\x1b[<u/help"
)


def test_a_sequence_may_be_cut_in_two() -> None:
    for at in range(1, len(WRITTEN)):
        outputs = [cast.Output(0, WRITTEN[:at]), cast.Output(1, WRITTEN[at:])]
        *_, last = cast.frames(outputs, 20, 1)
        assert "".join(run[0] for run in last.rows[0]).strip() == "Enter. /help", at


def test_pictures_show_no_escape_sequences() -> None:
    for picture in DOCS.rglob("*.svg"):
        texts = re.findall(r"<text[^>]*>([^<]*)", picture.read_text(encoding="utf-8"))
        assert texts, picture
        assert [text for text in texts if re.search(r"\d+;\d+;\d+|\x1b", text)] == [], picture
