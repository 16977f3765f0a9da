"""Repeating a text and rewriting it by simple rules."""

from random import Random

from . import words as w
from .lists import render
from .phrase import Talk, article, ask, clause, join_and, sentence, single, slots_for, tell

_TEXTS = w.TEXTS["copying"]


class Quotes:
    """Foreign sentences to copy: the first sentences of docstrings of the standard library."""

    def __init__(self, sentences: list[str]) -> None:
        self.sentences = sentences
        self.words = list(dict.fromkeys(word for text in sentences for word in text.split()))
        w.learn(self.words)

    def pick(self, rng: Random) -> str:
        return rng.choice(self.sentences) if self.sentences else sentence(rng)


def _bit(rng: Random) -> str:
    """A piece of something technical, or a word."""
    word, n = w.invented(rng), rng.randint(0, 99)
    return rng.choice(
        (
            word,
            word,
            word.capitalize() + rng.choice((",", ".", "", "")),
            f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}",
            f"{word}=={rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
            f"--{word}",
            f"{rng.choice('ABCDEFGH')}{n}",
            f"0x{rng.randrange(65536):x}",
            f"{word}.{rng.choice(('txt', 'py', 'org', 'com'))}",
            f"{n},",
            str(n * n),
        )
    )


def scrap(rng: Random, quotes: Quotes | None = None) -> str:
    """A text without sense: copying must not depend on knowing the words."""
    kind = rng.randrange(8 if quotes and quotes.words else 5)
    if kind == 0:
        alphabet = "abcdefghijklmnopqrstuvwxyz"
        words = [
            "".join(rng.choices(alphabet, k=rng.randint(2, 7))) for _ in range(rng.randint(1, 6))
        ]
        return " ".join(words)
    if kind == 1:
        alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
        return "".join(rng.choices(alphabet, k=rng.randint(4, 20)))
    if kind == 2:
        return " ".join(str(rng.randint(0, 9999)) for _ in range(rng.randint(2, 9)))
    if quotes and kind == 5:
        return " ".join(_bit(rng) for _ in range(rng.randint(2, 9)))
    if quotes and kind > 4:
        return " ".join(rng.choices(quotes.words, k=rng.randint(3, 30)))
    pool = w.NOUNS + w.ADJECTIVES + w.CITIES + w.NAMES + w.HOBBIES + w.THINGS
    return (", " if kind == 3 else " ").join(rng.sample(pool, rng.randint(2, 14)))


def passage(rng: Random, quotes: Quotes) -> str:
    roll = rng.random()
    if roll < 0.35:
        return sentence(rng)
    if roll < 0.50:
        return " ".join(sentence(rng) for _ in range(rng.randint(2, 3)))
    if roll < 0.75:
        return quotes.pick(rng)
    return scrap(rng, quotes)


def repeat(rng: Random, quotes: Quotes) -> Talk:
    text = passage(rng, quotes)
    shown = rng.choice((text, text, f'"{text}"'))
    if rng.random() < 0.15 and len(text) < 80:
        n = rng.randint(2, 4)
        form = rng.choice(_TEXTS["times"])
        form = form.replace("TIMES", {2: "twice", 3: "three times", 4: "four times"}[n])
        request = ask(rng, form, t=f'"{text}"' if '"' not in text else text)
        return single(request, "\n".join([text] * n))
    return single(ask(rng, _TEXTS["repeat"], t=shown), text)


def _swap_word(rng: Random, quotes: Quotes) -> tuple[str, str]:
    before = quotes.pick(rng) if rng.random() < 0.3 else sentence(rng)
    tokens = before.split(" ")
    at = rng.randrange(len(tokens))
    old = tokens[at].strip(".,()'")
    if not old.isalnum() or rng.random() < 0.5:
        # Mostly names and things are exchanged, seldom small words.
        at = max(range(len(tokens)), key=lambda i: len(tokens[i]) + 4 * rng.random())
        old = tokens[at].strip(".,()'")
    pools = (w.NAMES, w.CITIES, w.DAYS) if old[:1].isupper() else (w.NOUNS, w.ADJECTIVES, w.THINGS)
    new = w.some(rng, rng.choice(pools))
    after = " ".join(t.replace(old, new) if t.strip(".,()'") == old else t for t in tokens)
    form = rng.choice(_TEXTS["swap"])
    mark = '"' if rng.random() < 0.25 else ""
    return ask(rng, form, o=f"{mark}{old}{mark}", n=f"{mark}{new}{mark}", t=before), after


