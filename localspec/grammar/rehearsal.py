"""Tries a grammar out before a model follows it, and refuses what costs too much.

Runs in a process that has limits of time and memory: llguidance's own limits hold for the masks of
a reply, but not while it makes its lexer. There a multiple of a large prime took eight seconds and
370 MB, and larger ones had no end.

``python -m localspec.grammar.rehearsal`` takes one JSON object a line on stdin, and answers with
one on stdout: ``{"tokens", "lengths", "ends"}`` sets the vocabulary, of single bytes where there
are no tokens, answered by ``{}``; ``{"kind", "text", "choices", "family", "markers"}`` tries a
grammar, answered by ``{"grammar", "seconds", "size"}`` or ``{"refused"}``.
"""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import itertools
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.processes.bounded_child import address_space, answer_lines, limit_memory
from localspec.grammar.compiling import compiled, limits, one_line, refuse
from localspec.grammar.tool_families import FAMILIES

BUILD_SECONDS = 1.0
"""Seconds of computing to make a matcher: whoever answers makes another one."""
STEP_SECONDS = 0.1
"""Seconds of computing for one mask or one token: twice what llguidance allows a step here."""
MOST_BYTES = 64 << 20
"""Bytes of a matcher after some tokens."""
_WALKS = 2
_STEPS = 16
_WALK_SECONDS = 0.1

MEMORY = 1 << 30
"""Bytes of the process, with the largest vocabularies."""
GRAMMAR_MEMORY = 256 << 20
"""Bytes of address space for one grammar."""
SECONDS = 2.0
"""Seconds of computing for one grammar."""
_NICENESS = 5
"""The niceness of the process: replies that are running come first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsed:
    """A grammar that can be followed."""

    grammar: str
    """In llguidance's own form."""
    seconds: float
    """Seconds of computing to make a matcher."""
    size: int
    """Bytes of the matcher."""


def tokenizer(tokens: Sequence[bytes], ends: Sequence[int]) -> Any:
    """An ``LLTokenizer`` that knows these tokens; how texts are split does not matter here."""
    from llguidance import TokenizerWrapper
    from llguidance._lib import LLTokenizer

    single = {token: i for i, token in enumerate(tokens) if len(token) == 1}

    class Wrapped:
        is_tokenizer_wrapper = True
        eos_token_id = ends[0]
        bos_token_id = None
        special_token_ids = tuple(ends)

        def __init__(self) -> None:
            self.tokens = list(tokens)

        def __call__(self, text: str | bytes) -> list[int]:
            raw = text if isinstance(text, bytes) else text.encode()
            return [single[bytes([byte])] for byte in raw if bytes([byte]) in single]

    return LLTokenizer(TokenizerWrapper(Wrapped()))


def single_bytes() -> Any:
    """A tokenizer with a token for each byte, for grammars without a model."""
    return tokenizer([*(bytes([i]) for i in range(256)), b"\xff<end>"], [256])


def rehearse(
    spec: GrammarSpec, family: str | None, markers: Mapping[str, int], vocabulary: Any
) -> Rehearsed:
    """Compile a grammar and follow it for some tokens.

    Raises:
        UsageError: it is not valid, or following it takes too much.
    """
    from llguidance import LLMatcher

    grammar = compiled(spec, None, markers.get, FAMILIES[family] if family is not None else None)
    before, began = allocated(), time.process_time()
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits())
    seconds = time.process_time() - began
    if matcher.is_error():
        refuse(spec.kind, matcher.get_error())
    if seconds > BUILD_SECONDS:
        _too_much(f"it takes {seconds:.1f} seconds to prepare, and {BUILD_SECONDS:g} is the most")
    ends = [_walk(matcher.deep_copy(), spec.kind, random.Random(s)) for s in range(_WALKS)]
    if all(ends):  # each reply would end so
        refuse(spec.kind, one_line(ends[0]))
    size = allocated() - before
    if size > MOST_BYTES:
        _too_much(f"it takes {size >> 20} MB of memory, and {MOST_BYTES >> 20} is the most")
    return Rehearsed(grammar, seconds, max(0, size))


def _walk(matcher: Any, kind: str, chance: random.Random) -> str:
    """Follow one random text, by single characters or by long tokens; the error that it ends with,
    as a reply would, or "".
    """
    began = time.process_time()
    for step in range(_STEPS):
        words = np.frombuffer(_timed(matcher.compute_bitmask), np.uint32)
        if matcher.is_error():
            if step == 0:
                refuse(kind, one_line(matcher.get_error()))
            return str(matcher.get_error())
        allowed = _ids(words)
        if not len(allowed) or matcher.is_stopped():
            return ""
        token = int(allowed[chance.randrange(len(allowed))])
        _timed(partial(matcher.try_consume_tokens, [token]))
        if time.process_time() - began > _WALK_SECONDS:
            break
    return ""


def _timed(step: Callable[[], Any]) -> Any:
    began = time.process_time()
    found = step()
    seconds = time.process_time() - began
    if seconds > STEP_SECONDS:
        _too_much(f"a single token takes {seconds:.2f} seconds, and {STEP_SECONDS:g} is the most")
    return found


def _ids(words: NDArray[np.uint32]) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def _too_much(what: str) -> None:
    raise UsageError(f"this grammar is too costly to follow: {what}; make it simpler")


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated() -> int:
    """Bytes that are allocated; 0 where the C library does not tell."""
    try:
        told = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return 0
    told.restype = _Mallinfo
    found = told()
    return int(found.uordblks) + int(found.hblkhd)


class _Child:
    def __init__(self) -> None:
        self._vocabulary: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        if "tokens" in request:
            limit_memory(None)
            self._vocabulary = _vocabulary(request) if request["tokens"] else single_bytes()
            _limit()
            return {}
        try:
            spec = GrammarSpec(request["kind"], request["text"], tuple(request["choices"]))
            found = rehearse(spec, request["family"], request["markers"], self._vocabulary)
        except UsageError as error:
            return {"refused": str(error)}
        return dataclasses.asdict(found)


def _vocabulary(request: dict[str, Any]) -> Any:
    raw = base64.b64decode(request["tokens"])
    ends = list(itertools.accumulate(request["lengths"]))
    return tokenizer(
        [raw[begin:end] for begin, end in zip([0, *ends], ends, strict=False)], request["ends"]
    )


def _limit() -> None:
    """Leave as much address space as a grammar may have, beside what is there already."""
    taken = address_space()
    if taken is not None:
        limit_memory(taken + GRAMMAR_MEMORY)


def main() -> None:
    """Answer requests until stdin ends."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    answer_lines(_Child().answer, SECONDS, computing=True)


if __name__ == "__main__":
    main()
