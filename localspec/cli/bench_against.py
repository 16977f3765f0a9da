"""The programs of ``bench --against``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.core.errors import UsageError
from localspec.core.files import paths

if TYPE_CHECKING:
    from localspec.bench.peers import Mode, Peer, Question, Setting, Spoken
    from localspec.cli.interrupt import CtrlC

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
            from localspec.bench import peers

            found += peers.modes()
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
    program = paths.expand(path).absolute()
    if not program.is_file():
        raise UsageError(f"no program at {program}; {_HOW}")
    return program


def interruptible(mode: Mode, ctrl_c: CtrlC) -> Mode:
    """The same, but Ctrl-C ends the wait for its start and for its answers."""
    from localspec.bench.peers import Mode

    return Mode(mode.name, partial(_running, mode, ctrl_c))


@contextlib.contextmanager
def _running(mode: Mode, ctrl_c: CtrlC, setting: Setting) -> Iterator[Peer]:
    with contextlib.ExitStack() as stack:
        with ctrl_c.raising():
            peer = stack.enter_context(mode.start(setting))
        yield _Interruptible(peer, ctrl_c)


class _Interruptible:
    def __init__(self, peer: Peer, ctrl_c: CtrlC) -> None:
        self._peer, self._ctrl_c = peer, ctrl_c

    def answer(self, question: Question) -> Spoken:
        """Raises KeyboardInterrupt besides what the peer raises."""
        with self._ctrl_c.raising():
            return self._peer.answer(question)
