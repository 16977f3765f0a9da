"""Repeating a text and rewriting it by simple rules."""

from random import Random

from . import words as w
from .phrase import PLEASE, Talk, article, ask, clause, join_and, sentence, single, slots_for, tell


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
        word = {2: "twice", 3: "three times", 4: "four times"}[n]
        request = ask(
            rng,
            PLEASE
            + rng.choice(
                (
                    "[repeat|say|write|print] [this|the following|the sentence|the text] "
                    + word
                    + ": {t}",
                    "[say|write|repeat] {t} " + word + ".",
                )
            ),
            t=f'"{text}"' if '"' not in text else text,
        )
        return single(request, "\n".join([text] * n))
    form = rng.choice(
        (
            "[repeat|copy|echo|say|write|print|quote|type] [this|the following|this text|this sentence|the following text|"
            "the sentence|exactly this|the following line|after me|what I say|my words|it back to me|]: {t}",
            "[repeat|copy|echo|print] [this|the following|this text|this sentence|the text below|the following text][|"
            " exactly| word for word| without changes]:\n[\n|]{t}",
            "[repeat|say|write|echo|copy] {t}",
            "[repeat after me|say after me|just say|say this|echo|repeat]: {t}",
            "[say|read|write|tell|repeat] [this|the following|it|these words] [back|back to me|to me|aloud|once]: {t}",
        )
    )
    return single(ask(rng, PLEASE + form, t=shown), text)


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
    form = rng.choice(
        (
            "[replace|change|swap] {o} [with|by|to|for] {n} in[ this sentence| the sentence| this text|]: {t}",
            "[replace|change] [the word |]{o} [with|by|to] {n}: {t}",
            "[rewrite|write] this with {n} instead of {o}: {t}",
            "in [this sentence|the following sentence|this text], [replace|change] {o} [with|to|by] {n}: {t}",
            "{t}\n[replace|change|please replace|now change] {o} [with|to|by] {n}.",
            "[use|put] {n} instead of {o}: {t}",
        )
    )
    quoted = rng.random() < 0.25
    mark = '"' if quoted else ""
    return ask(rng, form, o=f"{mark}{old}{mark}", n=f"{mark}{new}{mark}", t=before), after


def _tense(rng: Random) -> tuple[str, str]:
    subject, rest, (base, third, past) = clause(rng)
    now, then = f"{subject} {third} {rest}.", f"{subject} {past} {rest}."
    rule = rng.randrange(5)
    if rule == 0:
        form = "[put|write|rewrite|change|turn|set] [this|this sentence|the sentence|it|the following] [in|into|to] the past[ tense|]: {t}"
        return ask(rng, PLEASE + form, t=now), then
    if rule == 1:
        form = "[put|write|rewrite|change|turn] [this|this sentence|the sentence|the following] [in|into|to] the present[ tense|]: {t}"
        return ask(rng, PLEASE + form, t=then), now
    if rule == 2:
        form = "[put|write|rewrite|change|turn] [this|this sentence|the sentence|the following] [in|into|to] the future[ tense|]: {t}"
        return ask(rng, PLEASE + form, t=now), f"{subject} will {base} {rest}."
    low = subject if subject.split()[0] in w.NAMES else subject[0].lower() + subject[1:]
    if rule == 3:
        form = "[make|turn|change|rewrite|form] [this|this sentence|the sentence|the following] [into|as|to] a question: {t}"
        return ask(rng, PLEASE + form, t=now), f"Does {low} {base} {rest}?"
    form = (
        "[make|turn] [this|this sentence|the sentence] negative: {t}",
        "[negate|deny] [this|this sentence|the sentence|the following]: {t}",
        "[write|say|give me] the opposite of: {t}",
    )
    return ask(rng, PLEASE + rng.choice(form), t=now), f"{subject} does not {base} {rest}."


_ORDERS = """close the door;open the window;send me the report;call me tomorrow;bring the {noun};buy a {adj} {noun};
wait for {name};help me with the {noun};move the {noun};give me the {adj} {noun};clean the {noun};meet me at the {place};
write to {name};show me the {noun};check the {adj} {noun};turn off the {noun};come to {city};read the letter;
answer {name};fix the {noun};tell {name} about the {noun};take the {noun} to the {place};cook {food};
leave the {noun} in the {place};pay for the {food};be quiet;sit down;hurry up""".replace(
    "\n", ""
).split(";")


