"""Conversations about a list: more of it, another form, one of its items."""

from dataclasses import dataclass
from random import Random

from . import words as w
from .lists import list_answer, render, topic_of
from .objects import dump
from .phrase import Talk, ask, join_and, single

_TEXTS = w.TEXTS["shown"]
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth".split()


@dataclass
class Shown:
    """A list as the user sees it now, and all items of the topic."""

    name: str
    items: list[str]
    chosen: list[str]


def _more(rng: Random, s: Shown) -> Talk:
    spare = len(s.items) - len(s.chosen)
    if spare < 1 or len(s.chosen) > 7 or s.chosen != s.items[: len(s.chosen)]:
        return []
    extra = rng.randint(1, min(2, spare))
    s.chosen = s.items[: len(s.chosen) + extra]
    form = _TEXTS["one_more" if extra == 1 else "two_more"]
    return single(ask(rng, form), list_answer(s.name, s.items, len(s.chosen), numbered=False))


def _numbered(rng: Random, s: Shown) -> Talk:
    return single(ask(rng, _TEXTS["numbered"]), render(s.chosen, numbered=True))


def _as_json(rng: Random, s: Shown) -> Talk:
    return single(ask(rng, _TEXTS["as_json"]), dump(s.chosen))


def _one_line(rng: Random, s: Shown) -> Talk:
    return single(ask(rng, _TEXTS["one_line"]), join_and(s.chosen))


def _which(rng: Random, s: Shown) -> Talk:
    at = rng.randrange(len(s.chosen))
    which = ORDINALS[at]
    return single(ask(rng, _TEXTS["which"], o=which), f"The {which} one is {s.chosen[at]}.")


def _how_many(rng: Random, s: Shown) -> Talk:
    return single(
        ask(rng, _TEXTS["how_many"]), f"There are {w.NUMBER_WORDS[len(s.chosen)]} of them."
    )


def _without(rng: Random, s: Shown) -> Talk:
    if len(s.chosen) < 3:
        return []
    at = rng.randrange(len(s.chosen))
    what = rng.choice((s.chosen[at], f"the {ORDINALS[at]} one"))
    del s.chosen[at]
    return single(ask(rng, _TEXTS["without"], o=what), render(s.chosen, numbered=False))


def list_kept(rng: Random) -> Talk:
    count = rng.randint(3, 6)
    name, asked, items = topic_of(rng)
    while count >= len(items):
        name, asked, items = topic_of(rng)
    number = rng.choice((str(count), w.NUMBER_WORDS[count]))
    talk = single(
        ask(rng, _TEXTS["list"], n=number, t=asked), list_answer(name, items, count, numbered=False)
    )
    shown = Shown(name, items, items[:count])
    steps = (_more, _more, _numbered, _as_json, _one_line, _which, _which, _how_many, _without)
    for step in rng.sample(steps, rng.randint(1, 3)):
        talk += step(rng, shown)
    return talk
