"""Finding a name, a date, an address, a number or a place in a short text."""

import re
from random import Random

from . import words as w
from .facts import facts
from .phrase import Talk, article, ask, clause, expand, fill, sentence, single

# Sentences that carry facts; the slots name the facts.
_CARRIERS: list[str] = [
    "{person} [lives|works|was born|studied|stayed] in {city}.",
    "[The meeting|The party|The concert|The exam|The talk|The lesson|The visit|The appointment] is on {date} at {time}.",
    "[You can reach|Please write to|Write to|Contact|Send a mail to] {person} at {email}[||| today| soon| before {day}| in {month}].",
    "[My|Her|His|Our|The] [email|email address|address] is {email}.",
    "[Call|Phone|Please call|You can call] {person} [on|at] {phone}[||| tonight| today| before noon| at once| on {day}].",
    "The [phone number|number] of [the office|the shop|the hotel] is {phone}.",
    "The {item} costs {price} euros.",
    "{person} [paid|spent] {price} euros [for|on] a {item}.",
    "[Order|Parcel|Invoice|Ticket] number {code} [is ready|has arrived|was sent|is late].",
    "[Your|The] order number is {code}.",
    "{person} is {age} years old.",
    "{person} works as a {job}.",
    "{person} arrives on {date}[|| from {town}| with the {item}].",
    "[Hi|Hello|Hey], it's {person}, [call me|phone me] on {phone}[| tonight| please| today|, thanks].",
    "[Dear team|Hello all], please send the {item} to {email}[| before {day}| today| in {month}].",
    "[Invoice|Bill|Parcel|Room] {n} was [paid|booked|sent|ordered] by {person}[| in {month}| on {day}| yesterday].",
    "{person} [is|was] {age} years old and lives in {town}.",
    "{person} [works|worked] as a {job} in {city}.",
    "[We meet|See you|Let us meet|I will wait] at the {place} at {time}.",
    "The train to {city} leaves at {time}.",
    "The flight to {city} is on {date}.",
]

_SECOND = re.compile(r"\[[^\[\]]*\{(?:day|month|town)\}[^\[\]]*\]")

_QUESTIONS: dict[str, tuple[str, str]] = {
    "person": (
        "[what is the name|which name is mentioned|who is mentioned|find the name|extract the name|who is it about|"
        "what name is given|who is named|get the name|give me the name|which person is mentioned]",
        "The name is {v}.",
    ),
    "city": (
        "[which city is mentioned|what is the city|find the city|extract the city|which city is it|name the city|"
        "what city is named|get the city|give me the city|which place is mentioned]",
        "The city is {v}.",
    ),
    "date": (
        "[what is the date|which date is mentioned|find the date|extract the date|on which date|what date is given|"
        "get the date|on what day|give me the date|which day is it]",
        "The date is {v}.",
    ),
    "time": (
        "[at what time|what is the time|what time is given|find the time|extract the time|which time is mentioned|"
        "get the time|give me the time|when exactly]",
        "The time is {v}.",
    ),
    "email": (
        "[what is the email address|find the email address|extract the email|extract the email address|"
        "which email is mentioned|what is the email|get the email|give me the email address|pull out the email|"
        "what's the e-mail address|find the mail address]",
        "The email address is {v}.",
    ),
    "phone": (
        "[what is the phone number|find the phone number|extract the phone number|which number can I call|"
        "get the phone number|give me the phone number|what's the telephone number|pull out the phone number]",
        "The phone number is {v}.",
    ),
    "price": (
        "[what is the price|how much does it cost|find the price|extract the price|what does it cost|get the price|"
        "how much was paid|how many euros|give me the price|how much is it]",
        "The price is {v} euros.",
    ),
    "code": (
        "[what is the order number|find the number|extract the order number|which order number is mentioned|"
        "get the order number|give me the order number|what's the number of the order|find the order number]",
        "The number is {v}.",
    ),
    "age": (
        "[how old is the person|what is the age|find the age|extract the age|which age is mentioned|get the age|"
        "give me the age|how old]",
        "The age is {v}.",
    ),
    "job": (
        "[what is the job|which job is mentioned|find the job|extract the job|what is the profession|get the job|"
        "what does the person do|give me the job]",
        "The job is {v}.",
    ),
}

_ASIDES = (
    "The weather was fine.|Thank you very much.|Please do not be late.|It was a long day.|Nobody was surprised.|"
    "The door was open.|Everything went well.|I hope you are well.|There is still some time.|It is not urgent."
).split("|")


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
    carriers = rng.sample(_CARRIERS, len(_CARRIERS))
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
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(_ASIDES))
    return " ".join(chosen), {k: known[k] for k in used}


def _one(rng: Random) -> Talk:
    want = rng.choice(list(_QUESTIONS))
    text, known = story(rng, want)
    question, answer = _QUESTIONS[want]
    form = rng.choice(
        (
            question
            + " in [this text|the text|this|this message|the following text|this sentence|the sentence]: {t}",
            question + " in [this text|the text|this message|the following|]:\n{t}",
            "{t}\n" + question + "?",
            "{t} " + question + "?",
            "[read this|here is a text|text|consider this]: {t}\n" + question + "?",
            question + ": {t}",
            "from [this text|this message|the text], " + question + ": {t}",
        )
    )
    shown = f'"{text}"' if rng.random() < 0.2 else text
    return single(ask(rng, form, t=shown), fill(answer, {"v": known[want]}))


