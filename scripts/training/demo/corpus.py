"""The corpus: a mix of generated conversations, with the held-out prompts filtered out."""

import ast
import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

from .about import about
from .code import code, explain
from .copying import Quotes, drill, repeat, rewrite
from .extract import extract
from .lists import lists
from .objects import objects
from .phrase import Talk
from .sums import sums
from .turns import turns
from .unknown import unknown
from .words import TEXTS

# Share of each kind among the conversations, beside `drill`, whose share changes while training.
MIX = {
    "about": 0.14,
    "sums": 0.34,
    "lists": 0.05,
    "repeat": 0.11,
    "rewrite": 0.25,
    "extract": 0.20,
    "code": 0.06,
    "explain": 0.005,
    "objects": 0.12,
    "turns": 0.12,
    "unknown": 0.06,
}

_SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,'()\-_./]{18,140}\.(?=\s|$)")


def docstring_sentences(limit: int = 9000) -> list[str]:
    """Sentences from the docstrings of the standard library of the running Python, in a fixed order."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        parts = path.parts
        if {"test", "tests", "site-packages", "idlelib", "lib2to3", "dist-packages"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                for match in _SENTENCE.findall(text):
                    found.setdefault(match)
    sentences = list(found)
    Random(0).shuffle(sentences)
    return sentences[:limit]


def normal(text: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9+*/@\-]+", " ", text.lower()).split())


class HeldOut:
    """The held-out part, which training must never see: the prompts themselves and the contents they name."""

    def __init__(self, path: Path) -> None:
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self.prompts = {
            normal(m["content"])
            for e in entries
            for m in e["messages"]
            if m["role"] == "user" and e.get("strict", True)
        }
        # Short follow-ups such as "thanks" are part of the language and may recur.
        self.prompts = {p for p in self.prompts if len(p) > 18}
        self.contents = sorted({normal(c) for e in entries for c in e.get("contents", [])})

    def hit(self, talk: Talk) -> bool:
        users = [normal(text) for role, text in talk if role == "user"]
        if any(u in self.prompts for u in users):
            return True
        joined = " | ".join(f" {normal(text)} " for _, text in talk)
        return any(f" {c} " in joined for c in self.contents)


_QUOTING = {"drill": drill, "rewrite": rewrite, "repeat": repeat, "turns": turns}
_MAKERS = {
    "about": about,
    "sums": sums,
    "lists": lists,
    "extract": extract,
    "code": code,
    "explain": explain,
    "objects": objects,
    "unknown": unknown,
}


def single_talk(kind: str, rng: Random, quotes: Quotes) -> Talk:
    return _QUOTING[kind](rng, quotes) if kind in _QUOTING else _MAKERS[kind](rng)


def conversations(
    seed: int,
    held: HeldOut,
    quotes: Quotes,
    chain: float = 0.25,
    most: int = 4,
    drills: float = 0.05,
) -> Iterator[tuple[str, Talk]]:
    """Endless conversations; with probability `chain` several unrelated exchanges follow each other."""
    rng = Random(seed)
    kinds, weights = [*MIX, "drill"], [*MIX.values(), drills]
    while True:
        parts = rng.randint(2, most) if rng.random() < chain else 1
        chosen = rng.choices(kinds, weights, k=parts)
        talk: Talk = []
        for kind in chosen:
            talk += single_talk(kind, rng, quotes)
        if held.hit(talk):
            continue
        if rng.random() < 0.2:
            talk = [("system", rng.choice(TEXTS["about"]["systems"])), *talk]
        yield (chosen[0] if parts == 1 else "chain"), talk
