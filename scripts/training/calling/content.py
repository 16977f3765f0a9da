"""What the tools of the conversations find: names, paths, addresses, files, and lines of text."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from demo import words as w
from demo.phrase import article, fill, sentence

TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
_ENDINGS = ".txt .txt .txt .md .md .csv .log .json .py .html .cfg".split()
_HEX = "0123456789abcdef"
_SMALL = "abcdefghijklmnopqrstuvwxyz0123456789_"


def word(rng: Random) -> str:
    """A word as names of files have them."""
    text = re.sub("[^a-z]", "", w.some(rng, w.NOUNS + w.PLACES + w.THINGS).lower()) or "file"
    return text.capitalize() if rng.random() < 0.08 else text


def stem(rng: Random) -> str:
    """The name of a file or folder without its ending."""
    kind = rng.random()
    if kind < 0.68:
        return word(rng)
    if kind < 0.82:
        return f"{word(rng)}{rng.choice('-_')}{word(rng)}"
    if kind < 0.92:
        return f"{word(rng)}{rng.choice(('', '-', '_'))}{rng.randint(1, 2030)}"
    return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def file_name(rng: Random) -> str:
    return stem(rng) + rng.choice(_ENDINGS)


def folder(rng: Random) -> str:
    """A path of a folder: mostly short, at times absolute or of a temporary place."""
    parts = [stem(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    kind = rng.random()
    if kind < 0.10:
        made = "".join(rng.choice(_SMALL) for _ in range(8))
        return f"/tmp/{rng.choice(('tmp', word(rng) + '-', ''))}{made}/{parts[0]}"
    if kind < 0.22:
        return f"/{rng.choice(('home', 'srv', 'data', 'home/' + word(rng)))}/{'/'.join(parts)}"
    return "/".join(parts)


def path(rng: Random) -> str:
    """A path of a file."""
    return file_name(rng) if rng.random() < 0.25 else f"{folder(rng)}/{file_name(rng)}"


def address(rng: Random) -> str:
    """An address of a page, of this machine or elsewhere."""
    where = rng.random()
    if where < 0.5:
        host = f"http://{rng.choice(('127.0.0.1', '127.0.0.1', 'localhost'))}:{rng.randint(1024, 65535)}"
    else:
        host = f"http{rng.choice(('', 's'))}://{word(rng)}.{rng.choice(('example', 'org', 'net'))}"
    page = f"{stem(rng)}{rng.choice(('', '.html', '.html', '.txt', '/'))}"
    return f"{host}/{page}" if rng.random() < 0.8 else f"{host}/{word(rng)}/{page}"


def author(rng: Random) -> str:
    name = w.some(rng, w.NAMES)
    return name if rng.random() < 0.6 else f"{name} {w.some(rng, w.SURNAMES)}"


def digest(rng: Random) -> str:
    return "".join(rng.choice(_HEX) for _ in range(40))


def day(rng: Random) -> str:
    return f"20{rng.randint(15, 35)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def message(rng: Random) -> str:
    """The first line of a commit."""
    text = rng.choice(
        (
            "{Do} the {noun}",
            "{Do} the {adj} {noun}",
            "{Do} {things} of the {noun}",
            "{noun}: {do} the {things}",
            "{Do} {name}'s {noun}",
        )
    )
    do = rng.choice("add fix plan move rename remove update describe paint open close test".split())
    slots = {
        "Do": do.capitalize(),
        "do": do,
        "noun": w.some(rng, w.NOUNS),
        "adj": w.some(rng, w.ADJECTIVES),
        "things": w.some(rng, w.THINGS),
        "name": w.some(rng, w.NAMES),
    }
    return fill(text, slots)


def line(rng: Random) -> str:
    """A line of a file or page."""
    if rng.random() < 0.4:
        return sentence(rng)
    text = re.sub(
        r"\[([^\[\]]*)\]", lambda m: rng.choice(m.group(1).split("|")), rng.choice(TEXTS["lines"])
    )
    return article(
        fill(
            text,
            {
                "noun": w.some(rng, w.NOUNS),
                "adj": w.some(rng, w.ADJECTIVES),
                "things": w.some(rng, w.THINGS),
                "name": w.some(rng, w.NAMES),
                "city": w.some(rng, w.CITIES),
                "month": rng.choice(w.MONTHS),
                "day": rng.choice(w.DAYS),
                "n": str(rng.randint(1, 99)),
                "h": str(rng.randint(1, 12)),
            },
        )
    )


_COMMON = set(
    """there they that this with from under beside behind near front does have will must should could
    would when your their open very quite euros clock today tomorrow soon again better than think
    please forget""".split()
)


@dataclass(frozen=True)
class Text:
    """Some lines, one of them, and a word that stands in this one alone."""

    lines: tuple[str, ...]
    line: str
    key: str


def text(rng: Random, most: int = 3) -> Text:
    """A short text that can be asked about."""
    while True:
        lines = [line(rng) for _ in range(rng.randint(1, most))]
        chosen = rng.choice(lines)
        rest = " ".join(one for one in lines if one is not chosen).lower()
        keys = [
            key
            for key in re.findall(r"[A-Za-z]{4,}", chosen)
            if key.lower() not in _COMMON and key.lower() not in rest
        ]
        if keys:
            return Text(tuple(lines), chosen, rng.choice(keys))
