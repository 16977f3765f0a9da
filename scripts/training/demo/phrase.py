"""Small text grammar: alternatives, slots, and the untidiness of typed requests."""

import re
from random import Random

from . import words as w

Talk = list[tuple[str, str]]
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")

_TEXTS = w.TEXTS["phrase"]


def expand(rng: Random, text: str) -> str:
    """Replace every [a|b|c] by one of its alternatives, the innermost first."""
    while match := _CHOICE.search(text):
        chosen = rng.choice(match.group(1).split("|"))
        text = text[: match.start()] + chosen + text[match.end() :]
    return text


def _expanded(rng: Random, template: str | list[str]) -> str:
    """One of the templates, expanded; ``<please>`` is one of many ways to begin."""
    chosen = template if isinstance(template, str) else rng.choice(template)
    return expand(rng, chosen.replace("<please>", _TEXTS["please"]))


def fill(text: str, slots: dict[str, object]) -> str:
    """Put values into {slots}; the values are never expanded themselves."""
    return _SLOT.sub(lambda m: str(slots.get(m.group(1), m.group(0))), text)


def _typo(rng: Random, text: str) -> str:
    spots = list(re.finditer(r"(?<![{\w])[a-z]{4,}(?![}\w])", text))
    if not spots:
        return text
    spot = rng.choice(spots)
    word = spot.group(0)
    i = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        word = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    elif kind == 1:
        word = word[:i] + word[i + 1 :]
    else:
        word = word[:i] + word[i] + word[i:]
    return text[: spot.start()] + word + text[spot.end() :]


def ask(rng: Random, template: str | list[str], **slots: object) -> str:
    """A request as somebody would type it, by one of the templates; only the wording is made untidy,
    never the slots.
    """
    text = _expanded(rng, template)
    parts = _SLOT.split(text)
    style = rng.random()
    if style < 0.30:
        parts[::2] = [part.lower() for part in parts[::2]]
    elif parts[0]:
        parts[0] = parts[0][0].upper() + parts[0][1:]
    text = "".join(part if i % 2 == 0 else "{" + part + "}" for i, part in enumerate(parts))
    if rng.random() < 0.12 and text and text[-1] in ".?":
        text = text[:-1] + rng.choice(_TEXTS["after"]) + text[-1]
    if rng.random() < 0.30:
        text = text.rstrip("?.!")
    if rng.random() < 0.08:
        text = text.replace("'", "")
    if rng.random() < 0.07:
        text = _typo(rng, text)
    return fill(text, slots).strip()


def tell(rng: Random, template: str | list[str], **slots: object) -> str:
    """An answer: alternatives and slots, always tidy."""
    return fill(_expanded(rng, template), slots).strip()


def single(user: str, answer: str) -> Talk:
    return [("user", user), ("assistant", answer)]


def join_and(items: list[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def slots_for(rng: Random) -> dict[str, str]:
    return {
        "name": w.some(rng, w.NAMES),
        "place": w.some(rng, w.PLACES),
        "city": w.some(rng, w.CITIES),
        "adj": w.some(rng, w.ADJECTIVES),
        "noun": w.some(rng, w.NOUNS),
        "food": w.some(rng, w.FOODS),
    }


def article(phrase: str) -> str:
    """Correct "a old" to "an old"."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", phrase)


def clause(rng: Random) -> tuple[str, str, tuple[str, str, str]]:
    """A subject, the rest of a clause and the verb's (base, third person, past) forms."""
    base, third, past, rest = rng.choice(w.VERBS)
    rest = article(fill(rest, slots_for(rng)))
    who = rng.random()
    if who < 0.6:
        subject = w.some(rng, w.NAMES)
    elif who < 0.75:
        subject = f"{w.some(rng, w.NAMES)} {w.some(rng, w.SURNAMES)}"
    else:
        subject = f"The {w.some(rng, w.ADJECTIVES)} {w.some(rng, w.NOUNS)}"
    return subject, rest, (base, third, past)


def sentence(rng: Random) -> str:
    """One random sentence, ended by a full stop."""
    kind = rng.random()
    if kind < 0.45:
        subject, rest, verb = clause(rng)
        return f"{subject} {verb[rng.choice((1, 2))]} {rest}."
    s = slots_for(rng)
    s.update(
        noun2=w.some(rng, w.NOUNS),
        adj2=w.some(rng, w.ADJECTIVES),
        n=str(rng.randint(2, 99)),
        things=w.some(rng, w.THINGS),
        day=rng.choice(w.DAYS),
        month=rng.choice(w.MONTHS),
        name2=w.some(rng, w.NAMES),
        h=str(rng.randint(1, 12)),
        noun3=w.some(rng, w.NOUNS),
    )
    return article(tell(rng, _TEXTS["sentences"], **s))
