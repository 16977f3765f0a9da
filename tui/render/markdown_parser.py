"""GitHub's Markdown as tokens, in a time that grows with the length of the text."""

from __future__ import annotations

import functools

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore, linkify
from markdown_it.token import Token

_LONGEST_LINKED = 2_000
"""Characters of a line in which addresses become links: to find them takes quadratic time."""


@functools.cache
def parser() -> MarkdownIt:
    """GitHub's Markdown, but HTML tags are text: a model that writes <b> means to show it."""
    found = MarkdownIt("gfm-like", {"html": False})
    found.core.ruler.at("inline", _inline)
    found.core.ruler.at("linkify", _linkify)
    return found


@functools.cache
def _unlinked() -> MarkdownIt:
    """The same without links where none is marked."""
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


@functools.cache
def _blocks() -> MarkdownIt:
    """Blocks alone, without what is inside of a paragraph."""
    return MarkdownIt("gfm-like", {"html": False}).disable(["inline", "linkify", "text_join"])


def code_blocks(text: str) -> list[str]:
    """The contents of the code blocks in Markdown."""
    tokens = _blocks().parse(text)
    return [token.content for token in tokens if token.type in ("fence", "code_block")]


def _inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline":
            token.children = []
            by = state.md if _may_link(token) else _unlinked()
            by.inline.parse(token.content, by, state.env, token.children)


def _linkify(state: StateCore) -> None:
    tokens = [token for token in state.tokens if token.type == "inline" and _may_link(token)]
    linkify(StateCore(state.src, state.md, state.env, tokens))


def _may_link(token: Token) -> bool:
    return max(map(len, token.content.split("\n"))) <= _LONGEST_LINKED
