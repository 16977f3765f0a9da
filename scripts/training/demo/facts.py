"""Invented people and things: the facts that other kinds hide in texts or format as JSON."""

from random import Random

from . import words as w


def facts(rng: Random) -> dict[str, str]:
    person = w.some(rng, w.NAMES)
    if rng.random() < 0.5:
        person += " " + w.some(rng, w.SURNAMES)
    user = rng.choice(
        (
            person.lower().replace(" ", "."),
            person.split()[0].lower(),
            f"{w.some(rng, w.NOUNS)}{rng.randint(1, 99)}",
            rng.choice(("info", "office", "contact", "team", "hello")),
            "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 8))),
        )
    )
    day = rng.randint(1, 28)
    date = rng.choice(
        (
            f"{day} {rng.choice(w.MONTHS)}",
            f"{rng.choice(w.MONTHS)} {day}",
            f"{day} {rng.choice(w.MONTHS)} {rng.randint(1990, 2030)}",
            rng.choice(w.DAYS),
            f"{rng.randint(2000, 2030)}-{rng.randint(1, 12):02}-{day:02}",
        )
    )
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    domain = rng.choice(w.DOMAINS)
    if rng.random() < 0.65:
        ends = (".com", ".org", ".net", ".io", ".de", ".example", ".edu", ".fr", ".test")
        domain = w.some(rng, w.NOUNS) + rng.choice(ends)
    return {
        "person": person,
        "city": w.some(rng, w.CITIES),
        "date": date,
        "time": rng.choice(
            (
                f"{rng.randint(1, 12)} o'clock",
                f"{rng.randint(6, 22)}:{rng.randint(0, 59):02}",
                f"{rng.randint(6, 22)}:{rng.choice(('00', '15', '30', '45'))}",
            )
        ),
        "email": f"{user}@{domain}",
        "phone": rng.choice(
            (
                f"{rng.randint(100, 999)} {rng.randint(1000, 9999)}",
                f"{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
                f"0{rng.randint(100, 999)} {rng.randint(10000, 999999)}",
                f"+{rng.randint(10, 99)} {rng.randint(100, 999)} {rng.randint(100, 9999)}",
            )
        ),
        "price": str(rng.choice((rng.randint(2, 999), round(rng.uniform(1, 99), 2)))),
        "code": rng.choice(
            (
                str(rng.randint(100, 99999)),
                f"{rng.choice(letters)}{rng.choice(letters)}-{rng.randint(10, 9999)}",
                f"{rng.choice(letters)}{rng.randint(10, 9999)}",
            )
        ),
        "age": str(rng.randint(3, 99)),
        "job": w.some(rng, w.JOBS),
        "item": w.some(rng, w.NOUNS),
        "place": w.some(rng, w.PLACES),
    }
