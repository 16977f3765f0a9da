"""What ``bench --against`` names, as ways to run a peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.peers import Mode

_LIBRARY = "llama-cpp-python"
_SERVER = "llama-server"
_EXAMPLE = "llama-speculative-simple"
_HOW = f"--against takes {_SERVER}=PATH, {_EXAMPLE}=PATH or {_LIBRARY}"


def modes(named: Sequence[str], lengths: Sequence[int], drafter: str | None) -> list[Mode]:
    """All modes of all peers named.

    Raises:
        UsageError: a name that is not known, or a path where there is no program.
    """
    found: list[Mode] = []
    for peer in named:
        name, _, path = peer.partition("=")
        if name == _LIBRARY and not path:
            from localspec.bench.peers import llama_cpp_python

            found += llama_cpp_python.modes()
        elif name == _SERVER and path:
            from localspec.bench.peers import llama_server

            found += llama_server.modes(_program(path), lengths, drafter)
        elif name == _EXAMPLE and path:
            from localspec.bench.peers import speculative_simple

            if drafter != "model":
                raise UsageError(f"{_EXAMPLE} needs a draft model; name one with --draft")
            found += speculative_simple.modes(_program(path), lengths)
        else:
            raise UsageError(f"{_HOW}, not {peer!r}")
    return found


def _program(path: str) -> Path:
    program = Path(path).expanduser().absolute()
    if not program.is_file():
        raise UsageError(f"no program at {program}; {_HOW}")
    return program
