"""Prompts with known replies: edits of code, quotations, rewriting, JSON.

They are made from the docstrings and functions of Python's standard library, with fixed seeds. So
drafters can be measured on work that a small model cannot do.
"""

from __future__ import annotations

import ast
import calendar
import collections
import configparser
import csv
import difflib
import heapq
import inspect
import json
import random
import re
import shlex
import statistics
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

_MODULES = (
    calendar, configparser, csv, difflib, heapq, shlex, statistics, tempfile, textwrap, zipfile
)  # fmt: skip
_SHORT, _LONG = 400, 1500
"""Characters of the texts that are taken."""
_NOT_NAMES = frozenset({"self", "return", "def", "for", "not", "None", "raise", "import"})


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and the reply to it."""

    prompt: str
    reply: str


def texts(each: int) -> dict[str, list[Text]]:
    """At most ``each`` of every kind of work."""
    rng = random.Random(1)
    sources = [inspect.getsource(module) for module in _MODULES]
    functions = [f for source in sources for f in _functions(source)]
    paragraphs = [p for source in sources for p in _paragraphs(source)]
    rng.shuffle(functions)
    rng.shuffle(paragraphs)
    functions, paragraphs = functions[:each], paragraphs[:each]
    return {
        "code, a name changed": [_renamed(f) for f in functions],
        "code, lines changed": [_patched(f, rng) for f in functions],
        "quoting": [_quoted(p, rng) for p in paragraphs],
        "rewriting": [_rewritten(p, rng) for p in paragraphs],
        "json": [_listed(p, rng) for p in paragraphs],
        "new text": [Text("Tell me more.", p) for p in paragraphs],
    }


def _functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            text = ast.get_source_segment(source, node) or ""
            if _SHORT < len(text) < _LONG:
                yield text


def _paragraphs(source: str) -> Iterator[str]:
    for found in re.findall(r'"""(.*?)"""', source, re.DOTALL):
        text = " ".join(found.split())
        if _SHORT < len(text) < _LONG:
            yield text


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def _renamed(code: str) -> Text:
    names = [n for n in re.findall(r"[A-Za-z_]{3,}", code) if n not in _NOT_NAMES]
    name, _ = collections.Counter(names).most_common(1)[0]
    new = re.sub(rf"\b{name}\b", f"{name}_value", code)
    return Text(f"Rename {name} to {name}_value:\n\n{_block(code)}", _block(new))


def _patched(code: str, rng: random.Random) -> Text:
    lines = code.split("\n")
    lines.insert(rng.randrange(1, len(lines)), "        check(self)")
    lines.pop(rng.randrange(1, len(lines)))
    return Text(f"Call check and simplify:\n\n{_block(code)}", _block("\n".join(lines)))


def _quoted(text: str, rng: random.Random) -> Text:
    sentences = re.split(r"(?<=\.) ", text)
    some = rng.sample(sentences, min(4, len(sentences)))
    reply = " ".join(f'It says: "{sentence}"' for sentence in some)
    return Text(f"Quote what matters from this text: {text}", reply)


def _rewritten(text: str, rng: random.Random) -> Text:
    """One word in eight is left out or replaced."""
    words = text.split()
    reply = []
    for word in words:
        fate = rng.random()
        if fate >= 1 / 16:
            reply.append(rng.choice(words) if fate < 1 / 8 else word)
    return Text(f"Rewrite this text: {text}", " ".join(reply))


def _listed(text: str, rng: random.Random) -> Text:
    words = re.findall(r"[a-z]{4,}", text)
    keys = rng.sample(words, 5)
    records = [
        {key: rng.choice([rng.randrange(1000), rng.choice(words), True]) for key in keys}
        for _ in range(6)
    ]
    return Text(f"Make a JSON list of this: {text}", json.dumps(records, indent=2))
