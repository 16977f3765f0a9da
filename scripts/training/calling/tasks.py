"""Tasks of one tool each: a question, the call, its result, and the answer that quotes it.

Wordings and subjects behind ``HELD`` are never trained on: they are for `judge`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from demo import words as w
from demo.phrase import ask, expand, join_and

from . import content as c
from .form import Step, Task, Tool


@dataclass(frozen=True)
class Choice:
    """What is drawn for a conversation: its source of chance, and whether it is a held-out one."""

    rng: Random
    held_words: bool = False
    """Questions in wordings that training does not have."""
    held_tools: bool = False
    """Tools whose names and subjects training does not have."""

    def wording(self, trained: str, held: str, **slots: object) -> str:
        """A question. What it names stands mostly in quotes, as it does in the call."""
        if self.rng.random() < 0.75:
            slots |= {key: f'"{value}"' for key, value in slots.items() if key in {"p", "g"}}
        return ask(self.rng, held if self.held_words else trained, **slots)

    def name(self, trained: str, held: str) -> str:
        return self.rng.choice((held if self.held_tools else trained).split())


def _server(of: Choice, usual: str) -> str:
    rng = of.rng
    kind = rng.random()
    if kind < 0.1:
        return ""
    return f"{rng.choice(usual.split()) if kind < 0.94 else c.word(rng)}__"


def _tool(of: Choice, servers: str, name: str, parameter: str, described: str) -> Tool:
    text = expand(of.rng, described)
    return Tool(_server(of, servers) + name, {parameter: "string"}, text[0].upper() + text[1:])


def lister(of: Choice) -> Tool:
    names = "list_directory list_directory list_files list_dir ls show_folder folder_contents"
    return _tool(
        of,
        "files files files docs fs notes",
        of.name(names, "enumerate_folder entries_of dir"),
        of.rng.choice("path path path folder directory".split()),
        "[get a detailed listing of all files and directories in a specified path|list files and "
        "folders below the folder that the user has opened|list the files of a folder|show what is in a directory]",
    )


def listed(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.folder(rng)
    found = sorted(
        {c.file_name(rng) for _ in range(rng.randint(1, 4))}
        | {f"{c.stem(rng)}/" for _ in range(rng.choice((0, 0, 1, 2)))}
    )
    question = of.wording(
        "[which files are in|what is in|list|list the folder|what is in the folder|show me the folder|"
        "which files are in the folder|list the files in|what files does the folder have:|show the files of] {p}?",
        "[I want to see the files in|what does the folder hold that is called|name everything in] {p}?",
        p=place,
    )
    answer = f"{place} has {join_and([one.rstrip('/') for one in found])}."
    arguments = {next(iter(tool.parameters)): place}
    return Task(question, (Step(tool, arguments, _listing(rng, found)),), answer)


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


def reader(of: Choice) -> Tool:
    names = "read_text_file read_text_file read_file read_file get_file open_file cat file_text"
    return _tool(
        of,
        "files files files docs fs notes",
        of.name(names, "text_of load_document show_text"),
        of.rng.choice("path path path file file_path".split()),
        "[read the complete contents of a file from the file system as text|read a text file, PDF or notebook "
        "of the user's folder, from first_line on|read a file|return the text of a file]",
    )


def read(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.path(rng)
    text = c.text(rng)
    if rng.random() < 0.6:
        question = of.wording(
            "[what does {p} say about [|the ]{k}|what does the file {p} say about [|the ]{k}|what is in {p} about [|the ]{k}|"
            "read {p} and tell me about [|the ]{k}|look into {p}: what about [|the ]{k}]?",
            "[I look for {k} in {p}|tell me what {p} has on [|the ]{k}|is there something about {k} in the file {p}]?",
            p=place,
            k=text.key,
        )
        said = text.line
    else:
        question = of.wording(
            "[what does {p} say|read {p}|what is in the file {p}|read the file {p}|show me the file {p}|"
            "what does the file {p} say|open {p}]?",
            "[I need the text of {p}|tell me the words in {p}|give me all of {p}]?",
            p=place,
        )
        said = "\n".join(text.lines)
    answer = f"{place} says: {said}"
    step = Step(tool, {next(iter(tool.parameters)): place}, "\n".join(text.lines))
    return Task(question, (step,), answer)


def historian(of: Choice) -> Tool:
    names = "git_log git_log git_log log history list_commits commits"
    return _tool(
        of,
        "git git git repo code",
        of.name(names, "recent_changes changelog revisions"),
        of.rng.choice("repo_path repo_path repo repository".split()),
        "[shows the commit logs|list the commits of a repository|the history of a git repository]",
    )


def logged(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = "." if rng.random() < 0.1 else c.folder(rng)
    commits = [(c.author(rng), c.day(rng), c.message(rng)) for _ in range(rng.choice((1, 1, 2)))]
    rows = [
        f"Commit: {c.digest(rng)}\nAuthor: {who}\nDate: {when} {rng.randint(0, 23):02}:"
        f"{rng.randint(0, 59):02}:{rng.randint(0, 59):02}+00:00\nMessage: {what}\n"
        for who, when, what in commits
    ]
    who, when, what = commits[0]
    kind = rng.randrange(3)
    if kind == 0:
        question = of.wording(
            "[who made the last commit in|who made the newest commit in|who changed something last in|"
            "who committed last in|who wrote the last commit in] {p}?",
            "[name the author of the newest commit of|by whom is the last change in] {p}?",
            p=place,
        )
        answer = f"By {who}: {what}"
    elif kind == 1:
        question = of.wording(
            "[what is the last commit in|what was the last change in|what is new in the repository|"
            "show me the last commit of|what changed last in] {p}?",
            "[tell me the newest change of the repository|what did they commit at last in] {p}?",
            p=place,
        )
        answer = f"The last change is: {what}"
    else:
        question = of.wording(
            "[when was the last commit in|when did somebody commit last in|what is the date of the last commit in] {p}?",
            "[on which day was the newest commit of|how old is the last commit in] {p}?",
            p=place,
        )
        answer = f"On {when}."
    step = Step(tool, {next(iter(tool.parameters)): place}, "Commit history:\n" + "\n".join(rows))
    return Task(question, (step,), answer)


def fetcher(of: Choice) -> Tool:
    return _tool(
        of,
        "web web web net pages",
        of.name(
            "fetch fetch fetch get_page read_page open_url download_page", "visit page_text browse"
        ),
        of.rng.choice("url url url address".split()),
        "[fetches a URL from the internet and optionally extracts its contents as markdown|read a page of the web|"
        "get the text of a web page]",
    )


def fetched(of: Choice, tool: Tool) -> Task:
    rng = of.rng
    place = c.address(rng)
    text = c.text(rng, 3)
    title = f"# {c.word(rng).capitalize()} {c.word(rng)}\n\n" if rng.random() < 0.6 else ""
    if rng.random() < 0.7:
        question = of.wording(
            "[what does [|the page ]{p} say about [|the ]{k}|fetch {p}: what about [|the ]{k}|look at {p}, what does it say about [|the ]{k}|"
            "what is on [|the page ]{p} about [|the ]{k}]?",
            "[I look for {k} on the page {p}|find [|the ]{k} at {p}|is there something about {k} at {p}]?",
            p=place,
            k=text.key,
        )
        said = text.line
    else:
        question = of.wording(
            "[what does [|the page ]{p} say|fetch {p}|what is on the page {p}|open the page {p}|read {p}]?",
            "[I need the text of the page {p}|tell me the words at {p}]?",
            p=place,
        )
        said = "\n\n".join(text.lines)
    body = title + "\n\n".join(text.lines)
    result = f"Contents of {place}:\n{body}" if rng.random() < 0.75 else body
    answer = f"The page says: {said}"
    return Task(question, (Step(tool, {next(iter(tool.parameters)): place}, result),), answer)


_SUBJECTS = """price weather address meaning colour height weight age owner birthday population capital
size speed distance temperature length author title mother brother salary status balance deadline room
number language translation synonym forecast score rank route timetable stock version licence""".split()
_HELD_SUBJECTS = "altitude nickname tariff genre voltage curfew mascot postcode".split()
_VERBS = "get find look_up query read check".split()


@dataclass(frozen=True)
class Fact:
    """A tool that knows one thing of whatever it is given."""

    tool: Tool
    subject: str


def knower(of: Choice) -> Fact:
    """A tool that training made up: its name and description say what it knows."""
    rng = of.rng
    if of.held_tools:
        subject = rng.choice(_HELD_SUBJECTS)
    else:
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
    question = of.wording(
        "[what is the {s} of|tell me the {s} of|find the {s} of|look up the {s} of|which {s} has] {g}?",
        "[I would like to know the {s} of|do you know the {s} of|give me the {s} for] {g}?",
        s=fact.subject,
        g=given,
    )
    forms = (
        found,
        f"{fact.subject}: {found}",
        json.dumps({fact.subject: found}),
        f"The {fact.subject} is {found}",
    )
    answer = f"The {fact.subject} of {given} is {found}."
    arguments = {next(iter(fact.tool.parameters)): given}
    return Task(question, (Step(fact.tool, arguments, rng.choice(forms)),), answer)


IDLE = (
    Tool(
        "write_file",
        {"path": "string", "content": "string"},
        "Create a new file or completely overwrite an existing file",
    ),
    Tool(
        "move_file",
        {"source": "string", "destination": "string"},
        "Move or rename files and directories",
    ),
    Tool(
        "search_files",
        {"path": "string", "pattern": "string"},
        "Recursively search for files and directories matching a pattern",
    ),
    Tool(
        "get_file_info", {"path": "string"}, "Retrieve detailed metadata about a file or directory"
    ),
    Tool("git_status", {"repo_path": "string"}, "Shows the working tree status"),
    Tool(
        "git_diff",
        {"repo_path": "string", "target": "string"},
        "Shows differences between branches or commits",
    ),
    Tool("git_branch", {"repo_path": "string", "branch_type": "string"}, "List Git branches"),
)
"""Tools that are offered and never needed."""

KINDS: dict[str, tuple[Callable[[Choice], Tool], Callable[[Choice, Tool], Task]]] = {
    "list": (lister, listed),
    "read": (reader, read),
    "log": (historian, logged),
    "fetch": (fetcher, fetched),
}
"""Tools with a form of their own; `knower` makes the others."""
