"""Processes that are measured in turns: all but one are stopped, so that none disturbs another."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_RUNNER = Path(__file__).resolve().parents[1] / "run.py"


class Side:
    """A process that answers questions; it is stopped but for its turns."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start this program again with ``arguments``, and wait until it is ready."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_RUNNER), Path(sys.argv[0]).stem, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask(None)

    def ask(self, question: object) -> Any:
        """Its answer to a question, with the processor to itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # its answer is missing below
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a process ended without an answer; its error is above")
        self._process.send_signal(signal.SIGSTOP)
        return json.loads(answer)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def sides(arguments: dict[str, Sequence[str]]) -> Iterator[dict[str, Side]]:
    """Processes by name, with the arguments of each, for the block."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, line in arguments.items():
            found[name] = Side(line)
            stack.callback(found[name].close)
        yield found


def answer_all(answer: Callable[[Any], Any]) -> None:
    """Be a side: answer each line of stdin by one of stdout."""
    for line in sys.stdin:
        question = json.loads(line)
        found = answer(question) if question is not None else None
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
