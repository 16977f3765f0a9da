"""Honest answers to requests outside the repertoire."""

from random import Random

from . import words as w
from .phrase import Talk, ask, sentence, single

_TEXTS = w.TEXTS["unknown"]


def unknown(rng: Random) -> Talk:
    pools = {"topic": _TEXTS["topics"], "country": w.COUNTRIES, "city": w.CITIES, "city2": w.CITIES}
    pools |= {"name": w.NAMES, "surname": w.SURNAMES, "noun": w.NOUNS, "noun2": w.NOUNS}
    slots = {key: rng.choice(pool) for key, pool in (pools | {"adj": w.ADJECTIVES}).items()}
    slots["year"] = str(rng.randint(1900, 2024))
    roll = rng.random()
    if roll < 0.06:
        # A bare statement asks for nothing that the model could do.
        return single(sentence(rng), _TEXTS["sorry"])
    if roll < 0.70:
        lead = rng.choice(_TEXTS["leads"])
        request = ask(rng, lead + rng.choice(_TEXTS["general"]), **slots)
        return single(request, _TEXTS["sorry"])
    if roll < 0.80:
        big = str(rng.randint(200, 99999))
        other = str(rng.choice((rng.randint(13, 99), rng.randint(100, 9999))))
        a, b = (big, other) if rng.random() < 0.6 else (other, big)
        return single(ask(rng, _TEXTS["sums"], a=a, b=b), _TEXTS["too_big"])
    if roll < 0.89:
        return single(ask(rng, _TEXTS["code"], **slots), _TEXTS["no_code"])
    slots["n"] = rng.choice(("three", "five", "ten", "3", "5", "7"))
    return single(ask(rng, _TEXTS["lists"], **slots), _TEXTS["no_list"])
