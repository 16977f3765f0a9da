"""Finding a name, a date, an address, a number or a place in a short text."""

import re
from random import Random

from . import words as w
from .facts import facts
from .lists import render
from .phrase import Talk, article, ask, clause, expand, fill, join_and, sentence, single

_TEXTS = w.TEXTS["extract"]
_QUESTIONS = _TEXTS["questions"]
_SECOND = re.compile(r"\[[^\[\]]*\{(?:day|month|town)\}[^\[\]]*\]")


def story(rng: Random, want: str | None = None) -> tuple[str, dict[str, str]]:
    """A short text and the facts that it states; each kind of fact occurs once."""
    known = facts(rng)
    aside = {
        "day": rng.choice(w.DAYS),
        "month": rng.choice(w.MONTHS),
        "town": w.some(rng, w.CITIES),
        "n": str(rng.randint(1, 9999)),
    }
    chosen: list[str] = []
    used: set[str] = set()
    carriers = rng.sample(_TEXTS["carriers"], len(_TEXTS["carriers"]))
    if want in (None, "date", "city"):
        # A second day or town in the text would make the question ambiguous.
        carriers = [c for c in (_SECOND.sub("", c) for c in carriers) if "{town}" not in c]
    if want:
        carriers.sort(key=lambda c: "{" + want + "}" not in c)
    for template in carriers:
        carrier = template
        slots = {s for s in _QUESTIONS if "{" + s + "}" in carrier}
        if used & slots - {"person"}:
            continue
        if "person" in used & slots:
            carrier = carrier.replace(
                "{person}", rng.choice(("He", "She")) if carrier.startswith("{person}") else "us"
            )
        chosen.append(article(fill(expand(rng, carrier), {**known, **aside})))
        used |= slots
        if len(chosen) == rng.choice((1, 2, 2, 3, 4)) or len(chosen) == 4:
            break
    if not any(part.startswith(("He ", "She ")) for part in chosen):
        rng.shuffle(chosen)
    if rng.random() < 0.25:
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(_TEXTS["asides"]))
    return " ".join(chosen), {k: known[k] for k in used}


def _one(rng: Random) -> Talk:
    want = rng.choice(list(_QUESTIONS))
    text, known = story(rng, want)
    question, answer = _QUESTIONS[want]
    form = rng.choice(_TEXTS["one"]).replace("QUESTION", question)
    shown = f'"{text}"' if rng.random() < 0.2 else text
    return single(ask(rng, form, t=shown), fill(answer, {"v": known[want]}))


def _missing(rng: Random) -> Talk:
    want = rng.choice(("email", "phone", "date", "price", "age", "city"))
    while True:
        text, known = story(rng)
        if want not in known:
            break
    noun = {"email": "email address", "phone": "phone number", "city": "city"}.get(want, want)
    request = ask(rng, _QUESTIONS[want][0] + _TEXTS["missing"], t=text)
    return single(request, f"The text does not give {'an' if noun[0] in 'ae' else 'a'} {noun}.")


def _several(rng: Random) -> Talk:
    """All names, numbers or cities of a text, as a list."""
    kind = rng.choice(("names", "numbers", "cities", "names"))
    if kind == "names":
        values = w.several(rng, w.NAMES, rng.randint(2, 5))
    elif kind == "cities":
        values = w.several(rng, w.CITIES, rng.randint(2, 4))
    else:
        values = [str(x) for x in rng.sample(range(2, 500), rng.randint(2, 4))]
    joined = join_and(values)
    text = expand(rng, _TEXTS["lists"][kind])
    slots = {"place": w.some(rng, w.PLACES), "hobby": w.some(rng, w.HOBBIES)}
    text = fill(text, {"v": joined, **slots, "day": rng.choice(w.DAYS)})
    if kind == "names" and rng.random() < 0.5:
        _, rest, (_, _, past) = clause(rng)
        text = f"{joined} {past} {rest}."
    if rng.random() < 0.3:
        text += " " + rng.choice(_TEXTS["asides"])
    return single(ask(rng, _TEXTS["several"], k=kind, t=text), render(values, numbered=False))


def _reading(rng: Random) -> Talk:
    """Who, where and what questions about plain sentences."""
    name, other = w.several(rng, w.NAMES, 2)
    pools = {"noun": w.NOUNS, "adj": w.ADJECTIVES, "place": w.PLACES, "city": w.CITIES}
    slots = {"name": name, "other": other} | {k: w.some(rng, pool) for k, pool in pools.items()}
    slots |= {"things": w.some(rng, w.THINGS), "n": str(rng.randint(2, 99))}
    slots |= {"hobby": w.some(rng, w.HOBBIES), "day": rng.choice(w.DAYS)}
    slots |= {"surname": w.some(rng, w.SURNAMES)}
    slots["Hobby"] = slots["hobby"][0].upper() + slots["hobby"][1:]
    text, question, answer = rng.choice(_TEXTS["reading"]["all"])
    text = article(fill(text, slots))
    if rng.random() < 0.4:
        text = rng.choice((f"{text} {sentence(rng)}", f"{rng.choice(_TEXTS['asides'])} {text}"))
    form = rng.choice(_TEXTS["read"]).replace("QUESTION", question)
    shown = {key: slots[key] for key in ("name", "other", "noun", "adj", "things")}
    return single(ask(rng, form, t=text, **shown), fill(answer, slots) + ".")


def extract(rng: Random) -> Talk:
    return rng.choices((_one, _several, _reading, _missing), (6, 2, 3, 0.7))[0](rng)
