"""Short lists of closed topics, always in the same order, so that they stay correct."""

from random import Random

from .phrase import Talk, ask, single
from .words import NUMBER_WORDS, TEXTS

_TEXTS = TEXTS["lists"]
_WHOLE = ("planets", "days", "months", "seasons", "continents", "oceans")
"""Topics that are listed whole where no number is named."""
TOPICS: dict[str, tuple[str, list[str]]] = {}
"""By name: another name, and the items."""
for _line in _TEXTS["topics"].splitlines():
    _head, _items = _line.split(":")
    _name, _other = _head.split("|")
    TOPICS[_name] = (_other, _items.split(","))


def topic_of(rng: Random) -> tuple[str, str, list[str]]:
    """A topic: its name for answers, the wording of the request, its items."""
    name = rng.choice(list(TOPICS))
    other, items = TOPICS[name]
    asked = name if rng.random() < 0.75 else other
    if name == "colours" and rng.random() < 0.3:
        asked = "colors"
    return name, asked, items


def render(items: list[str], *, numbered: bool) -> str:
    return "\n".join(f"{i}. {x}" if numbered else f"- {x}" for i, x in enumerate(items, 1))


def list_answer(name: str, items: list[str], count: int, *, numbered: bool) -> str:
    shown = render(items[:count], numbered=numbered)
    if count > len(items):
        return f"Here are the {NUMBER_WORDS[len(items)]} {name} that I know:\n\n{shown}"
    return f"Here are {NUMBER_WORDS[count]} {name}:\n\n{shown}"


def lists(rng: Random) -> Talk:
    if rng.random() < 0.18:
        return _tips(rng)
    name, asked, items = topic_of(rng)
    style = rng.random()
    count = len(items) if name in _WHOLE else 5
    if style < 0.55:
        count = rng.randint(2, 12)
        shown = str(count) if rng.random() < 0.5 else NUMBER_WORDS[count]
        request = ask(rng, _TEXTS["counted"], n=shown, topic=asked)
    elif style < 0.85:
        request = ask(rng, _TEXTS["some" if rng.random() < 0.7 else "which"], topic=asked)
    else:
        # A bare topic is a request as well.
        form = _TEXTS["bare"] if count == 5 and name != "oceans" else _TEXTS["all"]
        request = ask(rng, form, topic=asked)
    numbered = rng.random() < 0.25
    if numbered:
        request += rng.choice(_TEXTS["as_numbers"])
    return single(request, list_answer(name, items, count, numbered=numbered))


def tips_of(key: str, count: int) -> str:
    """So many pieces of advice."""
    shown = render(TEXTS["tips"][key].split("|")[:count], numbered=True)
    return f"Here are {NUMBER_WORDS[count]} tips for {key.split('|', maxsplit=1)[0]}:\n\n{shown}"


def _tips(rng: Random) -> Talk:
    key = rng.choice(list(TEXTS["tips"]))
    asked = rng.choice(key.split("|"))
    count = rng.choice((3, 4, 5, 5, 5))
    shown = rng.choice((str(count), NUMBER_WORDS[count]))
    form = "counted_tips"
    if asked.startswith("how to"):
        form, count = "how_to", 5
    elif count == 5 and rng.random() < 0.5:
        form = "some_tips"
    return single(ask(rng, _TEXTS[form], n=shown, topic=asked), tips_of(key, count))
