"""The tokens of one sequence that a head was given, as its draft model counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from localspec.core.errors import ContextFullError


@dataclass(slots=True)
class HeadTokens:
    """Base of what a head's draft model keeps of one sequence."""

    tokens: list[int] = field(default_factory=list)

    @contextmanager
    def appended(self, new: Sequence[int], capacity: int) -> Iterator[None]:
        """Append ``new`` in place, without a copy of the context; undone if the body raises.

        Raises:
            ContextFullError: there would be more than ``capacity`` tokens.
        """
        length = len(self.tokens)
        if length + len(new) > capacity:
            raise ContextFullError("the head's context is full")
        self.tokens.extend(new)
        try:
            yield
        except BaseException:
            del self.tokens[length:]
            raise
