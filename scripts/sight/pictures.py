"""Drawn pictures and what can be asked about them: shapes, colours, counts, places, digits.

A scene is a number: pictures for training have even ones, held-out ones odd ones, and some
combinations of shape and colour are in held-out scenes alone (`HELD_OUT`).
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 64
SHAPES = ("circle", "square", "triangle")
COLOURS = {
    "red": (220, 40, 40),
    "blue": (40, 70, 220),
    "green": (40, 160, 60),
    "yellow": (240, 210, 40),
    "black": (20, 20, 20),
}
NAMES = tuple(COLOURS)
NUMBERS = ("no", "one", "two", "three", "four")
PLACES = ("top left", "top right", "bottom left", "bottom right", "middle")
HELD_OUT = {("circle", "green"), ("square", "red"), ("triangle", "blue")}
"""Combinations that no picture for training has."""


@dataclass(frozen=True)
class Scene:
    """What a picture shows: equal shapes, or a digit."""

    shape: int
    """Index of SHAPES; -1: a digit."""
    colour: int
    count: int
    place: int
    """Index of PLACES, of a single shape or a digit."""
    digit: int
    """-1: none."""


def scene(number: int) -> Scene:
    """The scene of a number."""
    rng = np.random.default_rng(number)
    held_out = number % 2 == 1
    colour = int(rng.integers(len(NAMES)))
    if rng.random() < 0.3:
        return Scene(-1, colour, 1, int(rng.integers(5)), int(rng.integers(10)))
    while True:
        shape, colour = int(rng.integers(len(SHAPES))), int(rng.integers(len(NAMES)))
        if held_out or (SHAPES[shape], NAMES[colour]) not in HELD_OUT:
            break
    count = 1 if rng.random() < 0.4 else int(rng.integers(2, 5))
    return Scene(shape, colour, count, int(rng.integers(5)), -1)


def draw(found: Scene, number: int, side: int = SIDE) -> Image.Image:
    """A picture of a scene, drawn three times as large and made smaller."""
    rng, big = np.random.default_rng(number + (1 << 40)), 3 * side
    shade = int(rng.integers(225, 256))
    image = Image.new("RGB", (big, big), (shade, shade, int(rng.integers(225, 256))))
    pen = ImageDraw.Draw(image)
    base = np.array(COLOURS[NAMES[found.colour]]) + rng.integers(-18, 19, 3)
    colour = tuple(int(n) for n in base.clip(0, 255))
    if found.count > 1:
        cells = [(x, y) for x in range(3) for y in range(3)]
        for at in rng.choice(9, found.count, replace=False):
            x, y = cells[at]
            _shape(
                pen, found.shape, colour, (x + 0.5) * big / 3, (y + 0.5) * big / 3, rng, 0.11, big
            )
        return image.resize((side, side), Image.Resampling.BILINEAR)
    x, y = [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75), (0.5, 0.5)][found.place]
    x, y = (x + rng.normal(0, 0.02)) * big, (y + rng.normal(0, 0.02)) * big
    if found.digit < 0:
        _shape(pen, found.shape, colour, x, y, rng, 0.17, big)
    else:
        font = ImageFont.load_default(size=int(big * rng.uniform(0.38, 0.48)))
        pen.text((x, y), str(found.digit), fill=colour, font=font, anchor="mm")
    return image.resize((side, side), Image.Resampling.BILINEAR)


def _shape(pen, shape, colour, x, y, rng, size, big) -> None:  # noqa: ANN001
    r = big * size * rng.uniform(0.8, 1.15)
    x, y = x + rng.normal(0, 0.01) * big, y + rng.normal(0, 0.01) * big
    if shape == 0:
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        return
    corners = (4, 3)[shape - 1]
    start = (np.pi / 4, -np.pi / 2)[shape - 1] + rng.normal(0, 0.06)
    angles = start + 2 * np.pi * np.arange(corners) / corners
    points = zip(x + 1.28 * r * np.cos(angles), y + 1.28 * r * np.sin(angles), strict=True)
    pen.polygon([(float(a), float(b)) for a, b in points], fill=colour)


def asked(found: Scene, rng: np.random.Generator) -> tuple[str, str]:
    """A question about a scene, and its answer."""
    colour = NAMES[found.colour]
    if found.digit >= 0:
        options = [
            ("What is in this picture?", f"The picture shows the digit {found.digit} in {colour}."),
            ("Which digit is this?", f"It is a {found.digit}."),
            ("What does it say?", f"It says {found.digit}."),
            ("What colour is it?", f"It is {colour}."),
            ("Where is it?", f"It is in the {PLACES[found.place]}."),
        ]
    else:
        shape, n = SHAPES[found.shape], NUMBERS[found.count]
        many = shape if found.count == 1 else f"{shape}s"
        options = [
            ("What is in this picture?", f"The picture shows {n} {colour} {many}."),
            (
                "What shape is it?",
                f"It is a {shape}." if found.count == 1 else f"They are {shape}s.",
            ),
            (
                "What colour is it?",
                f"It is {colour}." if found.count == 1 else f"They are {colour}.",
            ),
            ("How many shapes are there?", f"There {'is' if found.count == 1 else 'are'} {n}."),
        ]
        if found.count == 1:
            options.append(("Where is it?", f"It is in the {PLACES[found.place]}."))
    first = rng.random() < 0.35
    return options[0] if first else options[int(rng.integers(len(options)))]
