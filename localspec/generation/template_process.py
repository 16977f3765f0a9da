"""The processes that render chat templates, seen from inside and by the one who needs a prompt.

A template comes with a downloaded file and is a program: it runs within limits of time and memory,
see `localspec.core.processes.bounded`.

``python -m localspec.generation.template_process`` takes one JSON object a line on stdin, and
answers with one on stdout. ``{"source"}`` compiles a template, answered by ``{"ok": true}`` or
``{"broken": reason}``; ``{"source", "messages", "bos", "eos", "variables"}`` renders it, answered
by ``{"text"}`` or ``{"refused": reason}``. A request that exceeds a limit ends the process; so does
the end of stdin.
"""

from __future__ import annotations

import atexit
import functools
from typing import Any

from localspec.core.processes.bounded import (
    STARTING_SECONDS,
    BoundedPool,
    BoundedProcess,
    Bounds,
)
from localspec.core.processes.bounded_child import answer_lines, limit_memory
from localspec.generation.template_program import BrokenTemplateError, Program, RefusedError

MEMORY = 768 << 20
"""Bytes of address space."""
SECONDS = 10.0
"""Longest time for one request."""
LONGEST_TEXT = 16 << 20
"""Characters of a rendered prompt."""
_LONGEST_REASON = 500

_MOST = 5
"""Processes: as many as prompts are made at a time, so that none waits for one."""


def main() -> None:
    """Answer requests until stdin ends."""
    limit_memory(MEMORY)
    answer_lines(_answer, SECONDS, computing=False)


_program = functools.lru_cache(maxsize=4)(Program)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        program = _program(request["source"])
        if "messages" not in request:
            return {"ok": True}
        text = program.render(
            request["messages"], request["bos"], request["eos"], request.get("variables")
        )
    except BrokenTemplateError as error:
        return {"broken": str(error)[:_LONGEST_REASON]}
    except RefusedError as error:
        return {"refused": str(error)[:_LONGEST_REASON]}
    except MemoryError:
        return {"refused": f"it takes more than {MEMORY >> 20} MB of memory"}
    if len(text) > LONGEST_TEXT:
        return {"refused": f"it makes a prompt of {len(text) >> 20} million characters"}
    return {"text": text}


class TemplateProcess(BoundedProcess):
    """Renders one prompt at a time."""

    def __init__(self) -> None:
        super().__init__(
            "localspec.generation.template_process",
            "renders chat templates",
            lambda: Bounds(
                SECONDS,
                MEMORY,
                STARTING_SECONDS,
                f"it takes more than {SECONDS:.0f} seconds or {MEMORY >> 20} MB of memory",
            ),
        )


@functools.cache
def shared() -> BoundedPool:
    """The processes that render for this one; they end with it."""
    found = BoundedPool(TemplateProcess, _MOST)
    atexit.register(found.close)
    return found


if __name__ == "__main__":
    main()
