"""Conversations of two to four turns that refer to earlier turns."""

import re
from random import Random

from . import words as w
from .code import NAMES as FUNCTION_NAMES
from .code import reply
from .copying import Quotes, passage
from .facts import facts
from .functions import repertoire
from .lists import tips_of
from .memory import fact_kept, name_kept, thanked
from .objects import dump, field, phrase, record, shown
from .phrase import Talk, ask, single
from .shown import list_kept
from .sums import NAMED, draw, reserved, result, solve, work

_TEXTS = w.TEXTS["turns"]
_MORE = ("country", "age", "city", "job", "colour", "price", "email", "hobby", "year")


def _sum(rng: Random) -> Talk:
    a, op, b = draw(rng, rng.choice("++-*"))
    talk = single(ask(rng, w.TEXTS["sums"][NAMED[op]], a=a, b=b), solve(a, op, b))
    value = result(a, op, b)
    for _ in range(rng.randint(1, 2)):
        options = [("+", n) for n in range(1, 100 - min(value, 99)) if not reserved(value, "+", n)]
        options += [
            ("-", n)
            for n in range(1, min(value, 99))
            if value <= 110 and not reserved(value, "-", n)
        ]
        if not options or value > 110:
            break
        kind, n = rng.choice(options)
        talk += single(ask(rng, _TEXTS[NAMED[kind]], n=n), solve(value, kind, n))
        value = result(value, kind, n)
    return talk if len(talk) > 2 else talk + thanked(rng)


def _echo(rng: Random, quotes: Quotes) -> Talk:
    text = passage(rng, quotes)
    talk = single(ask(rng, _TEXTS["echo"], t=text), text)
    said = text
    for step in rng.sample(("again", "twice", "quotes", "another"), rng.randint(1, 2)):
        if step == "twice":
            said = f"{text}\n{text}"
        elif step == "quotes":
            said = f'"{text}"'
        elif step == "another":
            said = text = passage(rng, quotes)
        talk += single(ask(rng, _TEXTS[step], t=text), said)
    return talk


def _code(rng: Random) -> Talk:
    f = rng.choice(repertoire())
    name = f.name
    talk = single(ask(rng, _TEXTS["function"], t=rng.choice(f.tasks)), reply(f))
    for step in rng.sample(("rename", "what", "example", "name"), rng.randint(1, 2)):
        if step == "example" and not f.example:
            continue
        if step == "rename":
            name = rng.choice(FUNCTION_NAMES)
        answer = {
            "rename": f"```python\n{f.named(name)[0]}\n```",
            "what": f"The function `{name}` {f.tasks[0]}.",
            "example": f"For example, `{f.named(name)[1]}` returns `{f.result}`.",
            "name": f"The function is called `{name}`.",
        }[step]
        talk += single(ask(rng, _TEXTS[step], n=name), answer)
    return talk if len(talk) > 2 else talk + thanked(rng)


def _object(rng: Random) -> Talk:
    data = record(rng)
    talk = single(ask(rng, _TEXTS["json"], t=phrase(rng, data)), dump(data))
    for _ in range(rng.randint(1, 2)):
        known = facts(rng)
        step = rng.randrange(3)
        key = rng.choice(list(data))
        if step == 0 and len(data) < 6:
            key = rng.choice([k for k in _MORE if k not in data])
            data = {**data, key: field(rng, key, known)}
            talk += single(ask(rng, _TEXTS["add"], k=key, v=str(data[key])), dump(data))
        elif step == 1:
            data = {**data, key: field(rng, key, known)}
            talk += single(ask(rng, _TEXTS["change"], k=key, v=shown(data[key])), dump(data))
        elif len(data) > 1:
            data = {k: v for k, v in data.items() if k != key}
            talk += single(ask(rng, _TEXTS["remove"], k=key), dump(data))
    return talk if len(talk) > 2 else talk + thanked(rng)


def _tips(rng: Random) -> Talk:
    key = rng.choice(list(w.TEXTS["tips"]))
    n = rng.choice((2, 3, 4))
    asked = ask(rng, _TEXTS["tips"], n=w.NUMBER_WORDS[n], t=key.split("|")[0])
    talk = single(asked, tips_of(key, n))
    return talk + single(ask(rng, _TEXTS["one_more"]), tips_of(key, n + 1))


def _steps(rng: Random) -> Talk:
    a, op, b = draw(rng)
    talk = single(ask(rng, w.TEXTS["sums"][NAMED[op]], a=a, b=b), solve(a, op, b))
    how = work(a, op, b).strip() or f"{a} {'×' if op == '*' else op} {b} is {result(a, op, b)}."
    return talk + single(ask(rng, _TEXTS["how"]), how)


def turns(rng: Random, quotes: Quotes) -> Talk:
    makers = (name_kept, fact_kept, list_kept, _sum, _echo, _code, _object, _tips, _steps)
    (maker,) = rng.choices(makers, (2.2, 2, 3.5, 1.6, 1.6, 1.2, 1.8, 0.5, 0.4))
    talk = maker(rng, quotes) if maker is _echo else maker(rng)
    if rng.random() < 0.15 and not re.match("You are welcome", talk[-1][1]):
        talk += thanked(rng)
    return talk