def _missing(rng: Random) -> Talk:
    want = rng.choice(("email", "phone", "date", "price", "age", "city"))
    while True:
        text, known = story(rng)
        if want not in known:
            break
    noun = {"email": "email address", "phone": "phone number", "city": "city"}.get(want, want)
    request = ask(rng, _QUESTIONS[want][0] + " in [this text|the text|this message]: {t}", t=text)
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
    joined = ", ".join(values[:-1]) + " and " + values[-1]
    text = fill(
        expand(
            rng,
            {
                "names": "[{v} went to the {place}|{v} played {hobby}|The guests were {v}|I met {v} at the {place}|{v} like {hobby}|"
                "The {place} belongs to {v}|On {day} we saw {v}].",
                "cities": "[We travelled to {v}|The train stops in {v}|She has lived in {v}|There are offices in {v}|He flew to {v}].",
                "numbers": "[The numbers are {v}|The results were {v}|The rooms {v} are free|The buses {v} stop here|I counted {v} of them].",
            }[kind],
        ),
        {
            "v": joined,
            "place": w.some(rng, w.PLACES),
            "hobby": w.some(rng, w.HOBBIES),
            "day": rng.choice(w.DAYS),
        },
    )
    if kind == "names" and rng.random() < 0.5:
        _, rest, (_, _, past) = clause(rng)
        text = f"{joined} {past} {rest}."
    if rng.random() < 0.3:
        text += " " + rng.choice(_ASIDES)
    form = rng.choice(
        (
            "[list|find|extract|give me|name|write down|get] [all|all the|the|] {k} [in|from|mentioned in] [this text|the text|this|"
            "this sentence|the following]: {t}",
            "{t}\n[which|what] {k} are [mentioned|in the text|named]?",
            "[which|what] {k} are [mentioned|named] [here|in this text]: {t}",
        )
    )
    return single(ask(rng, form, k=kind, t=text), "\n".join(f"- {v}" for v in values))


def _reading(rng: Random) -> Talk:
    """Who, where and what questions about plain sentences."""
    name, other = w.several(rng, w.NAMES, 2)
    noun, adj, place, city = (
        w.some(rng, w.NOUNS),
        w.some(rng, w.ADJECTIVES),
        w.some(rng, w.PLACES),
        w.some(rng, w.CITIES),
    )
    things, n, hobby, day = (
        w.some(rng, w.THINGS),
        str(rng.randint(2, 99)),
        w.some(rng, w.HOBBIES),
        rng.choice(w.DAYS),
    )
    text, question, answer = rng.choice(
        (
            (
                f"{name} went to the {place} with {other}.",
                "[who went with {name}|who was with {name}]?",
                other,
            ),
            (
                f"{name} went to the {place} with {other}.",
                "[where did {name} go|where did they go|where did {name} and {other} go]?",
                f"To the {place}",
            ),
            (
                f"{name} bought {n} {things} at the {place}.",
                "[how many {things} did {name} buy|how many {things} are there|how many {things}]?",
                f"{n} {things}",
            ),
            (
                f"{name} bought {n} {things} at the {place}.",
                "[what did {name} buy]?",
                f"{n} {things}",
            ),
            (
                f"{name} bought {n} {things} at the {place}.",
                "[where did {name} buy the {things}|where was {name}]?",
                f"At the {place}",
            ),
            (
                f"{name} likes {hobby} and {other} likes music.",
                "[what does {name} like]?",
                hobby[0].upper() + hobby[1:],
            ),
            (
                f"{name} {w.some(rng, w.SURNAMES)} is {n} years old and lives in {city}.",
                "[how old is {name}|what is the age of {name}|what age is {name}|tell me how old {name} is]?",
                f"{name} is {n} years old",
            ),
            (
                f"{name} lives in {city}, but {other} lives in Rome.",
                "[where does {name} live|in which city does {name} live]?",
                f"In {city}",
            ),
            (
                f"{name} gave the {noun} to {other}.",
                "[who has the {noun} now|who got the {noun}|to whom did {name} give the {noun}]?",
                other,
            ),
            (
                f"{name} gave the {noun} to {other}.",
                "[who gave the {noun} away|who had the {noun}|who gave {other} the {noun}]?",
                name,
            ),
            (
                f"The {noun} of {name} is {adj}.",
                "[whose {noun} is {adj}|who has a {adj} {noun}]?",
                name,
            ),
            (
                f"{name} lost the {adj} {noun} on {day}.",
                "[when did {name} lose the {noun}|on which day was that|when was that]?",
                f"On {day}",
            ),
            (
                f"{name} lost the {adj} {noun} on {day}.",
                "[what did {name} lose]?",
                f"The {adj} {noun}",
            ),
            (
                f"{name} lost the {adj} {noun} on {day}.",
                "[who lost the {noun}|who lost something]?",
                name,
            ),
        )
    )
    text = article(text)
    if rng.random() < 0.4:
        text = rng.choice((f"{text} {sentence(rng)}", f"{rng.choice(_ASIDES)} {text}"))
    form = rng.choice(("{t} " + question, "{t}\n" + question, "[read this|text]: {t}\n" + question))
    slots = {"t": text, "name": name, "other": other, "noun": noun, "adj": adj, "things": things}
    return single(ask(rng, form, **slots), answer + ".")


def extract(rng: Random) -> Talk:
    return rng.choices((_one, _several, _reading, _missing), (6, 2, 3, 0.7))[0](rng)
