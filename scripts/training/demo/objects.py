"""Formatting given data as JSON."""

import json
from random import Random

from . import words as w
from .copying import some_items
from .facts import facts
from .phrase import Talk, ask, fill, join_and, single

Value = str | int | bool
Data = dict[str, Value]


_COUNTS = ("price", "weight", "size", "pages", "count", "id", "floor", "points", "length")
_FLAGS = ("active", "open", "paid", "done")
_CHOICES = {
    "colour": w.COLOURS,
    "color": w.COLOURS,
    "country": w.COUNTRIES,
    "hobby": w.HOBBIES,
    "day": w.DAYS,
    "animal": ["dog", "cat", "horse", "bird", "rabbit", "fish"],
    "year": list(range(1950, 2031)),
}


def field(rng: Random, key: str, known: dict[str, str]) -> Value:
    if key in _CHOICES:
        pool = _CHOICES[key]
        return rng.choice(pool) if key == "year" else w.some(rng, pool)
    if key in _COUNTS:
        return rng.randint(1, 999)
    if key in _FLAGS:
        return rng.random() < 0.5
    if key in ("title", "product", "item"):
        return f"{w.some(rng, w.ADJECTIVES)} {w.some(rng, w.NOUNS)}"
    if key == "age":
        return int(known["age"])
    return known["person" if key == "name" else key]


_TEXTS = w.TEXTS["objects"]
_SETS = [keys.split() for keys in _TEXTS["sets"]]


def record(rng: Random) -> dict[str, Value]:
    keys = list(rng.choice(_SETS))
    if rng.random() < 0.3:
        pool = sorted({k for group in _SETS for k in group})
        keys = rng.sample(pool, rng.randint(1, 5))
    known = facts(rng)
    return {k: field(rng, k, known) for k in keys}


def dump(value: object) -> str:
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"


def shown(value: Value) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def phrase(rng: Random, data: dict[str, Value]) -> str:
    """The fields as a user would type them."""
    style = rng.randrange(5)
    mark = (": ", ": ", " ", " ", "=")[style]
    parts = [f"{k}{mark}{shown(v)}" for k, v in data.items()]
    if style == 2:
        return join_and(parts)
    return ("\n" if style == 1 else ", ").join(parts)


def _object(rng: Random) -> Talk:
    data = record(rng)
    form = rng.choice(_TEXTS["fields"])
    return single(ask(rng, form, t=phrase(rng, data)), dump(data))


def _array(rng: Random) -> Talk:
    items: list[object] = list(some_items(rng))
    if rng.random() < 0.25:
        items = [rng.randint(0, 999) for _ in range(rng.randint(2, 6))]
        given = ", ".join(map(str, items))
    else:
        given = rng.choice((join_and(items), ", ".join(items), "\n".join(items)))
    of = _TEXTS["array_of" if rng.random() < 0.5 else "array_from"]
    return single(ask(rng, [_TEXTS["array"], of], t=given), dump(items))


def _sentence(rng: Random) -> Talk:
    known = facts(rng)
    price = known["price"]
    values: dict[str, object] = {**known, "name": known["person"], "age": int(known["age"])}
    values["price"] = float(price) if "." in price else int(price)
    text, keys = rng.choice(_TEXTS["sentences"])
    text = fill(text, {**known, "an": "an" if known["job"][0] in "aeiou" else "a"})
    form = rng.choice(_TEXTS["sentence"])
    return single(ask(rng, form, t=text), dump({key: values[key] for key in keys.split()}))


def _rows(rng: Random) -> Talk:
    keys = rng.choice(("name age", "name city", "item price", "name points", "city country"))
    known = [facts(rng) for _ in range(rng.randint(2, 3))]
    rows = [{k: field(rng, k, one) for k in keys.split()} for one in known]
    text = "\n".join(", ".join(shown(v) for v in row.values()) for row in rows)
    request = ask(rng, _TEXTS["rows"], k=keys.replace(" ", " and "), t=text)
    return single(request, dump(rows))


def objects(rng: Random) -> Talk:
    return rng.choices((_object, _array, _sentence, _rows), (6, 2, 3, 0.8))[0](rng)
