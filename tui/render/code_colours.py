"""Code in the colours of its language, for languages whose rules take a time that is known.

A rule of Pygments is a regular expression, and Python looks at nothing else while one is matched.
The rules of some languages take quadratic or cubic time for some texts: a dozen kilobytes that a
model wrote would stop the interface, and signals would not end it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_all_lexers, get_lexer_by_name  # type: ignore[import-untyped]
from textual.content import Content, Span
from textual.highlight import (
    ANSIDarkHighlightTheme,
    ANSILightHighlightTheme,
    HighlightTheme,
)

_LANGUAGES = """
bash batch c clojure cmake cpp csharp css dart diff docker elixir erlang fortran go graphql groovy
haskell html java javascript json jsx julia kotlin latex lua make markdown nginx nix
objective-c perl php powershell protobuf pycon python r ruby rust scala scss sql swift
toml tsx typescript vim xml yaml zig
"""
LANGUAGES = frozenset(_LANGUAGES.split())
"""The languages that get colours, each by a name that Pygments knows. `test_code_colours.py` tries
them: INI files, consoles, Matlab, NASM, OCaml and Terraform are no further ones, since one of their
rules takes seconds for a block of `LONGEST`.
"""
LONGEST = 20_000
"""Characters of a block that gets colours."""
_LONG_RUN = re.compile(r"\s{500}|(.)\1{499}")
"""What code with colours does not have: time of some rules (C's for a word that may begin a
function) is quadratic in the length of one run of spaces or of one character.
"""
_SECONDS = 2.0
"""Computing that a block of code gets, in seconds."""
_LANGUAGE = re.compile(
    r"^[ >]*(?:[-+*]|\d{1,9}[.)])?[ ]*(?:`{3,}|~{3,})[ \t]*([^\s`]+)", re.MULTILINE
)

Theme = type[HighlightTheme]

_known: set[str] = set()
"""Languages that were used before; the first use takes as long as thousands of lines."""

_learning = threading.Lock()
"""Held while a language is loaded, so that other threads do not load it too."""


@functools.cache
def _names() -> frozenset[str]:
    """All names of the languages that get colours."""
    every = (names for _, names, *_ in get_all_lexers(plugins=False))
    return frozenset(one for names in every if LANGUAGES.intersection(names) for one in names)


def has_new_language(text: str) -> bool:
    """Whether Markdown has code in a language whose rules are not loaded yet."""
    return bool(set(map(str.lower, _LANGUAGE.findall(text))) & _names() - _known)


def lexer(language: str) -> Lexer | None:
    """The rules of a language, by any of its names; None where it gets no colours."""
    name = language.lower()
    if name not in _names():
        return None
    with contextlib.nullcontext() if name in _known else _learning:
        # Code in the Markdown of a block would be of any language.
        found = get_lexer_by_name(name, stripnl=False, handlecodeblocks=False)
        _known.add(name)
        return found


def is_short(code: str) -> bool:
    """Whether no rule takes long for it."""
    return len(code) <= LONGEST and _LONG_RUN.search(code) is None


def code_theme(*, ansi: bool, dark: bool) -> Theme:
    """The colours of code; terminal colours where the theme uses these."""
    if not ansi:
        return HighlightTheme
    return ANSIDarkHighlightTheme if dark else ANSILightHighlightTheme


def coloured(code: str, language: str, theme: Theme, rest: Callable[[], None]) -> Content:
    """Code in its colours, as far as they can be found in time; ``rest`` is called now and then."""
    rules = lexer(language)
    if rules is None or not is_short(code):
        return Content(code)
    spans: list[Span] = []
    start = 0
    until = time.thread_time() + _SECONDS
    for kind, text in rules.get_tokens(code):
        rest()
        if time.thread_time() > until:
            break  # what comes later is shown without colours
        end = min(start + len(text), len(code))
        if style := _style(theme, kind):
            spans.append(Span(start, end, style))
        start = end
    return Content(code, spans).stylize_before("$text")


def _style(theme: Theme, kind: Any) -> str | None:
    """The style of a kind of token, or of its nearest parent that has one."""
    while kind is not None:
        if (style := theme.STYLES.get(kind)) is not None:
            return style
        kind = kind.parent
    return None
