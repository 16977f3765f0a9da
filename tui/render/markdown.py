"""Markdown typeset as lines. Nothing here touches a widget, so that a thread may call it."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from textual.content import Content, Span
from textual.highlight import HighlightTheme
from textual.style import Style

from localspec.core.safe_text import is_safe
from tui.render.code_colours import Theme, coloured
from tui.render.lines import BLANK, CODE, EMPTY, CodeBlock, Entry, Line
from tui.render.markdown_parser import parser
from tui.render.table import Rule, table

_BULLETS = ("• ", "▪ ", "‣ ", "◦ ")
_HEADINGS = ("bold underline $primary", "bold $primary", "bold", "bold", "bold $quiet", "$quiet")
_INLINE = {"em": "italic", "strong": "bold", "s": "strike"}
_INLINE_CODE = "$text-warning on $surface"
_BOX = re.compile(r"\[([ xX])\][ \t]+(?=\S)")
"""The start of an item of a task list."""
_BOXES = {" ": "☐ ", "x": "☑ ", "X": "☑ "}


def typeset(
    text: str,
    theme: Theme = HighlightTheme,
    links: MutableMapping[str, Any] | None = None,
    rest: Callable[[], None] = lambda: None,
) -> list[Entry]:
    """The lines of whole top-level blocks, each block with a blank line after it.

    ``links`` remembers link definitions from one part of a text to the next. ``rest`` is called
    now and then, so that a thread can give way.
    """
    root = _tree(parser().parse(text, links if links is not None else {}))
    setter = _Setter(theme, rest)
    lines: list[Entry] = []
    for node in root.children:
        rest()
        lines += setter.block(node)
        lines.append(BLANK)
    return lines


def _tree(tokens: list[Token]) -> SyntaxTreeNode:
    """The blocks, which the parser nests to a depth of 20; `_words` has the inside of a paragraph:
    its emphasis is nested as deep as the text says, and a tree calls itself for each level.
    """
    for token in tokens:
        if token.children is not None:
            token.meta[_WORDS], token.children = token.children, None
    return SyntaxTreeNode(tokens)


_WORDS = "words"


def _words(node: SyntaxTreeNode) -> list[Token]:
    words: list[Token] = node.meta.get(_WORDS, [])
    return words


class _Setter:
    """Typesets the nodes of a syntax tree."""

    def __init__(self, theme: Theme, rest: Callable[[], None]) -> None:
        self._theme, self._rest = theme, rest
        self._depth = 0  # depth of bullet lists
        self._kinds: dict[str, Callable[[SyntaxTreeNode], list[Entry]]] = {
            "heading": self._heading,
            "paragraph": self._text,
            "blockquote": self._quote,
            "bullet_list": self._bullets,
            "ordered_list": self._numbers,
            "fence": self._code,
            "code_block": self._code,
            "hr": lambda _: [Rule()],
            "table": self._table,
        }

    def block(self, node: SyntaxTreeNode) -> list[Entry]:
        """The lines of one block."""
        return self._kinds.get(node.type, self._unknown)(node)

    def _unknown(self, node: SyntaxTreeNode) -> list[Entry]:
        return [Line(Content(line)) for line in node.content.splitlines()]

    def _text(self, node: SyntaxTreeNode) -> list[Entry]:
        return [Line(line) for child in node.children for line in inline(child).split()]

    def _heading(self, node: SyntaxTreeNode) -> list[Entry]:
        style = _HEADINGS[int(node.tag[1]) - 1]
        texts = [line for child in node.children for line in inline(child).split()]
        return [Line(text.stylize_before(style)) for text in texts]

    def _quote(self, node: SyntaxTreeNode) -> list[Entry]:
        bar = Content.styled("│ ", "$border")
        lines: list[Entry] = []
        for child in node.children:
            lines += [BLANK] * bool(lines) + self.block(child)
        return [line.led_by(bar, bar) for line in lines or [BLANK]]

    def _bullets(self, node: SyntaxTreeNode) -> list[Entry]:
        bullet = _BULLETS[self._depth % len(_BULLETS)]
        self._depth += 1
        lines = [line for item in node.children for line in self._item(item, bullet)]
        self._depth -= 1
        return lines

    def _numbers(self, node: SyntaxTreeNode) -> list[Entry]:
        start = int(node.attrs.get("start", 1))
        width = len(str(start + len(node.children) - 1))
        return [
            line
            for number, item in enumerate(node.children, start)
            for line in self._item(item, f"{number:>{width}}. ")
        ]

    def _item(self, node: SyntaxTreeNode, mark: str) -> list[Entry]:
        lines: list[Entry] = []
        before = ""
        box = _box(node)
        if box is not None:
            mark = mark[:-2] + _BOXES[box[1]]
        for child in node.children:
            if before in ("paragraph", "table") and child.type in ("paragraph", "table"):
                lines.append(BLANK)
            before = child.type
            lines += self.block(child)
        indent, first = Content(" " * len(mark)), Content.styled(mark, "$primary")
        head, *others = lines or [BLANK]
        if box is not None and isinstance(head, Line):
            head = dataclasses.replace(head, content=head.content[len(box[0]) :])
        return [head.led_by(first, indent), *(line.led_by(indent, indent) for line in others)]

    def _code(self, node: SyntaxTreeNode) -> list[Entry]:
        code = node.content.rstrip()
        language = node.info.split(maxsplit=1)[0] if node.info.strip() else ""
        content = coloured(code, language, self._theme, self._rest)
        space, block = Content(" "), CodeBlock()
        return [
            Line(line, space, space, style=CODE, fold=True, block=block)
            for line in content.split(allow_blank=True)
        ]

    def _table(self, node: SyntaxTreeNode) -> list[Entry]:
        rows = [row for part in node.children for row in part.children]
        texts = [[_cell(cell) for cell in row.children] for row in rows]
        aligned = [str(cell.attrs.get("style", "")).partition(":")[2] for cell in rows[0].children]
        return table(texts[0], texts[1:], aligned)


def _box(item: SyntaxTreeNode) -> re.Match[str] | None:
    """The box that an item of a task list begins with, its ``[ ]`` or ``[x]`` in group 1."""
    first = item.children[0] if item.children else None
    if first is None or first.type != "paragraph":
        return None
    return _BOX.match(first.children[0].content)


def _cell(node: SyntaxTreeNode) -> Content:
    return Content(" ").join([inline(child) for child in node.children])


def inline(node: SyntaxTreeNode) -> Content:
    """The text of a paragraph, with its emphasis, code and links."""
    gathered = _Inline()
    gathered.take(_words(node))
    return Content("".join(gathered.text), gathered.spans) if gathered.text else EMPTY


class _Inline:
    """Text and styles of inline tokens."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.spans: list[Span] = []
        self._size = 0

    def take(self, tokens: Iterable[Token]) -> None:
        """Append tokens."""
        opened: list[tuple[Token, int]] = []
        depths: Counter[str] = Counter()
        for token in tokens:
            start = self._size
            if token.nesting > 0:
                opened.append((token, start))
                depths[token.tag] += 1
                continue
            if token.nesting < 0:
                token, start = opened.pop()  # noqa: PLW2901 - the one that it ends
                depths[token.tag] -= 1
                if depths[token.tag]:  # emphasis in emphasis looks the same
                    continue
            elif token.type == "image":
                self._add("🖼  ")
                self.take(token.children or ())  # the parser nests these to a depth of 20
            else:
                self._add(_BREAKS.get(token.type, token.content))
            if self._size > start:
                self.spans += [Span(start, self._size, style) for style in _styles(token)]

    def _add(self, text: str) -> None:
        self.text.append(text)
        self._size += len(text)


_BREAKS = {"softbreak": "\n", "hardbreak": "\n"}
"""Models write poems and addresses without Markdown's two spaces, so each line end counts."""


def _styles(token: Token) -> list[str | Style]:
    """The styles of a token, or of what it opens."""
    match token.type.removesuffix("_open"):
        case "code_inline":
            return [_INLINE_CODE]
        case "link" | "image":
            target = str(token.attrs.get("href") or token.attrs.get("src") or "")
            address = target if is_safe(target) and " " not in target else None
            click = Style.from_meta({"@click": f"link({target!r})"})
            return ["underline", click, *([Style(link=address)] if address else [])]
        case kind:
            return [_INLINE[kind]] if kind in _INLINE else []
