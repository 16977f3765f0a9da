"""Tries grammars out within limits of time and memory, see `localspec.grammar.rehearsal`.

Started as ``python -m localspec.grammar.rehearsal_child``. One JSON object a line on stdin, one on
stdout: ``{"tokens", "lengths", "ends"}`` sets the vocabulary, of single bytes where there are no
tokens, answered by ``{}``; ``{"kind", "text", "choices", "family", "markers"}`` tries a grammar,
answered by ``{"grammar", "seconds", "size"}`` or ``{"refused"}``.
"""

from __future__ import annotations

import base64
import itertools
import os
from typing import Any

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.processes.bounded_child import address_space, answer_lines, limit_memory
from localspec.grammar.rehearsal import rehearse, single_bytes, tokenizer

MEMORY = 1 << 30
"""Bytes of the process, with the largest vocabularies."""
GRAMMAR_MEMORY = 256 << 20
"""Bytes of address space for one grammar."""
SECONDS = 2.0
"""Of computing, for one grammar."""
_NICENESS = 5


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
        return {"grammar": found.grammar, "seconds": found.seconds, "size": found.size}


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
        os.nice(_NICENESS)  # replies that are running come first
    answer_lines(_Child().answer, SECONDS, computing=True)


if __name__ == "__main__":
    main()
