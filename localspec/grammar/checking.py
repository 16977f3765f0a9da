"""Has grammars tried out in processes of their own before anything follows them."""

from __future__ import annotations

import atexit
import base64
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from localspec.core.errors import QueueFullError, UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Cancelled, never
from localspec.core.processes.bounded import (
    BoundedPool,
    BoundedProcess,
    Bounds,
    EndedError,
    TooMuchError,
)
from localspec.grammar import rehearsal
from localspec.grammar.rehearsal import Rehearsed
from localspec.grammar.tool_families import FAMILIES

_MOST = 4
"""Processes: as many as prompts that take long are made at a time, so that none waits for one."""
_NUMBERS = itertools.count()
_SLOW_MACHINE = 10.0
"""How much longer than its computing a request may take."""
_TOLD = (
    f"following it takes more than {rehearsal.SECONDS:g} seconds of computing or "
    f"{rehearsal.GRAMMAR_MEMORY >> 20} MB of memory"
)


class Checker:
    """Tries grammars out with one vocabulary. All of this program share the processes for it."""

    def __init__(self, vocabulary: Callable[[], Any] | None = None) -> None:
        """``vocabulary`` gives the ``LLTokenizer`` of a model; without one each byte is a token."""
        self._vocabulary = vocabulary
        self._name = "bytes" if vocabulary is None else f"model {next(_NUMBERS)}"

    def checked(
        self,
        spec: GrammarSpec,
        family: str | None = None,
        marker: Callable[[str], int | None] = lambda _: None,
        cancelled: Cancelled = never,
    ) -> Rehearsed:
        """The grammar in the form that a matcher takes. ``family`` is how tools are called, and
        ``marker`` gives the id of a marker that is a token of its own.

        Raises:
            UsageError: it is not valid, or following it takes too much.
            QueueFullError: its process was ended from outside; the grammar may be as good as any.
            Interrupted: ``cancelled`` returned true.
        """
        request = {
            "kind": spec.kind,
            "text": spec.text,
            "choices": list(spec.choices),
            "family": family,
            "markers": _markers(marker) if spec.kind == "tools" else {},
        }
        try:
            answer = shared().ask(request, cancelled, (self._name, lambda: self._told))
        except EndedError:
            raise QueueFullError(
                "this grammar could not be tried out: its process was ended, or had no time on "
                "this machine; try again later"
            ) from None
        except TooMuchError as error:
            raise UsageError(
                f"this grammar is too costly to follow: {error}; make it simpler, with smaller "
                "numbers and fewer repetitions and alternatives"
            ) from None
        if "refused" in answer:
            raise UsageError(answer["refused"])
        return Rehearsed(**answer)

    @functools.cached_property
    def _told(self) -> Mapping[str, Any]:
        """The vocabulary as a request."""
        if self._vocabulary is None:
            return {"tokens": ""}
        vocabulary = self._vocabulary()
        tokens = [vocabulary.decode_bytes([i]) for i in range(vocabulary.vocab_size)]
        return {
            "tokens": base64.b64encode(b"".join(tokens)).decode("ascii"),
            "lengths": [len(token) for token in tokens],
            "ends": list(vocabulary.eos_tokens),
        }


def _markers(marker: Callable[[str], int | None]) -> dict[str, int]:
    names = {name for f in FAMILIES.values() for name in (f.open, *f.markers) if name}
    return {name: known for name in sorted(names) if (known := marker(name)) is not None}


@functools.cache
def shared() -> BoundedPool:
    """The processes of this program; they end with it."""
    bounds = Bounds(_SLOW_MACHINE * rehearsal.SECONDS, rehearsal.MEMORY, told=_TOLD)
    found = BoundedPool(
        lambda: BoundedProcess("localspec.grammar.rehearsal", "tries grammars out", lambda: bounds),
        _MOST,
    )
    atexit.register(found.close)
    return found
