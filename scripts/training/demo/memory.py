"""Conversations in which the model must remember what the user said."""

from random import Random

from . import words as w
from .lists import list_answer, topic_of
from .phrase import Talk, ask, single
from .sums import plain

_TEXTS = w.TEXTS["memory"]


def thanked(rng: Random) -> Talk:
    return single(
        ask(rng, _TEXTS["thanks"]), "You are welcome! Is there anything else that I can do?"
    )


def name_kept(rng: Random) -> Talk:
    name = w.some(rng, w.NAMES)
    if rng.random() < 0.15:
        letters = ("bdfgklmnprstvz", "aeiou") * 2
        syllables = "".join(rng.choices(some)[0] for some in letters).capitalize()
        name = syllables + rng.choice(("", "n", "r", "ra", "lo"))
    talk = single(
        ask(rng, _TEXTS["name"], n=name), f"Nice to meet you, {name}! What can I do for you?"
    )
    if rng.random() < 0.35:
        talk += filler(rng)
    return talk + single(ask(rng, _TEXTS["my_name"]), f"Your name is {name}.")


_LIKES: dict[str, list[str]] = {
    "favourite colour": w.COLOURS,
    "favourite food": w.FOODS,
    "favourite city": w.CITIES,
    "favourite hobby": w.HOBBIES,
    "dog's name": w.NAMES,
    "cat's name": w.NAMES,
    "favourite number": [str(n) for n in range(1, 100)],
    "job": w.JOBS,
    "sister's name": w.NAMES,
    "brother's name": w.NAMES,
    "favourite day": w.DAYS,
    "favourite month": w.MONTHS,
    "home town": w.CITIES,
    "password": w.NOUNS,
    "friend's name": w.NAMES,
    "room number": [str(n) for n in range(1, 500)],
}


def fact_kept(rng: Random) -> Talk:
    key, pool = rng.choice(list(_LIKES.items()))
    value = rng.choice(pool) if pool[0].isdigit() else w.some(rng, pool)
    asked = key.replace("colour", "color") if rng.random() < 0.2 else key
    talk = single(
        ask(rng, _TEXTS["fact"], k=asked, v=value), f"I will remember it: your {asked} is {value}."
    )
    if rng.random() < 0.4:
        talk += filler(rng)
    return talk + single(ask(rng, _TEXTS["my_fact"], k=asked), f"Your {asked} is {value}.")


def filler(rng: Random) -> Talk:
    """A short exchange in between, so that the reference reaches further back."""
    roll = rng.random()
    if roll < 0.35:
        return plain(rng)
    if roll < 0.55:
        name, asked, items = topic_of(rng)
        n = rng.randint(3, 5)
        answer = list_answer(name, items, min(n, len(items)), numbered=False)
        return single(ask(rng, _TEXTS["list"], n=str(n), t=asked), answer)
    if roll < 0.75:
        word = w.some(rng, w.NOUNS)
        return single(ask(rng, _TEXTS["say"], t=word), word)
    return thanked(rng)
