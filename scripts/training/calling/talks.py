"""Conversations with calls: tools that are offered, tasks of one and of several, and what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from demo.phrase import Talk

from . import content as c
from .form import Step, Task, Tool, talk
from .tasks import IDLE, KINDS, Choice, Fact, knower, known, tool

_FILE = re.compile(r"^(?:\[FILE\] )?([^\[\s/]+)(?:\t.*)?$", re.MULTILINE)
_DENIED = "The user did not allow this call."


@dataclass(frozen=True)
class Example:
    """Tools that are offered, and tasks that follow each other."""

    kind: str
    tools: tuple[Tool, ...]
    tasks: tuple[Task, ...]

    def talk(self, system: str = "") -> Talk:
        return talk(self.tools, self.tasks, system)


class _Offer:
    """The tools of one conversation; no two have a name in common."""

    def __init__(self, of: Choice) -> None:
        self.of, rng = of, of.rng
        self.tools: dict[str, Tool] = {}
        self.facts: list[Fact] = []
        wanted = rng.sample(list(KINDS), rng.randint(1, 4)) if rng.random() < 0.88 else []
        for kind in wanted:
            made = tool(of, kind)
            near = self.tools.get({"list": "read", "read": "list"}.get(kind, ""))
            if near is not None and rng.random() < 0.8:  # one server has both
                server, mark, _ = near.name.rpartition("__")
                made = replace(made, name=server + mark + made.name.rpartition("__")[2])
            if made.name not in {t.name for t in self.tools.values()}:
                self.tools[kind] = made
        for _ in range(rng.choice((0, 0, 1)) if wanted else rng.randint(1, 3)):
            fact = knower(of)
            subjects = {f.subject for f in self.facts}
            if fact.subject not in subjects and fact.tool.name not in {t.name for t in self.all}:
                self.facts.append(fact)

    @property
    def all(self) -> list[Tool]:
        return [*self.tools.values(), *(fact.tool for fact in self.facts)]

    def task(self) -> Task:
        """A task of one call."""
        at = self.of.rng.randrange(len(self.all))
        if at < len(self.tools):
            kind = list(self.tools)[at]
            return KINDS[kind](self.of, self.tools[kind])
        return known(self.of, self.facts[at - len(self.tools)])

    def shuffled(self) -> tuple[Tool, ...]:
        rng, found = self.of.rng, self.all
        for idle in rng.sample(IDLE, rng.choice((0, 0, 0, 0, 1))):
            servers = [t.name.partition("__")[0] for t in found if "__" in t.name]
            server = f"{rng.choice(servers)}__" if servers and rng.random() < 0.8 else ""
            found.append(replace(idle, name=server + idle.name))
        rng.shuffle(found)
        return tuple(found)


def _both(rng: Random, first: Task, second: Task) -> Task:
    begun = first.question.rstrip("?.!")
    joined = rng.choice((", and ", "? And ", "? Then: ", " and ", "? "))
    asked = second.question
    if joined[0] != "?" and rng.random() < 0.7:
        asked = asked[0].lower() + asked[1:]
    question = begun + joined + asked
    return Task(question, (*first.steps, *second.steps), f"{first.answer}\n{second.answer}")


def _first_file(of: Choice, lists: Tool, reads: Tool) -> Task:
    """A call whose argument is in the result of the one before."""
    place = c.folder(of.rng)
    listing = KINDS["list"](of, lists)
    text = c.text(of.rng)
    name = _FILE.search(listing.steps[0].result)
    if name is None:
        return _first_file(of, lists, reads)
    found = f"{place}/{name.group(1)}"
    question = of.wording("first_file", p=place)
    steps = (
        replace(listing.steps[0], arguments={next(iter(lists.parameters)): place}),
        Step(reads, {next(iter(reads.parameters)): found}, "\n".join(text.lines)),
    )
    said = "\n".join(text.lines)
    return Task(question, steps, f"{found} says: {said}")


def _failed(rng: Random, task: Task) -> Task:
    """The task, whose last call fails."""
    *before, last = task.steps
    given = str(next(iter(last.arguments.values())))
    if rng.random() < 0.3:
        return Task(
            task.question, (*before, replace(last, result=_DENIED)), "You did not allow this call."
        )
    why = rng.choice(
        (
            f"ENOENT: no such file or directory, open '/{c.word(rng)}/{given}'",
            f"Error: there is no '{given}' in the folder",
            f"Error executing tool {last.tool.name}: {given} was not found",
            f"Error: {c.line(rng)}",
            f"Error: the server {c.word(rng)} is not there any more",
            f"Access denied - path outside allowed directories: {given}",
        )
    )
    return Task(task.question, (*before, replace(last, result=why)), f"That failed: {why}")


def example(of: Choice) -> Example:
    """A conversation."""
    rng = of.rng
    while True:
        offer = _Offer(of)
        kind = rng.random()
        if kind < 0.12 and {"list", "read"} <= offer.tools.keys():
            tasks, name = [_first_file(of, offer.tools["list"], offer.tools["read"])], "chain"
        elif kind < 0.36 and len(offer.all) > 1:
            first, second = offer.task(), offer.task()
            if first.steps[0].tool is second.steps[0].tool and rng.random() < 0.8:
                continue
            tasks, name = [_both(rng, first, second)], "two"
        elif kind < 0.44:
            tasks, name = [_failed(rng, offer.task())], "failed"
        elif kind < 0.52:
            tasks, name = [offer.task(), offer.task()], "turns"
        else:
            tasks, name = [offer.task()], "one"
        return Example(name, offer.shuffled(), tuple(tasks))


_SYSTEMS = ("You are a helpful assistant.", "Be brief.", "Answer from what the tools find.")


def talks(seed: int) -> Iterator[Talk]:
    """Endless conversations to train on."""
    rng = Random(seed)
    while True:
        system = rng.choice(_SYSTEMS) if rng.random() < 0.08 else ""
        yield example(Choice(rng)).talk(system)
