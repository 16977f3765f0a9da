"""JSON schemas of ten kinds and tools, with a question for each, for scripts/bench grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A question whose answer has to fit a schema."""

    kind: str
    question: str
    schema: Schema


def obj(**fields: Schema) -> Schema:
    """An object of exactly these keys; those whose name ends in "_" may be missing."""
    properties = {name.rstrip("_"): value for name, value in fields.items()}
    required = [name for name in fields if not name.endswith("_")]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def s(most: int = 40) -> Schema:
    return {"type": "string", "maxLength": most}


def n(low: int = 0, high: int = 10000) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def e(*values: str) -> Schema:
    return {"enum": list(values)}


def many(of: Schema, most: int = 3) -> Schema:
    return {"type": "array", "items": of, "minItems": 1, "maxItems": most}


def of(form: str) -> Schema:
    return {"type": "string", "format": form}


def like(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


B: Schema = {"type": "boolean"}
X: Schema = {"type": "number", "minimum": 0, "maximum": 1000}
DATE = of("date")


def maybe(value: Schema) -> Schema:
    return {"anyOf": [value, {"type": "null"}]}


def either(**kinds: Schema) -> Schema:
    """One of several objects, told apart by their key "type"."""
    return {
        "anyOf": [
            {
                **value,
                "properties": {"type": {"const": name}, **value["properties"]},
                "required": ["type", *value["required"]],
            }
            for name, value in kinds.items()
        ]
    }


_TREE: Schema = {
    "$defs": {
        "node": obj(name=s(16), children_=many({"$ref": "#/$defs/node"}, 2)),
    },
    "$ref": "#/$defs/node",
}

_KINDS: dict[str, list[tuple[str, Schema]]] = {
    "records": [
        (
            "Invent a person.",
            obj(first_name=s(), last_name=s(), age=n(0, 120), email=s(), city=s()),
        ),
        ("Describe a book.", obj(title=s(), author=s(), year=n(1500, 2030), pages=n(), isbn=s(17))),
        ("Describe a film.", obj(title=s(), director=s(), year=n(1900, 2030), minutes=n(1, 400))),
        ("Describe a city.", obj(name=s(), country=s(), population=n(0, 40000000), capital=B)),
        (
            "Describe a car.",
            obj(maker=s(), model=s(), year=n(1900, 2030), electric=B, seats=n(1, 9)),
        ),
        ("Describe a bird.", obj(name=s(), latin_name=s(), wingspan_cm=n(5, 350), migrates=B)),
    ],
    "classification": [
        ("Is this review good? 'I loved it.'", obj(sentiment=e("positive", "negative", "neutral"))),
        (
            "Sort this mail: 'Your invoice is due.'",
            obj(folder=e("billing", "spam", "work", "home"), urgent=B),
        ),
        (
            "Which language is 'Guten Tag'?",
            obj(language=e("English", "German", "French", "Spanish"), sure=B),
        ),
        (
            "How hard is the task 'paint a fence'?",
            obj(difficulty=e("easy", "medium", "hard"), hours=n(1, 99)),
        ),
        (
            "Which team should fix 'the page is slow'?",
            obj(team=e("frontend", "backend", "database"), priority=e("low", "medium", "high")),
        ),
        (
            "Is 'water boils at 100 C' true?",
            obj(verdict=e("true", "false", "unknown"), confidence=n(0, 100)),
        ),
    ],
    "nested": [
        (
            "Invent a company.",
            obj(name=s(), address=obj(street=s(), city=s(), postcode=s(10)), founded=n(1800, 2030)),
        ),
        (
            "Invent a flight.",
            obj(
                number=s(8),
                departure=obj(airport=s(4), time=s(5)),
                arrival=obj(airport=s(4), time=s(5)),
            ),
        ),
        (
            "Invent a server.",
            obj(
                host=s(),
                limits=obj(cpu=n(1, 64), memory_gb=n(1, 512)),
                tls=obj(enabled=B, version=s(5)),
            ),
        ),
        (
            "Describe a football match.",
            obj(home=obj(team=s(), goals=n(0, 12)), away=obj(team=s(), goals=n(0, 12)), date=DATE),
        ),
        (
            "Invent a parcel.",
            obj(sender=obj(name=s(), city=s()), receiver=obj(name=s(), city=s()), weight_kg=X),
        ),
        (
            "Invent a course.",
            obj(
                title=s(),
                teacher=obj(name=s(), office=obj(building=s(), room=n(1, 999))),
                credits=n(1, 12),
            ),
        ),
    ],
    "lists": [
        ("Give a shopping list.", obj(items=many(obj(product=s(20), quantity=n(1, 20))))),
        ("Name three rivers.", obj(rivers=many(obj(name=s(20), length_km=n(1, 7000))))),
        ("Give steps for making tea.", obj(title=s(), steps=many(s(60), 4))),
        ("Name two inventors.", obj(people=many(obj(name=s(30), invention=s(30)), 2))),
        ("Give three tags for a text on gardens.", obj(tags=many(s(15)))),
        (
            "Make a tiny timetable.",
            obj(lessons=many(obj(day=e("Mon", "Tue", "Wed"), hour=n(8, 16), subject=s(15)))),
        ),
    ],
    "formats": [
        (
            "Give a date in 2025.",
            obj(date=DATE, weekday=e("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")),
        ),
        ("Invent a meeting.", obj(title=s(), start=of("date-time"), end=of("date-time"))),
        (
            "Invent a licence plate.",
            obj(plate=like("^[A-Z]{2}-[0-9]{4}$"), country=like("^[A-Z]{2}$")),
        ),
        (
            "Give a version.",
            obj(name=s(20), version=like("^[0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2}$")),
        ),
        ("Give a colour.", obj(name=s(15), hex=like("^#[0-9a-f]{6}$"))),
        (
            "Invent a network device.",
            obj(ip=of("ipv4"), mac=like("^([0-9a-f]{2}:){5}[0-9a-f]{2}$"), online=B),
        ),
    ],
    "optional": [
        ("Invent a contact.", obj(name=s(), phone_=s(15), email_=s(), note_=s(60))),
        ("Invent a task.", obj(title=s(), due_=DATE, done=B, assignee_=s(20))),
        ("Describe a song.", obj(title=s(), artist=s(), album_=s(), year_=n(1900, 2030))),
        (
            "Invent a pet.",
            obj(
                name=s(20),
                species=e("cat", "dog", "bird"),
                age=maybe(n(0, 40)),
                colour=maybe(s(15)),
            ),
        ),
        (
            "Invent an error report.",
            obj(code=n(100, 599), message=s(60), retry_after=maybe(n(1, 600))),
        ),
        (
            "Describe a mountain.",
            obj(name=s(), height_m=n(0, 8849), first_climbed=maybe(n(1700, 2030))),
        ),
    ],
    "alternatives": [
        ("Draw a shape.", either(circle=obj(radius=X), square=obj(side=X), line=obj(length=X))),
        (
            "Invent a payment.",
            either(card=obj(last_four=n(0, 9999)), cash=obj(currency=s(3)), bank=obj(iban=s(34))),
        ),
        (
            "Invent a game event.",
            either(move=obj(dx=n(-9, 9), dy=n(-9, 9)), say=obj(text=s()), wait=obj(turns=n(1, 9))),
        ),
        (
            "Send a message.",
            either(email=obj(to=s(), subject=s()), sms=obj(number=s(15)), post=obj(city=s())),
        ),
        (
            "Invent a sensor reading.",
            either(temperature=obj(celsius=X), light=obj(lux=n()), door=obj(open=B)),
        ),
        (
            "Give an answer or a question back.",
            either(answer=obj(text=s(80)), question=obj(text=s(80))),
        ),
    ],
    "numbers": [
        ("Add 17 and 25.", obj(left=n(), right=n(), sum=n())),
        ("Convert 10 miles to km.", obj(miles=X, kilometres=X)),
        ("Give the size of a room.", obj(width_m=X, length_m=X, height_m=X, area_m2=X)),
        ("Rate a meal.", obj(taste=n(1, 5), service=n(1, 5), price=n(1, 5), overall=n(1, 5))),
        (
            "Give the first primes.",
            obj(primes={"type": "array", "items": n(2, 99), "minItems": 4, "maxItems": 6}),
        ),
        (
            "Give the macros of an egg.",
            obj(kcal=n(0, 900), protein_g=X, fat_g=X, carbs_g=X, salt_g=X),
        ),
    ],
    "configuration": [
        (
            "Configure a web server.",
            obj(
                port=n(1, 65535),
                host=s(20),
                log_level=e("debug", "info", "error"),
                workers=n(1, 64),
                gzip=B,
            ),
        ),
        (
            "Configure a build.",
            obj(
                target=e("debug", "release"), optimise=n(0, 3), warnings_as_errors=B, jobs=n(1, 64)
            ),
        ),
        (
            "Configure a backup.",
            obj(source=s(), target=s(), every_hours=n(1, 168), keep=n(1, 30), compress=B),
        ),
        (
            "Configure a thermostat.",
            obj(day_celsius=n(10, 28), night_celsius=n(5, 22), away=B, unit=e("C", "F")),
        ),
        (
            "Configure an editor.",
            obj(theme=e("dark", "light"), font_size=n(8, 32), tab_width=n(2, 8), wrap=B),
        ),
        (
            "Configure a database.",
            obj(
                engine=e("sqlite", "postgres"),
                name=s(20),
                pool=obj(least=n(0, 9), most=n(1, 99)),
                read_only=B,
            ),
        ),
    ],
    "recursive": [
        ("Give a small family tree.", _TREE),
        (
            "Give a small menu of a website.",
            obj(title=s(20), root=obj(label=s(15), links=many(obj(label=s(15), url=s(30))))),
        ),
        (
            "Give a small folder tree.",
            {"$defs": _TREE["$defs"], **obj(drive=s(3), root={"$ref": "#/$defs/node"})},
        ),
        (
            "Give a small organisation.",
            obj(
                name=s(20),
                units=many(obj(name=s(20), teams=many(obj(name=s(20), size=n(1, 50)), 2)), 2),
            ),
        ),
        (
            "Write 1 + 2 as a tree.",
            obj(op=e("+", "-", "*"), left=obj(value=n(0, 99)), right=obj(value=n(0, 99))),
        ),
        (
            "Give a small outline.",
            obj(title=s(), sections=many(obj(heading=s(), points=many(s(40), 2)), 2)),
        ),
    ],
}

TASKS = [Task(kind, question, schema) for kind, rows in _KINDS.items() for question, schema in rows]
"""Six of each of ten kinds."""

_TOOLS: list[tuple[str, str, Schema]] = [
    (
        "get_weather",
        "What is the weather in Rome?",
        obj(city=s(30), unit=e("celsius", "fahrenheit")),
    ),
    ("send_email", "Tell Ann that I am late.", obj(to=s(40), subject=s(40), body=s(80))),
    ("set_timer", "Wake me in 10 minutes.", obj(minutes=n(1, 600), label_=s(20))),
    ("search_web", "Find news on Mars.", obj(query=s(60), results=n(1, 20))),
    (
        "convert_currency",
        "How much is 5 euro in yen?",
        obj(amount=X, source=like("^[A-Z]{3}$"), target=like("^[A-Z]{3}$")),
    ),
    (
        "create_event",
        "Put lunch into my calendar.",
        obj(title=s(), start=of("date-time"), minutes=n(5, 480)),
    ),
    ("play_music", "Play some jazz.", obj(genre_=s(15), artist_=s(30), shuffle=B)),
    ("read_file", "What is in notes.txt?", obj(path=s(60), lines_=n(1, 500))),
    ("write_file", "Save 'hello' in a.txt.", obj(path=s(60), content=s(80), append=B)),
    ("run_query", "How many users are there?", obj(sql=s(120), limit=n(1, 100))),
    (
        "book_table",
        "Book a table for two.",
        obj(restaurant=s(), people=n(1, 20), date=DATE, time=like("^[0-2][0-9]:[0-5][0-9]$")),
    ),
    (
        "translate",
        "How do I say 'thank you' in Greek?",
        obj(text=s(80), target=e("el", "fr", "de", "es")),
    ),
    ("turn_light", "It is dark in the kitchen.", obj(room=s(20), on=B, brightness=n(0, 100))),
    (
        "order_pizza",
        "I would like a pizza.",
        obj(size=e("small", "medium", "large"), toppings=many(s(12))),
    ),
    ("get_stock", "How is ACME doing?", obj(symbol=like("^[A-Z]{1,5}$"), days=n(1, 365))),
    (
        "find_route",
        "How do I get to the station?",
        obj(origin=s(), destination=s(), mode=e("walk", "bike", "car", "train")),
    ),
    ("add_todo", "I must buy milk.", obj(text=s(60), priority=e("low", "normal", "high"))),
    ("calculate", "What is 12 times 7?", obj(expression=s(40))),
    ("define_word", "What does 'terse' mean?", obj(word=s(20), language=e("en", "de"))),
    (
        "control_drone",
        "Fly up a bit.",
        either(move=obj(x=n(-9, 9), y=n(-9, 9), z=n(-9, 9)), land=obj(now=B)),
    ),
]

TOOLS = [
    Task(
        "tools",
        f"{question} Call a tool.",
        obj(name={"const": name}, arguments=parameters),
    )
    for name, question, parameters in _TOOLS
]
"""One call for each of twenty tools, as the object of name and arguments."""