def order(rng: Random) -> str:
    return article(tell(rng, rng.choice(_ORDERS), **slots_for(rng)))


def _polite(rng: Random) -> tuple[str, str]:
    text = order(rng)
    shown = text[0].upper() + text[1:] + rng.choice((".", "!", ""))
    form = (
        "[make|write|say|rewrite|phrase|put] [this|it|this sentence|the following|this request] "
        "[polite|politely|more polite|more politely|friendlier|nicer|in a polite way]: {t}"
    )
    return ask(rng, PLEASE + form, t=shown), f"Could you please {text}?"


def some_items(rng: Random) -> list[str]:
    pools = (
        w.NOUNS,
        w.NAMES,
        w.CITIES,
        w.FOODS,
        w.COLOURS,
        w.THINGS,
        w.HOBBIES,
        w.COUNTRIES,
        w.JOBS,
    )
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
    if numbered:
        form = "[make|write|turn|format|rewrite|put|show] [this|these|the following|it] [as|into|in] a numbered list: {t}"
        answer = "\n".join(f"{i}. {x}" for i, x in enumerate(items, 1))
    else:
        form = (
            "[make|write|turn|format|rewrite|put|show] [this|these|the following|it] [as|into|in] "
            "[bullet points|bullets|a bullet list|a list|a bulleted list]: {t}"
        )
        answer = "\n".join(f"- {x}" for x in items)
    return ask(rng, PLEASE + form, t=given), answer


def _join(rng: Random) -> tuple[str, str]:
    items = some_items(rng)
    form = "[join|combine|put|write|turn] [these|these lines|this list|the following] [into|in|as] [one|a single] [line|sentence]:\n{t}"
    return ask(rng, PLEASE + form, t="\n".join(f"- {x}" for x in items)), join_and(items)


def _capital(rng: Random) -> tuple[str, str]:
    text = sentence(rng)
    broken = text.rstrip(".")
    names = [t.strip(".,") for t in text.split()[1:] if t[:1].isupper()]
    known = (*w.NAMES, *w.CITIES, *w.DAYS, *w.MONTHS)
    if rng.random() < 0.5 and all(name in known for name in names):
        broken = broken.lower()
    broken = broken[0].lower() + broken[1:]
    form = (
        "[fix|correct|repair] [this|this sentence|the sentence|the punctuation|the capital letter|the following]: {t}",
        "[correct|fix] the [punctuation|capitals] in: {t}",
        "[write this correctly|correct my sentence|proofread|proofread this|what is the correct form of this]: {t}",
    )
    return ask(rng, PLEASE + rng.choice(form), t=broken), text


def _first_last(rng: Random) -> tuple[str, str]:
    items = some_items(rng)
    if rng.random() < 0.5:
        word = rng.choice(items)
        form = (
            "[remove|delete|drop|take out|leave out] {o} from [this list|the list|this|these]: {t}"
        )
        return ask(rng, form, o=word, t=", ".join(items)), ", ".join(x for x in items if x != word)
    extra = rng.choice(some_items(rng))
    form = "[add|append|put] {o} to [this list|the list|this|the end of this list]: {t}"
    return ask(rng, form, o=extra, t=", ".join(items)), ", ".join([*items, extra])


def drill(rng: Random, quotes: Quotes) -> Talk:
    """Bare copying of nonsense, once or several times: what copying is learned from fastest."""
    text = scrap(rng, quotes)
    talk = single(ask(rng, "[repeat|copy|say|echo][:|| this:] {t}", t=text), text)
    while rng.random() < 0.4:
        if rng.random() < 0.5:
            text = scrap(rng, quotes)
            talk += single(ask(rng, "[now|and now|next|then][:||,| this:] {t}", t=text), text)
        else:
            talk += single(ask(rng, "[again|once more|repeat that]"), text)
    return talk


def rewrite(rng: Random, quotes: Quotes) -> Talk:
    if rng.random() < 0.33:
        return single(*_swap_word(rng, quotes))
    makers = (_tense, _polite, _bullets, _join, _capital, _first_last)
    return single(*rng.choices(makers, (5, 1.6, 2.6, 0.8, 2, 2.4))[0](rng))
