"""Conversations in which the model must remember what the user said."""

from random import Random

from . import words as w
from .lists import list_answer, topic_of
from .phrase import Talk, ask, single
from .sums import draw, question, solve

THANKS = (
    "[thanks|thank you|great, thanks|thx|thanks a lot|perfect, thank you|cheers|nice, thank you]"
)
WELCOME = "You are welcome! Is there anything else that I can do?"


def name_kept(rng: Random) -> Talk:
    name = w.some(rng, w.NAMES)
    if rng.random() < 0.15:
        name = "".join(
            rng.choices("bdfgklmnprstvz", k=1)
            + rng.choices("aeiou", k=1)
            + rng.choices("bdfgklmnprstvz", k=1)
            + rng.choices("aeiou", k=1)
        ).capitalize() + rng.choice(("", "n", "r", "ra", "lo"))
    talk = single(
        ask(
            rng,
            "[hi|hello|hey|||good morning][,|!|] [my name is|I am|I'm|i am called|call me|this is|you can call me] {n}[.|!||]",
            n=name,
        ),
        f"Nice to meet you, {name}! What can I do for you?",
    )
    if rng.random() < 0.35:
        talk += filler(rng)
    talk += single(
        ask(
            rng,
            "[what is my name|what's my name|do you remember my name|who am I|what was my name|do you know my name|"
            "how am I called|tell me my name|can you say my name|what did I say my name was|and my name is]?",
        ),
        f"Your name is {name}.",
    )
    return talk


_LIKES: list[tuple[str, str, list[str]]] = [
    ("favourite colour", "colour", w.COLOURS),
    ("favourite food", "food", w.FOODS),
    ("favourite city", "city", w.CITIES),
    ("favourite hobby", "hobby", w.HOBBIES),
    ("dog's name", "dog", w.NAMES),
    ("cat's name", "cat", w.NAMES),
    ("favourite number", "number", [str(n) for n in range(1, 100)]),
    ("job", "job", w.JOBS),
    ("sister's name", "sister", w.NAMES),
    ("brother's name", "brother", w.NAMES),
    ("favourite day", "day", w.DAYS),
    ("favourite month", "month", w.MONTHS),
    ("home town", "town", w.CITIES),
    ("password", "password", w.NOUNS),
    ("friend's name", "friend", w.NAMES),
    ("room number", "room", [str(n) for n in range(1, 500)]),
]


def fact_kept(rng: Random) -> Talk:
    key, _, pool = rng.choice(_LIKES)
    value = rng.choice(pool) if pool[0].isdigit() else w.some(rng, pool)
    asked = key.replace("colour", "color") if rng.random() < 0.2 else key
    talk = single(
        ask(
            rng,
            "[remember|please remember|remember that|note that|keep in mind that|for later:||] my {k} is {v}.",
            k=asked,
            v=value,
        ),
        f"I will remember it: your {asked} is {value}.",
    )
    if rng.random() < 0.4:
        talk += filler(rng)
    return talk + single(
        ask(
            rng,
            "[what is|what's|what was|do you remember|tell me|and what is|which is|say again what is] my {k}?",
            k=asked,
        ),
        f"Your {asked} is {value}.",
    )


def filler(rng: Random) -> Talk:
    """A short exchange in between, so that the reference reaches further back."""
    roll = rng.random()
    if roll < 0.35:
        a, op, b = draw(rng)
        return single(question(rng, a, op, b), solve(a, op, b))
    if roll < 0.55:
        name, asked, items = topic_of(rng)
        n = rng.randint(3, 5)
        return single(
            ask(rng, "[list|name|give me] {n} {t}.", n=str(n), t=asked),
            list_answer(name, items, min(n, len(items)), numbered=False),
        )
    if roll < 0.75:
        word = w.some(rng, w.NOUNS)
        return single(ask(rng, "[say|repeat|write]: {t}", t=word), word)
    return single(ask(rng, THANKS), WELCOME)
