"""The two themes of localspec, with the colours of the token origins; names of all themes."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from textual.theme import BUILTIN_THEMES, Theme

from localspec.core.errors import UsageError


def _scrollbar(bar: str, active: str, behind: str, hover: str | None = None) -> dict[str, str]:
    """The colours of a scrollbar; Textual's own are the brightest thing on the screen."""
    colours = {"scrollbar": bar, "scrollbar-hover": hover or bar, "scrollbar-active": active}
    names = ("background", "background-hover", "background-active", "corner-color")
    return colours | {f"scrollbar-{name}": behind for name in names}


def _own(name: str, *, dark: bool, variables: dict[str, str], **colours: Any) -> Theme:
    """A theme of localspec; footer and scrollbars have colours that it has for something else."""
    behind, border, blurred = (
        colours["background"],
        variables["border"],
        variables["border-blurred"],
    )
    derived = {"footer-background": behind, "footer-key-foreground": colours["primary"]}
    derived |= _scrollbar(blurred, border, behind, variables.pop("scrollbar-hover"))
    return Theme(name=name, dark=dark, variables=variables | derived, **colours)


DARK = _own(
    "localspec-dark",
    dark=True,
    primary="#8ab4d8",
    secondary="#8f9fb3",
    accent="#e0b872",
    success="#93c48b",
    warning="#e0b872",
    error="#e58a7b",
    foreground="#d5d9df",
    background="#14171b",
    surface="#191d22",
    panel="#20252b",
    variables={
        "quiet": "#8b949e",
        "origin-model": "#93c48b",
        "origin-ngram": "#7cc0d8",
        "origin-corrected": "#eb9a7e",
        "origin-bonus": "#d9c27e",
        "origin-plain": "#c3c9d1",
        "footer-description-foreground": "#7d8692",
        "border": "#4d6a86",
        "border-blurred": "#2c333b",
        "scrollbar-hover": "#3b444e",
        "input-selection-background": "#34506b",
        "input-selection-foreground": "#f0f3f6",
    },
)
LIGHT = _own(
    "localspec-light",
    dark=False,
    primary="#2f6690",
    secondary="#5b6b7c",
    accent="#92600a",
    success="#33691e",
    warning="#92600a",
    error="#b3261e",
    foreground="#23282e",
    background="#fbfbf9",
    surface="#f3f3ef",
    panel="#e9e9e4",
    variables={
        "quiet": "#5f6973",
        "origin-model": "#2e6b1f",
        "origin-ngram": "#0b6480",
        "origin-corrected": "#b23c17",
        "origin-bonus": "#7a5b00",
        "origin-plain": "#23282e",
        "footer-description-foreground": "#66707b",
        "border": "#7fa2bd",
        "border-blurred": "#d3d3cc",
        "scrollbar-hover": "#bdbdb5",
        "input-selection-background": "#c3d9ea",
        "input-selection-foreground": "#14171b",
    },
)
ANSI_DARK = dataclasses.replace(
    BUILTIN_THEMES["ansi-dark"],
    primary="ansi_cyan",
    variables=BUILTIN_THEMES["ansi-dark"].variables
    | {"border-blurred": "ansi_bright_black"}
    | _scrollbar("ansi_bright_black", "ansi_cyan", "ansi_default"),
)
"""Textual's own, without blue text, which many terminals show too dark to be read on black."""
_PAPER, _INK = "ansi_bright_white", "ansi_black"
ANSI_LIGHT = dataclasses.replace(
    BUILTIN_THEMES["ansi-light"],
    foreground=_INK,
    background=_PAPER,
    surface=_PAPER,
    panel="ansi_white",
    boost=_PAPER,
    variables=BUILTIN_THEMES["ansi-light"].variables
    | {"footer-background": _PAPER}
    | _scrollbar("ansi_white", "ansi_blue", _PAPER),
)
"""Textual's own, light on a dark terminal too: its text was dark on whatever is behind it."""

OWN_VARIABLES = ("quiet", *(name for name in DARK.variables if name.startswith("origin-")))
"""Variables that only the themes of localspec define; other themes borrow them."""
_LIGHT_BACKGROUNDS = ("7", "15")
_OF_THE_TERMINAL = {
    True: {
        "quiet": "ansi_white",
        "origin-model": "ansi_green",
        "origin-ngram": "ansi_cyan",
        "origin-corrected": "ansi_bright_red",
        "origin-bonus": "ansi_yellow",
        "origin-plain": "ansi_default",
    },
    False: {
        "quiet": "ansi_bright_black",
        "origin-model": "ansi_green",
        "origin-ngram": "ansi_blue",
        "origin-corrected": "ansi_red",
        "origin-bonus": "ansi_magenta",
        "origin-plain": "ansi_black",
    },
}
"""These variables in terminal colours, for dark and light terminals."""
NAMES = (DARK.name, LIGHT.name, *BUILTIN_THEMES)


def borrowed(theme: Theme) -> dict[str, str]:
    """Values of these variables for a theme that does not define them."""
    if theme.ansi:
        return _OF_THE_TERMINAL[theme.dark]
    ours = DARK if theme.dark else LIGHT
    return {name: ours.variables[name] for name in OWN_VARIABLES}


def default() -> str:
    """The default theme.

    Where there are 16 colours or fewer, or none by `NO_COLOR`, ours would all be shades of grey.
    """
    if not os.environ.get("NO_COLOR") and Console(force_terminal=True).color_system in (
        "truecolor",
        "256",
    ):
        return DARK.name
    behind = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi-light" if behind in _LIGHT_BACKGROUNDS else "ansi-dark"


def wanted(settings: Mapping[str, object]) -> str:
    """The theme that config.toml names, or the default.

    Raises:
        UsageError: there is none of that name.
    """
    name = settings.get("theme", "")
    if name == "":
        return default()
    if not isinstance(name, str) or name not in NAMES:
        raise UsageError(f"config.toml: there is no theme {name!r}; {there_is(str(name))}")
    return name


def there_is(name: str) -> str:
    """A hint for an unknown theme name."""
    close = difflib.get_close_matches(name, NAMES, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
