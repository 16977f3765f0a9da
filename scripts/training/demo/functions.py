"""The closed repertoire of Python functions: what they do, their code, one example.

Each entry is four parts: the wordings of the task (after "a function that"), the code without its
docstring, the example call. The result of the example is computed, never written by hand.
"""

import re
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("functions.txt")


def docstring(task: str) -> str:
    verb, _, rest = task.partition(" ")
    base = {"does": "do", "multiplies": "multiply"}.get(verb)
    if base is None:
        base = verb[:-2] if verb.endswith(("shes", "ches", "sses", "oes")) else verb[:-1]
    return f"{base[0].upper()}{base[1:]} {rest}."


class Function:
    def __init__(self, tasks: list[str], code: str, example: str) -> None:
        self.tasks, self.example = tasks, example
        head, _, body = code.partition("):\n")
        self.code = f'{head}):\n    """{docstring(tasks[0])}"""\n{body}'
        self.name = head.rpartition("def ")[2].partition("(")[0]
        self.result = ""
        if example:
            scope: dict[str, object] = {}
            exec(self.code, scope)  # our own text above
            self.result = repr(eval(example, scope))

    def named(self, name: str) -> tuple[str, str]:
        """Code and example with another name for the function."""
        swap = re.compile(rf"\b{self.name}\b(?=\()")
        return swap.sub(name, self.code), swap.sub(name, self.example)


@cache
def repertoire() -> list[Function]:
    chunks: list[str] = []
    for part in re.split(r"\n{2,}", _SOURCE.read_text(encoding="utf-8").strip("\n")):
        # An import stands two blank lines above its function: one chunk, although there is a gap.
        if part.startswith("def "):
            chunks[-1] += "\n\n\n" + part
        else:
            chunks.append(part)
    result = []
    for chunk in chunks:
        tasks, _, rest = chunk.partition("\n")
        lines = rest.split("\n")
        example = "" if lines[-1].startswith(" ") else lines.pop()
        result.append(Function(tasks.split("|"), "\n".join(lines), example))
    return result
