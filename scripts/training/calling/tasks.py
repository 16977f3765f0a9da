"""Tasks of one tool each: a question, the call, its result, and the answer that quotes it.

Wordings and subjects that are held out (texts.toml) are never trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from demo import words as w
from demo.phrase import ask, expand, join_and

from . import content as c
from .content import TEXTS
from .form import Step, Task, Tool

_SUBJECTS, _HELD_SUBJECTS = TEXTS["subjects"].split(), TEXTS["held_subjects"].split()
_VERBS = "get find look_up query read check".split()


@dataclass(frozen=True)
class Choice:
    """The source of chance of a conversation, and its wordings."""

    rng: Random

    def wording(self, question: str, **slots: object) -> str:
        """A question. What it names stands mostly in quotes, as it does in the call."""
        if self.rng.random() < 0.75:
            slots |= {key: f'"{value}"' for key, value in slots.items() if key in {"p", "g"}}
        return ask(self.rng, TEXTS["questions"][question][0], **slots)


def _tool(of: Choice, servers: str, name: str, parameter: str, described: str) -> Tool:
    rng, text = of.rng, expand(of.rng, described)
    kind, server = rng.random(), ""
    if kind >= 0.1:
        server = f"{rng.choice(servers.split()) if kind < 0.94 else c.word(rng)}__"
    return Tool(server + name, {parameter: "string"}, text[0].upper() + text[1:])


def tool(of: Choice, kind: str) -> Tool:
    """A tool of one of `KINDS`."""
    given = TEXTS["tools"][kind]
    name = of.rng.choice(given["names"].split())
    parameter = of.rng.choice(given["parameters"].split())
    return _tool(of, given["servers"], name, parameter, given["described"])


def _step(tool: Tool, given: str, result: str) -> Step:
    return Step(tool, {next(iter(tool.parameters)): given}, result)


def _listed(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.folder(rng)
    found = sorted(
        {c.file_name(rng) for _ in range(rng.randint(1, 4))}
        | {f"{c.stem(rng)}/" for _ in range(rng.choice((0, 0, 1, 2)))}
    )
    question = of.wording("list", p=place)
    answer = f"{place} has {join_and([one.rstrip('/') for one in found])}."
    return Task(question, (_step(tool, place, _listing(rng, found)),), answer)


def _listing(rng: Random, found: list[str]) -> str:
    """Names of files and, with a slash behind them, folders, as servers show them."""
    kind = rng.random()
    if kind < 0.65:
        rows = [f"[DIR] {n[:-1]}" if n.endswith("/") else f"[FILE] {n}" for n in found]
    elif kind < 0.85:
        rows = [n if n.endswith("/") else f"{n}\t{rng.randint(1, 9999):,} bytes" for n in found]
    else:
        rows = found
    return "\n".join(rows)


def _read(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.path(rng)
    text = c.text(rng)
    said = "\n".join(text.lines)
    step = _step(tool, place, said)
    if rng.random() < 0.6:
        question, said = of.wording("about", p=place, k=text.key), text.line
    else:
        question = of.wording("read", p=place)
    return Task(question, (step,), f"{place} says: {said}")


def _logged(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = "." if rng.random() < 0.1 else c.folder(rng)
    commits = [(c.author(rng), c.day(rng), c.message(rng)) for _ in range(rng.choice((1, 1, 2)))]
    rows = [
        f"Commit: {c.digest(rng)}\nAuthor: {who}\nDate: {when} {rng.randint(0, 23):02}:"
        f"{rng.randint(0, 59):02}:{rng.randint(0, 59):02}+00:00\nMessage: {what}\n"
        for who, when, what in commits
    ]
    who, when, what = commits[0]
    asked, answer = (
        ("who", f"By {who}: {what}"),
        ("what", f"The last change is: {what}"),
        ("when", f"On {when}."),
    )[rng.randrange(3)]
    step = _step(tool, place, "Commit history:\n" + "\n".join(rows))
    return Task(of.wording(asked, p=place), (step,), answer)


def _fetched(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.address(rng)
    text = c.text(rng, 3)
    title = f"# {c.word(rng).capitalize()} {c.word(rng)}\n\n" if rng.random() < 0.6 else ""
    said = "\n\n".join(text.lines)
    body = title + said
    if rng.random() < 0.7:
        question, said = of.wording("page_about", p=place, k=text.key), text.line
    else:
        question = of.wording("page", p=place)
    result = f"Contents of {place}:\n{body}" if rng.random() < 0.75 else body
    return Task(question, (_step(tool, place, result),), f"The page says: {said}")


@dataclass(frozen=True)
class Fact:
    """A tool that knows one thing of whatever it is given."""

    tool: Tool
    subject: str


def knower(of: Choice) -> Fact:
    """A tool that training made up: its name and description say what it knows."""
    rng = of.rng
    subject = rng.choice(_SUBJECTS)
    while rng.random() < 0.5:
        subject = w.invented(rng)
        if subject not in _HELD_SUBJECTS and subject.isalpha() and len(subject) > 2:
            break
        subject = rng.choice(_SUBJECTS)
    parameter = rng.choice("name of item id query city person word key thing".split())
    name = rng.choice((f"{rng.choice(_VERBS)}_{subject}", subject, f"{subject}_of"))
    described = rng.choice(
        (
            f"the {subject} of something",
            f"find the {subject}",
            f"tells the {subject} of a {parameter}",
        )
    )
    return Fact(_tool(of, "data facts wiki", name, parameter, described), subject)


def known(of: Choice, fact: Fact) -> Task:
    rng = of.rng
    given = rng.choice((w.some(rng, w.NAMES), w.some(rng, w.CITIES), c.word(rng), c.stem(rng)))
    found = rng.choice(
        (
            str(rng.randint(1, 9999)),
            c.word(rng),
            w.some(rng, w.NAMES),
            f"{c.word(rng)} {c.word(rng)}",
        )
    )
    question = of.wording("fact", s=fact.subject, g=given)
    forms = (
        found,
        f"{fact.subject}: {found}",
        json.dumps({fact.subject: found}),
        f"The {fact.subject} is {found}",
    )
    answer = f"The {fact.subject} of {given} is {found}."
    return Task(question, (_step(fact.tool, given, rng.choice(forms)),), answer)


IDLE = tuple(Tool(**given) for given in TEXTS["idle"])
"""Tools that are offered and never needed."""
KINDS: dict[str, Callable[[Choice, Tool], Task]] = {
    "list": _listed,
    "read": _read,
    "log": _logged,
    "fetch": _fetched,
}
"""Tasks of tools with a form of their own; `knower` makes the others."""
