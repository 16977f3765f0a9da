"""Requests for small Python functions."""

from random import Random

from .functions import Function, docstring, repertoire
from .phrase import PLEASE, Talk, ask, single

_NAMES = """calc compute helper run my_function f do_it check test process solve work func handle apply
find get make build show count_it my_sum go convert update main_step tool foo bar baz answer""".split()


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


_KIND = "[function|Python function|python function|small function|function in Python|def|method|python code|simple function]"
_FORMS = (
    PLEASE
    + f"[write|write me|make|create|give me|show me|code|implement|build] a {_KIND} [that|which] {{t}}.",
    PLEASE + f"[write|write me|make|create|give me|show me|code|implement] a {_KIND} to {{p}}.",
    "[how do I|how can I|how would you|how to] {p} in Python?",
    "[python|Python|in Python|python code|code]: {p}",
    "[I need|I want|give me] [a function|code|python code|some code] [that|which] {t}.",
    PLEASE
    + "[write|show me|give me|make] [|some |a bit of ][Python code|python|code|Python] [that|which] {t}.",
    "[python function|function|a function] [that|which] {t}",
    "{p} in [python|Python]",
)


def code(rng: Random) -> Talk:
    f = rng.choice(repertoire())
    if rng.random() < 0.12:
        return single(
            ask(
                rng,
                PLEASE
                + "[write|show me|give me|make|implement|code|write me] [{n}|the function {n}|a function {n}|{n} in Python|"
                "a Python function {n}|a function called {n}|a function named {n}].",
                n=rng.choice((f.name, f.name.replace("_", " "))),
            ),
            reply(f),
        )
    task = rng.choice(f.tasks)
    request = ask(rng, rng.choice(_FORMS), t=task, p=plain_form(task))
    if rng.random() < 0.12:
        name = rng.choice(_NAMES)
        request = ask(
            rng,
            PLEASE
            + "[write|make|give me|create|write me] a [|Python ]function [called|named] {n} [that|which] {t}.",
            n=rng.choice((name, f"`{name}`", f'"{name}"')),
            t=task,
        )
        return single(request, reply(f, name))
    return single(request, reply(f))


def explain(rng: Random) -> Talk:
    """Questions about what a code does: the answer is the task."""
    f = rng.choice(repertoire())
    shown = f.code if rng.random() < 0.3 else f.code.replace(f'    """{_doc(f)}"""\n', "")
    request = ask(
        rng,
        "[what does this [function|code|Python code] do|explain this [function|code]|what is this code for]:\n{t}",
        t=shown,
    )
    return single(request, f"The function `{f.name}` {f.tasks[0]}.")


def _doc(f: Function) -> str:
    return f.code.split('"""')[1]
