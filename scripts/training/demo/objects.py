"""Formatting given data as JSON."""

import json
from random import Random

from . import words as w
from .copying import some_items
from .facts import facts
from .phrase import PLEASE, Talk, ask, join_and, single

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


_SETS = [
    ["name", "age", "city"],
    ["name", "email"],
    ["name", "age"],
    ["name", "job", "city"],
    ["name", "age", "job"],
    ["name", "city", "country"],
    ["name", "phone"],
    ["title", "price"],
    ["product", "price", "colour"],
    ["item", "count"],
    ["title", "year", "pages"],
    ["name", "hobby"],
    ["name", "email", "phone"],
    ["day", "time", "place"],
    ["id", "name", "active"],
    ["animal", "name", "age"],
    ["city", "country"],
    ["title", "done"],
    ["product", "weight"],
    ["name", "points"],
    ["colour", "size"],
    ["id", "item", "paid"],
    ["name", "age", "city", "job"],
    ["name", "floor"],
    ["place", "open"],
    ["item", "length", "color"],
    ["date", "time", "city"],
]


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
    if style == 0:
        return ", ".join(f"{k}: {shown(v)}" for k, v in data.items())
    if style == 1:
        return "\n".join(f"{k}: {shown(v)}" for k, v in data.items())
    if style == 2:
        return join_and([f"{k} {shown(v)}" for k, v in data.items()])
    if style == 3:
        return ", ".join(f"{k} {shown(v)}" for k, v in data.items())
    return ", ".join(f"{k}={shown(v)}" for k, v in data.items())


_FIELDS = (
    "[write|format|give me|show|convert|turn|put|make|return] [this|the following|these fields|this data] "
    "[as JSON|in JSON|into JSON|to JSON|as a JSON object|as json]: {t}",
    "[make|write|create|give me|build] [a JSON object|JSON|a json object|some JSON] [with|from|for|containing|out of] {t}",
    "[make|write|create|give me|build] [a JSON object|JSON|a json object] [with|from|for] [these fields|this|the fields]: {t}",
    "[JSON|json|as JSON|to JSON] [for|of|with|]: {t}",
    "[JSON|json|a JSON object] [for|of|with] {t}",
    "[i need|i want|give me|show me|please give me] [this|this data|the data|the following|these fields] [as|in] [JSON|JSON format|a JSON object]: {t}",
    "{t}\n[as JSON|convert to JSON|make this JSON|in JSON please|now as json].",
)


def _object(rng: Random) -> Talk:
    data = record(rng)
    return single(ask(rng, PLEASE + rng.choice(_FIELDS), t=phrase(rng, data)), dump(data))


def _array(rng: Random) -> Talk:
    items = some_items(rng)
    if rng.random() < 0.25:
        numbers = [rng.randint(0, 999) for _ in range(rng.randint(2, 6))]
        shown_items, value = ", ".join(map(str, numbers)), list[object](numbers)
    else:
        shown_items, value = (
            rng.choice((join_and(items), ", ".join(items), "\n".join(items))),
            list[object](items),
        )
    form = (
        "[write|format|give me|show|convert|turn|put|make] [this|the following|this list|these] "
        "[as|into|to|in] [a JSON array|a JSON list|a json array|a JSON list of strings]: {t}",
        "[make|write|create|give me] [a JSON array|a JSON list|a json list|JSON|some JSON] [with|of|from] [|the numbers |the words |the items |]{t}"
        if rng.random() < 0.5
        else "[make|write|create|give me] [a JSON array|a JSON list|a json list] [with|of|from] {t}",
    )
    return single(ask(rng, PLEASE + rng.choice(form), t=shown_items), dump(value))


def _sentence(rng: Random) -> Talk:
    known = facts(rng)
    name, age, city, job, email = (
        known["person"],
        int(known["age"]),
        known["city"],
        known["job"],
        known["email"],
    )
    an = "an" if job[0] in "aeiou" else "a"
    text, data = rng.choice(
        (
            (
                f"{name} is {age} years old and lives in {city}.",
                {"name": name, "age": age, "city": city},
            ),
            (
                f"{name} lives in {city} and works as {an} {job}.",
                {"name": name, "city": city, "job": job},
            ),
            (f"{name} is {an} {job} and {age} years old.", {"name": name, "job": job, "age": age}),
            (f"The email of {name} is {email}.", {"name": name, "email": email}),
            (
                f"{name} from {city} has the email {email}.",
                {"name": name, "city": city, "email": email},
            ),
            (f"{name}, {age}, lives in {city}.", {"name": name, "age": age, "city": city}),
            (f"{name} is {age} years old.", {"name": name, "age": age}),
            (
                f"The {known['item']} costs {known['price']} euros.",
                {
                    "item": known["item"],
                    "price": float(known["price"])
                    if "." in known["price"]
                    else int(known["price"]),
                },
            ),
            (f"{name} lives in {city}.", {"name": name, "city": city}),
            (
                f"{name} called {known['phone']} on {known['date']}.",
                {"name": name, "phone": known["phone"], "date": known["date"]},
            ),
        )
    )
    form = (
        "[write|format|convert|turn|put|extract] [this|this sentence|the following|the data] [as|into|to|in] [JSON|a JSON object]: {t}",
        "{t}\n[as JSON|convert to JSON|write this as JSON|turn this into JSON].",
        "[extract the data as JSON|give me JSON for this|make JSON from this sentence]: {t}",
    )
    return single(ask(rng, rng.choice(form), t=text), dump(data))


def _rows(rng: Random) -> Talk:
    keys = rng.choice(
        (
            ["name", "age"],
            ["name", "city"],
            ["item", "price"],
            ["name", "points"],
            ["city", "country"],
        )
    )
    known = [facts(rng) for _ in range(rng.randint(2, 3))]
    rows = [{k: field(rng, k, one) for k in keys} for one in known]
    text = "\n".join(", ".join(shown(v) for v in row.values()) for row in rows)
    form = (
        "[write|format|convert|turn|put] [these rows|this table|the following|this] [as|into|to] [JSON|a JSON array|a list of JSON objects]"
        " with {k}:\n{t}"
    )
    return single(ask(rng, form, k=" and ".join(keys), t=text), dump(rows))


def objects(rng: Random) -> Talk:
    return rng.choices((_object, _array, _sentence, _rows), (6, 2, 3, 0.8))[0](rng)
