"""Requests for small Python functions."""

from random import Random

from .functions import Function, docstring, repertoire
from .phrase import Talk, ask, single
from .words import TEXTS

_TEXTS = TEXTS["code"]
NAMES = _TEXTS["names"].split()


def reply(f: Function, name: str | None = None) -> str:
    code, example = f.named(name) if name else (f.code, f.example)
    text = f"Here is a function that {f.tasks[0]}:\n\n```python\n{code}\n```"
    if example:
        text += f"\n\nFor example, `{example}` returns `{f.result}`."
    return text


def plain_form(task: str) -> str:
    """The task as an order: "checks whether" becomes "check whether"."""
    text = docstring(task)[:-1]
    return text[0].lower() + text[1:]


def code(rng: Random) -> Talk:
    f = rng.choice(repertoire())
    if rng.random() < 0.12:
        known = rng.choice((f.name, f.name.replace("_", " ")))
        return single(ask(rng, _TEXTS["named"], n=known), reply(f))
    task = rng.choice(f.tasks)
    request = ask(rng, _TEXTS["forms"], t=task, p=plain_form(task))
    if rng.random() < 0.12:
        name = rng.choice(NAMES)
        shown = rng.choice((name, f"`{name}`", f'"{name}"'))
        return single(ask(rng, _TEXTS["called"], n=shown, t=task), reply(f, name))
    return single(request, reply(f))


def explain(rng: Random) -> Talk:
    """Questions about what a code does: the answer is the task."""
    f = rng.choice(repertoire())
    described = f.code.split('"""')[1]
    shown = f.code if rng.random() < 0.3 else f.code.replace(f'    """{described}"""\n', "")
    return single(ask(rng, _TEXTS["explain"], t=shown), f"The function `{f.name}` {f.tasks[0]}.")
