"""Conversations about a list: more of it, another form, one of its items."""

from dataclasses import dataclass
from random import Random

from . import words as w
from .lists import list_answer, render, topic_of
from .objects import dump
from .phrase import Talk, ask, join_and, single

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


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
    one = (
        "[add one more|one more|another one|add another|give me one more|one more please|"
        "and one more|can you add one more|add one]"
    )
    two = "[add two more|two more|give me two more|two more please|add 2 more|and two more]"
    count = w.NUMBER_WORDS[len(s.chosen)]
    return single(
        ask(rng, one if extra == 1 else two),
        f"Here are {count} {s.name}:\n\n{render(s.chosen, numbered=False)}",
    )


def _numbered(rng: Random, s: Shown) -> Talk:
    form = (
        "[now as|as|make it|make that|can you make it|please write it as|turn it into|now|"
        "make that into|show that as|format it as] a numbered list[| please]."
    )
    return single(ask(rng, form), render(s.chosen, numbered=True))


def _as_json(rng: Random, s: Shown) -> Talk:
    form = (
        "[now as JSON|as JSON|convert that to JSON|give me that as JSON|as a JSON list|"
        "in JSON please|turn it into JSON|and as json|make it JSON]."
    )
    return single(ask(rng, form), dump(s.chosen))


def _one_line(rng: Random, s: Shown) -> Talk:
    form = (
        "[in one line|on one line|as one sentence|in a single line|now in one line|"
        "all in one line|separated by commas|with commas|put them in one line|"
        "put that in one line|write them in one line]."
    )
    return single(ask(rng, form), join_and(s.chosen))


def _which(rng: Random, s: Shown) -> Talk:
    at = rng.randrange(len(s.chosen))
    form = "[what was|what is|which was|which one was|which is|tell me|repeat] the {o}[ one|]?"
    return single(ask(rng, form, o=ORDINALS[at]), f"The {ORDINALS[at]} one is {s.chosen[at]}.")


def _how_many(rng: Random, s: Shown) -> Talk:
    form = (
        "[how many are there|how many are that|how many is that|how many did you list|"
        "count them|how many]?"
    )
    return single(ask(rng, form), f"There are {w.NUMBER_WORDS[len(s.chosen)]} of them.")


def _without(rng: Random, s: Shown) -> Talk:
    if len(s.chosen) < 3:
        return []
    at = rng.randrange(len(s.chosen))
    what = rng.choice((s.chosen[at], f"the {ORDINALS[at]} one"))
    del s.chosen[at]
    form = "[remove|delete|leave out|take out|drop|without] {o}[| please]."
    return single(ask(rng, form, o=what), render(s.chosen, numbered=False))


def list_kept(rng: Random) -> Talk:
    count = rng.randint(3, 6)
    name, asked, items = topic_of(rng)
    while count >= len(items):
        name, asked, items = topic_of(rng)
    talk = single(
        ask(
            rng,
            "[list|name|give me|tell me|write down|show me] {n} {t}.",
            n=rng.choice((str(count), w.NUMBER_WORDS[count])),
            t=asked,
        ),
        list_answer(name, items, count, numbered=False),
    )
    shown = Shown(name, items, items[:count])
    steps = (_more, _more, _numbered, _as_json, _one_line, _which, _which, _how_many, _without)
    for step in rng.sample(steps, rng.randint(1, 3)):
        talk += step(rng, shown)
    return talk
