"""Conversations of two to four turns that refer to earlier turns."""

import re
from random import Random

from . import words as w
from .code import _NAMES as FUNCTION_NAMES
from .code import reply
from .copying import Quotes, passage
from .facts import facts
from .functions import repertoire
from .lists import TIPS, render
from .memory import THANKS, WELCOME, fact_kept, name_kept
from .objects import dump, field, phrase, record
from .phrase import Talk, ask, single
from .shown import list_kept
from .sums import draw, question, reserved, result, solve, work


def _sum(rng: Random) -> Talk:
    a, op, b = draw(rng, rng.choice("++-*"))
    talk = single(question(rng, a, op, b), solve(a, op, b))
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
        text = (
            "[and plus {n}|add {n}|add {n} to that|now add {n}|plus {n}|and if you add {n}|and {n} more|+ {n}|add {n} more]?"
            if kind == "+"
            else "[and minus {n}|subtract {n}|take away {n}|now subtract {n}|minus {n}|and if you take away {n}|- {n}|take {n} away from that]?"
        )
        talk += single(ask(rng, text, n=n), solve(value, kind, n))
        value = result(value, kind, n)
    if len(talk) == 2:
        talk += single(ask(rng, THANKS), WELCOME)
    return talk


def _echo(rng: Random, quotes: Quotes) -> Talk:
    text = passage(rng, quotes)
    talk = single(
        ask(
            rng, "[repeat|say|copy|write|echo][: | this: | the following: | after me: ]{t}", t=text
        ),
        text,
    )
    shown = text
    for step in rng.sample(("again", "twice", "quote", "other"), rng.randint(1, 2)):
        if step == "again":
            talk += single(
                ask(
                    rng,
                    "[again|once more|repeat that|say it again|one more time|and again|say that again|again please].",
                ),
                shown,
            )
        elif step == "twice":
            shown = f"{text}\n{text}"
            talk += single(
                ask(rng, "[now twice|twice|two times|say it twice|and now twice]."),
                shown,
            )
        elif step == "quote":
            shown = f'"{text}"'
            talk += single(
                ask(
                    rng,
                    "[in quotes|put it in quotes|with quotes|now in quotation marks|add quotes].",
                ),
                shown,
            )
        else:
            shown = text = passage(rng, quotes)
            talk += single(ask(rng, "[now|and now|now this|and this|next][: ]{t}", t=text), text)
    return talk


def _code(rng: Random) -> Talk:
    f = rng.choice(repertoire())
    name = f.name
    talk = single(
        ask(
            rng,
            "[write|make|give me|show me] a [|Python ]function that {t}.",
            t=rng.choice(f.tasks),
        ),
        reply(f),
    )
    for step in rng.sample(("rename", "what", "example", "name"), rng.randint(1, 2)):
        if step == "rename":
            name = rng.choice(FUNCTION_NAMES)
            code, _ = f.named(name)
            talk += single(
                ask(
                    rng,
                    "[rename it to|call it|name it|rename the function to|please rename it to|change the name to|now call it] {n}.",
                    n=name,
                ),
                f"```python\n{code}\n```",
            )
        elif step == "what":
            talk += single(
                ask(
                    rng,
                    "[what does it do|what does this do|explain it|explain that|what is it for|and what does it do|explain]?",
                ),
                f"The function `{name}` {f.tasks[0]}.",
            )
        elif step == "example" and f.example:
            talk += single(
                ask(
                    rng,
                    "[show me an example|give me an example|an example please|how do I use it|how do I call it|example]?",
                ),
                f"For example, `{f.named(name)[1]}` returns `{f.result}`.",
            )
        elif step == "name":
            talk += single(
                ask(
                    rng,
                    "[what is it called|what is the function called|what is its name|what's the name of the function]?",
                ),
                f"The function is called `{name}`.",
            )
    return talk if len(talk) > 2 else talk + single(ask(rng, THANKS), WELCOME)


def _object(rng: Random) -> Talk:
    data = record(rng)
    talk = single(
        ask(
            rng,
            "[write|make|give me|format] [as JSON|JSON for|JSON with|this as JSON]: {t}",
            t=phrase(rng, data),
        ),
        dump(data),
    )
    for _ in range(rng.randint(1, 2)):
        known = facts(rng)
        step = rng.randrange(3)
        key = rng.choice(list(data))
        if step == 0 and len(data) < 6:
            key = rng.choice(
                [
                    k
                    for k in (
                        "country",
                        "age",
                        "city",
                        "job",
                        "colour",
                        "price",
                        "email",
                        "hobby",
                        "year",
                    )
                    if k not in data
                ]
            )
            data = {**data, key: field(rng, key, known)}
            form = "[add|add the field|add a field|now add|put in|please add] {k}[:|] {v}[|.]"
            talk += single(ask(rng, form, k=key, v=str(data[key])), dump(data))
        elif step == 1:
            data = {**data, key: field(rng, key, known)}
            shown = str(data[key]).lower() if isinstance(data[key], bool) else str(data[key])
            form = "[change|set|change the|now change|make|please change] {k} to {v}[|.]"
            talk += single(
                ask(rng, form.replace("make {k} to", "set {k} to"), k=key, v=shown), dump(data)
            )
        elif len(data) > 1:
            data = {k: v for k, v in data.items() if k != key}
            talk += single(
                ask(
                    rng,
                    "[remove|delete|drop|leave out|take out|without] [the |]{k}[ field|][|.]",
                    k=key,
                ),
                dump(data),
            )
    return talk if len(talk) > 2 else talk + single(ask(rng, THANKS), WELCOME)


def _tips(rng: Random) -> Talk:
    key = rng.choice(list(TIPS))
    topics, lines = key.split("|"), TIPS[key].split("|")
    n = rng.choice((2, 3, 4))
    talk = single(
        ask(
            rng,
            "[give me|list|tell me] {n} tips [for|on|about] {t}.",
            n=w.NUMBER_WORDS[n],
            t=topics[0],
        ),
        f"Here are {w.NUMBER_WORDS[n]} tips for {topics[0]}:\n\n{render(lines[:n], numbered=True)}",
    )
    return talk + single(
        ask(
            rng,
            "[one more|add one more|another one|give me one more|one more please|another tip|and one more]?",
        ),
        f"Here are {w.NUMBER_WORDS[n + 1]} tips for {topics[0]}:\n\n{render(lines[: n + 1], numbered=True)}",
    )


def _steps(rng: Random) -> Talk:
    a, op, b = draw(rng)
    talk = single(question(rng, a, op, b), solve(a, op, b))
    how = work(a, op, b).strip() or f"{a} {'×' if op == '*' else op} {b} is {result(a, op, b)}."
    return talk + single(
        ask(
            rng,
            "[how did you get that|how do you know|show the steps|why|explain|how did you do that]?",
        ),
        how,
    )


def turns(rng: Random, quotes: Quotes) -> Talk:
    maker = rng.choices(
        (
            name_kept,
            fact_kept,
            list_kept,
            _sum,
            lambda r: _echo(r, quotes),
            _code,
            _object,
            _tips,
            _steps,
        ),
        (2.2, 2, 3.5, 1.6, 1.6, 1.2, 1.8, 0.5, 0.4),
    )[0]
    talk = maker(rng)
    if rng.random() < 0.15 and not re.match("You are welcome", talk[-1][1]):
        talk += single(ask(rng, THANKS), WELCOME)
    return talk
