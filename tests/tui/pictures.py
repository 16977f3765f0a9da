"""A screen as text that can be read and compared: its characters and their styles."""

from __future__ import annotations

import collections
import difflib
import itertools
import os
from pathlib import Path

from textual._context import visible_screen_stack

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = "UPDATE_SNAPSHOTS"
"""Set in the environment, the pictures that are kept are made anew."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_WORDS = ("bold", "dim", "italic", "underline", "strike", "reverse")


def strips(app):
    """The rows of the screen, and of what is seen of the screens below it.

    Textual sets the variable where it draws. Without it, what stands below a transparent screen is
    left out, and stays so until that screen changes, since the rows are kept.
    """
    mark = visible_screen_stack.set(app._background_screens)
    try:
        return app.screen._compositor.render_strips()
    finally:
        visible_screen_stack.reset(mark)


def picture(app) -> str:
    """The screen of an app: its rows, the letter of each character's style, and what these mean.

    The style that most of the screen has is a dot, and left out at the end of a row.
    """
    rows = [list(_cells(strip)) for strip in strips(app)]
    common = collections.Counter()
    for text, style in itertools.chain(*rows):
        common[style] += len(text)
    names = {common.most_common(1)[0][0]: "."}
    letters = iter(_LETTERS)
    shown, looks = [], []
    for number, row in enumerate(rows, 1):
        for _, style in row:
            if style not in names:
                names[style] = next(letters)
        shown.append(f"{number:>3}|" + "".join(text for text, _ in row).rstrip())
        marks = "".join(names[style] * len(text) for text, style in row).rstrip(".")
        looks += [f"{number:>3} {marks}"] if marks else []
    legend = [f"{name} {style}" for style, name in names.items()]
    return "\n".join([*shown, "", *looks, "", *legend]) + "\n"


def _cells(strip):
    described = [(segment.text, _described(segment)) for segment in strip if segment.text]
    for style, parts in itertools.groupby(described, key=lambda part: part[1]):
        yield "".join(text for text, _ in parts), style


def _described(segment) -> str:
    style = segment.style
    if style is None:
        return "default"
    words = [word for word in _WORDS if getattr(style, word)]
    ground = f"on {_colour(style.bgcolor)}"
    if not segment.text.strip() and not {"underline", "strike", "reverse"} & set(words):
        return ground  # nothing else is seen of spaces
    return " ".join([*words, _colour(style.color), ground])


def _colour(colour) -> str:
    if colour is None or colour.is_default:
        return "default"
    return colour.triplet.hex if colour.triplet is not None else colour.name


def compare(app, name: str) -> str | None:
    """The differences from the picture that is kept; None where there are none."""
    path, now = FOLDER / f"{name}.txt", picture(app)
    if os.environ.get(UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
        return None
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept == now:
        return None
    lines = difflib.unified_diff(kept.splitlines(), now.splitlines(), path.name, "now", n=0)
    return "\n".join(lines)
