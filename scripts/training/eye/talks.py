"""Questions about pictures as users ask them, and the right answers."""

from __future__ import annotations

from random import Random

from demo.phrase import Talk, ask

from .scenes import NUMBERS, Scene

WHAT = (
    "[what is in|what's in|what is on|what do you see in|what can you see in|what does it show in] [this|the] [picture|image|photo]?",
    "what is in this picture?",
    "what is in this picture?",
    "[what is this|what's this|what is it|what do you see|what can you see|what is shown]?",
    "what [does this picture show|does the picture show|does this image show|is shown in this picture|is to be seen]?",
    "[describe|caption] [this|the] [picture|image].",
    "[tell me|say] what is in [this|the] [picture|image].",
)
DETAIL = (
    "[describe|explain] [this|the] [picture|image] in [detail|full sentences|more detail].",
    "[tell me|say] everything about [this|the] [picture|image].",
    "[give me|write] a [long|detailed|full] description of [this|the] [picture|image].",
)
NOTHING = "I see no picture here."
"""The answer where none is."""
_OVER, _UNDER = ("on the left", "at the top"), ("on the right", "at the bottom")


def _places(seen: Scene) -> tuple[str, str]:
    at = seen.layout == "above"
    return _OVER[at], _UNDER[at]


def caption(seen: Scene) -> str:
    """The answer to what is in a picture."""
    first = seen.things[0]
    match seen.kind:
        case "one":
            text = first.phrase
        case "two":
            one, other = _places(seen)
            text = f"{first.phrase} {one} and {seen.things[1].phrase} {other}"
        case "several":
            text = f"{NUMBERS[len(seen.things)]} {first.colour} {_plural(first.name)}"
        case _:
            text = f"the number {first.name} in {first.colour}"
    return f"{text[0].upper()}{text[1:]}."


def note(seen: Scene) -> list[str]:
    """What a scene shows, in eight words: number; colour, name and place of the first thing and of
    the second; background. Empty where there is nothing to say.
    """
    first, *others = seen.things
    places = _places(seen) if seen.kind == "two" else ("", "")
    found = [NUMBERS[len(seen.things)], first.colour, first.name, places[0].split(" ")[-1]]
    second = others[0] if seen.kind == "two" else None
    found += [second.colour, second.name, places[1].split(" ")[-1]] if second else ["", "", ""]
    return [f" {word}" if word else "" for word in (*found, seen.ground)]


def detail(seen: Scene) -> str:
    """A description in sentences."""
    first, number = seen.things[0], len(seen.things)
    if seen.kind == "digit":
        begin = f"The picture shows a number on a {seen.ground} background."
        return f"{begin} It is the number {first.name}, and its colour is {first.colour}."
    shapes = "one shape" if number == 1 else f"{NUMBERS[number]} shapes"
    begin = f"The picture shows {shapes} on a {seen.ground} background."
    if seen.kind == "one":
        return f"{begin} It is a {first.name}, and its colour is {first.colour}."
    if seen.kind == "several":
        return f"{begin} They are {_plural(first.name)}, and their colour is {first.colour}."
    one, other = (place.capitalize() for place in _places(seen))
    return f"{begin} {one} there is {first.phrase}. {other} there is {seen.things[1].phrase}."


def _plural(name: str) -> str:
    return f"{name}es" if name.endswith("s") else f"{name}s"


def questions(seen: Scene, rng: Random) -> list[tuple[str, str]]:
    """Questions about details that make sense for a scene, each with its answer."""
    first, number = seen.things[0], len(seen.things)
    picture = "[picture|image]"
    found = [
        (
            f"[what colour is|which colour has|what is the colour of] the background[| of this {picture}]?",
            f"The background is {seen.ground}.",
        ),
    ]
    if seen.kind != "two":
        thing = {"digit": "number", "one": "shape"}.get(seen.kind, "shapes")
        be, it = ("are", "They are") if seen.kind == "several" else ("is", "It is")
        found.append(
            (
                f"[what colour {be} {'they' if seen.kind == 'several' else 'it'}|what colour {be} the {thing}|which colour {be} the {thing}]?",
                f"{it} {first.colour}.",
            )
        )
        if seen.kind == "digit":
            found.append(
                (
                    f"[which number is it|what number is this|what number do you see|which digit is it|which number is in this {picture}]?",
                    f"It is a {first.name}.",
                )
            )
            return found
        what = (
            f"{it} {_plural(first.name)}." if seen.kind == "several" else f"It is a {first.name}."
        )
        found.append(
            (
                f"[which|what] shape[s|] [is it|are they|is this|do you see|is in this {picture}]?",
                what,
            )
        )
    else:
        one, other = _places(seen)
        pairs = list(zip(seen.things, (one, other), strict=True))
        rng.shuffle(pairs)
        for thing, place in pairs:
            found.append(
                (f"[what is|what's|what do you see] {place}?", f"{thing.phrase.capitalize()}.")
            )
            found.append((f"where is the {thing.colour} {thing.name}?", f"It is {place}."))
            found.append(
                (
                    f"[what colour|which colour] is the [shape|thing] {place}?",
                    f"It is {thing.colour}.",
                )
            )
    count = "There is one shape." if number == 1 else f"There are {NUMBERS[number]} shapes."
    found.append(
        (
            f"how many [shapes|things] [are there|are in this {picture}|do you see|can you count]?",
            count,
        )
    )
    return found


def talk(seen: Scene, rng: Random) -> Talk:
    """Two to four questions about one picture."""
    asked = [(ask(rng, rng.choice(WHAT)), caption(seen))] if rng.random() < 0.75 else []
    if rng.random() < 0.3:
        asked.append((ask(rng, rng.choice(DETAIL)), detail(seen)))
    others = questions(seen, rng)
    for question, answer in rng.sample(others, min(len(others), rng.randint(1, 2))):
        asked.append((ask(rng, question), answer))
    if rng.random() < 0.3:
        rng.shuffle(asked)
    return [part for q, a in asked for part in (("user", q), ("assistant", a))]
