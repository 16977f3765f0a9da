"""Synthetic pictures of shapes and digits, and what is said about them. Needs numpy and Pillow only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SHAPES = ("circle", "square", "triangle", "cross", "star")
COLOURS = {
    "red": ((255, 0, 0), (215, 40, 45)),
    "green": ((0, 128, 0), (0, 230, 0), (50, 170, 75)),
    "blue": ((0, 0, 255), (45, 90, 220)),
    "yellow": ((255, 255, 0), (240, 215, 45)),
    "orange": ((255, 165, 0), (245, 130, 30)),
    "purple": ((128, 0, 128), (145, 55, 185)),
    "black": ((0, 0, 0), (25, 25, 25)),
}
GROUNDS = {"white": 246, "grey": 150, "black": 10}
KINDS = ("one", "two", "several", "digit")
LAYOUTS = ("none", "beside", "above")
NUMBERS = ("zero", "one", "two", "three", "four", "five")
SIDE = 192
"""Pixels of a side as drawn."""


@dataclass(frozen=True)
class Thing:
    """A shape or a digit (then the name is one), its colour, and its place from 0 to 1."""

    name: str
    colour: str
    x: float
    y: float
    size: float

    @property
    def phrase(self) -> str:
        return f"{'an' if self.colour[0] in 'aeiou' else 'a'} {self.colour} {self.name}"


@dataclass(frozen=True)
class Scene:
    """What a picture shows. Of two things the first is the left or the upper one."""

    kind: str
    layout: str
    ground: str
    things: tuple[Thing, ...]

    @property
    def labels(self) -> tuple[int, ...]:
        """The answers of `HEADS`, -1 where a question makes no sense."""
        first, shapes = self.things[0], self.kind != "digit"
        second = self.things[1] if self.kind == "two" else None
        colours = tuple(COLOURS)
        return (
            KINDS.index(self.kind),
            LAYOUTS.index(self.layout),
            tuple(GROUNDS).index(self.ground),
            len(self.things),
            SHAPES.index(first.name) if shapes else -1,
            colours.index(first.colour),
            SHAPES.index(second.name) if second else -1,
            colours.index(second.colour) if second else -1,
            -1 if shapes else int(first.name),
        )


HEADS = (
    len(KINDS),
    len(LAYOUTS),
    len(GROUNDS),
    6,
    len(SHAPES),
    len(COLOURS),
    len(SHAPES),
    len(COLOURS),
    10,
)
"""Classes of each label."""


def scene(rng: Random) -> Scene:
    """A random one."""
    kind = rng.choices(KINDS, (0.3, 0.35, 0.2, 0.15))[0]
    ground = rng.choices(tuple(GROUNDS), (0.6, 0.2, 0.2))[0]
    colours = [c for c in COLOURS if c != ground]
    colour = rng.choice(colours)
    if kind == "one":
        size = rng.uniform(0.13, 0.38)
        at = (rng.uniform(size, 1 - size), rng.uniform(size, 1 - size))
        return Scene(kind, "none", ground, (Thing(rng.choice(SHAPES), colour, *at, size),))
    if kind == "digit":
        size = rng.uniform(0.2, 0.42)
        at = (rng.uniform(size, 1 - size), rng.uniform(size, 1 - size))
        return Scene(kind, "none", ground, (Thing(str(rng.randrange(10)), colour, *at, size),))
    if kind == "two":
        layout = rng.choice(LAYOUTS[1:])
        things = []
        while len({(n, c) for n, c, *_ in things}) < 2:
            things = []
            for low in (0.0, 0.5):
                size = rng.uniform(0.11, 0.21)
                along = low + rng.uniform(size + 0.01, 0.49 - size)
                across = rng.uniform(0.25, 0.75)
                at = (along, across) if layout == "beside" else (across, along)
                things.append((rng.choice(SHAPES), rng.choice(colours), *at, size))
        return Scene(kind, layout, ground, tuple(Thing(*one) for one in things))
    name, placed = rng.choice(SHAPES), []
    number, size = rng.randint(2, 5), rng.uniform(0.09, 0.13)
    while len(placed) < number:
        at = (rng.uniform(size, 1 - size), rng.uniform(size, 1 - size))
        if all(math.dist(at, other) > 2.2 * size for other in placed):
            placed.append(at)
    things = sorted((Thing(name, colour, *at, size) for at in placed), key=lambda t: (t.x, t.y))
    return Scene(kind, "none", ground, tuple(things))


def _star(points: int, inner: float, turn: float) -> list[tuple[float, float]]:
    radii = [1.0, inner] * points if inner else [1.0] * points
    step = 2 * math.pi / len(radii)
    angles = [turn - math.pi / 2 + i * step for i in range(len(radii))]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def _outline(name: str, tilt: float) -> list[tuple[float, float]]:
    if name == "square":
        return _star(4, 0, math.pi / 4 + tilt)
    if name == "triangle":
        return _star(3, 0, tilt)
    if name == "star":
        return _star(5, 0.42, tilt)
    w = 0.3
    plus = [(-w, -1), (w, -1), (w, -w), (1, -w), (1, w), (w, w)]
    plus += [(-x, -y) for x, y in plus]
    c, s = math.cos(tilt), math.sin(tilt)
    return [(c * x - s * y, s * x + c * y) for x, y in plus]


def pixels(seen: Scene, rng: Random, side: int) -> np.ndarray:
    """(side, side, 3) uint8: the picture made smaller smoothly or roughly, often with noise."""
    image = picture(seen, rng)
    if rng.random() < 0.5:
        found = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))
    else:
        step, first = SIDE // side, rng.randrange(SIDE // side)
        found = np.asarray(image)[first::step, first::step]
    noise = rng.choice((0, 3, 9))
    if noise:
        grain = np.random.default_rng(rng.getrandbits(32)).normal(0, noise, found.shape)
        found = (found + grain).clip(0, 255).astype(np.uint8)
    return found


def picture(seen: Scene, rng: Random) -> Image.Image:
    """The scene drawn, with shades and tilts of its own."""
    grey = GROUNDS[seen.ground]
    shade = [min(255, max(0, grey + rng.randint(-9, 9))) for _ in range(3)]
    image = Image.new("RGB", (SIDE, SIDE), tuple(shade))
    pen = ImageDraw.Draw(image)
    for thing in seen.things:
        base = rng.choice(COLOURS[thing.colour])
        colour = tuple(min(255, max(0, c + rng.randint(-14, 14))) for c in base)
        x, y, r = thing.x * SIDE, thing.y * SIDE, thing.size * SIDE
        if thing.name == "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        elif thing.name.isdigit():
            font = ImageFont.load_default(size=2.2 * r)
            pen.text(
                (x, y),
                thing.name,
                fill=colour,
                font=font,
                anchor="mm",
                stroke_width=rng.choice((0, 2, 4)),
                stroke_fill=colour,
            )
        else:
            tilt = rng.uniform(-0.25, 0.25)
            pen.polygon(
                [(x + r * a, y + r * b) for a, b in _outline(thing.name, tilt)], fill=colour
            )
    return image
