"""Word lists from which the corpus builds its sentences, and words that are in no list."""

import tomllib
from pathlib import Path
from random import Random
from typing import Any

TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
"""All that the corpus is made of but rules, by module."""
_LISTS = TEXTS["words"]
NAMES, SURNAMES, CITIES, COUNTRIES, NOUNS, ADJECTIVES, THINGS, PLACES = (
    _LISTS[name].split()
    for name in "names surnames cities countries nouns adjectives things places".split()
)
FOODS, MONTHS, DAYS, DOMAINS, JOBS, HOBBIES, COLOURS, NUMBER_WORDS = (
    _LISTS[name].split()
    for name in "foods months days domains jobs hobbies colours number_words".split()
)
VERBS = [tuple(line.split("/")) for line in _LISTS["verbs"].splitlines()]
INVENTED = 0.5
"""How often a word is invented, so that copying cannot lean on knowing all words."""
_ONSETS, _VOWELS = _LISTS["onsets"].split(), _LISTS["vowels"].split()
_ENDS = _LISTS["ends"].split(" ")
_WHOLE = NAMES + SURNAMES + CITIES + COUNTRIES + NOUNS + ADJECTIVES + THINGS + PLACES + JOBS
_WHOLE += HOBBIES
_read: list[str] = []


def learn(words: list[str]) -> None:
    """Words found in real text join the invented ones."""
    _read[:] = [word.lower() for word in words if word.isalpha() and 2 < len(word) < 13]


def invented(rng: Random) -> str:
    """A word from no list: one that was read somewhere, halves of two words, or syllables."""
    if _read and rng.random() < 0.4:
        return rng.choice(_read)
    if rng.random() < 0.55:
        first, second = (word.lower() for word in rng.sample(_WHOLE, 2))
        return first[: rng.randint(2, len(first))] + second[rng.randint(1, len(second) - 1) :]
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_ENDS)
        for _ in range(rng.choice((1, 2, 2, 3)))
    )


def some(rng: Random, pool: list[str]) -> str:
    """A word of the list, or an invented one of the same shape."""
    if rng.random() >= INVENTED:
        return rng.choice(pool)
    word = invented(rng)
    return word.capitalize() if pool[0][0].isupper() else word


def several(rng: Random, pool: list[str], count: int) -> list[str]:
    """Different words of that kind."""
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault(some(rng, pool))
    return list(found)
