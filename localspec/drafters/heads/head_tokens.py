"""The tokens of one sequence that a head was given, as its draft model counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from localspec.core.errors import ContextFullError
from localspec.core.values import Extension, Logits


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


def each(
    work: Sequence[Extension],
    extend: Callable[[int, Sequence[int], int], Logits],
    sequences: Mapping[int, HeadTokens],
    truncate: Callable[[int, int], None],
) -> list[Logits]:
    """`DraftModel.extend` by a pass for each sequence: if one raises, those before it are as they
    were, too.
    """
    lengths = {seq: len(sequences[seq].tokens) for seq, _, _ in work if seq in sequences}
    try:
        return [extend(*item) for item in work]
    except BaseException:
        for seq, _, _ in work:
            truncate(seq, lengths.get(seq, 0))
        raise