def _tense(rng: Random) -> tuple[str, str]:
    subject, rest, (base, third, past) = clause(rng)
    now, then = f"{subject} {third} {rest}.", f"{subject} {past} {rest}."
    low = subject if subject.split()[0] in w.NAMES else subject[0].lower() + subject[1:]
    form, given, answer = (
        ("past", now, then),
        ("present", then, now),
        ("future", now, f"{subject} will {base} {rest}."),
        ("question", now, f"Does {low} {base} {rest}?"),
        ("negative", now, f"{subject} does not {base} {rest}."),
    )[rng.randrange(5)]
    return ask(rng, _TEXTS[form], t=given), answer


def order(rng: Random) -> str:
    return article(tell(rng, rng.choice(_TEXTS["orders"]), **slots_for(rng)))


def _polite(rng: Random) -> tuple[str, str]:
    text = order(rng)
    shown = text[0].upper() + text[1:] + rng.choice((".", "!", ""))
    return ask(rng, _TEXTS["polite"], t=shown), f"Could you please {text}?"


def some_items(rng: Random) -> list[str]:
    pools = (w.NOUNS, w.NAMES, w.CITIES, w.FOODS, w.COLOURS, w.THINGS, w.HOBBIES, w.COUNTRIES)
    pools += (w.JOBS,)
    roll = rng.random()
    if roll < 0.55:
        pool = rng.choice(pools)
        return w.several(rng, pool, rng.randint(3, min(7, len(pool))))
    if roll < 0.8:
        return [
            f"{w.some(rng, w.ADJECTIVES)} {x}" for x in w.several(rng, w.NOUNS, rng.randint(3, 5))
        ]
    return [order(rng) for _ in range(rng.randint(2, 5))]


def _bullets(rng: Random) -> tuple[str, str]:
    items = some_items(rng)
    numbered = rng.random() < 0.35
    given = rng.choice((join_and(items), ", ".join(items), "\n".join(items), "; ".join(items)))
    request = ask(rng, _TEXTS["numbered" if numbered else "bullets"], t=given)
    return request, render(items, numbered=numbered)


def _join(rng: Random) -> tuple[str, str]:
    items = some_items(rng)
    return ask(rng, _TEXTS["join"], t=render(items, numbered=False)), join_and(items)


def _capital(rng: Random) -> tuple[str, str]:
    text = sentence(rng)
    broken = text.rstrip(".")
    names = [t.strip(".,") for t in text.split()[1:] if t[:1].isupper()]
    known = (*w.NAMES, *w.CITIES, *w.DAYS, *w.MONTHS)
    if rng.random() < 0.5 and all(name in known for name in names):
        broken = broken.lower()
    broken = broken[0].lower() + broken[1:]
    return ask(rng, _TEXTS["capital"], t=broken), text


def _first_last(rng: Random) -> tuple[str, str]:
    items = some_items(rng)
    given = ", ".join(items)
    if rng.random() < 0.5:
        word = rng.choice(items)
        left = ", ".join(x for x in items if x != word)
        return ask(rng, _TEXTS["remove"], o=word, t=given), left
    extra = rng.choice(some_items(rng))
    return ask(rng, _TEXTS["append"], o=extra, t=given), f"{given}, {extra}"


def drill(rng: Random, quotes: Quotes) -> Talk:
    """Bare copying of nonsense, once or several times: what copying is learned from fastest."""
    text = scrap(rng, quotes)
    talk = single(ask(rng, _TEXTS["drill"], t=text), text)
    while rng.random() < 0.4:
        if rng.random() < 0.5:
            text = scrap(rng, quotes)
            talk += single(ask(rng, _TEXTS["following"], t=text), text)
        else:
            talk += single(ask(rng, _TEXTS["again"]), text)
    return talk


def rewrite(rng: Random, quotes: Quotes) -> Talk:
    if rng.random() < 0.33:
        return single(*_swap_word(rng, quotes))
    makers = (_tense, _polite, _bullets, _join, _capital, _first_last)
    return single(*rng.choices(makers, (5, 1.6, 2.6, 0.8, 2, 2.4))[0](rng))
