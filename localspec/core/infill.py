"""A gap in a text to be filled: the texts around the cursor, and when to stop writing there.

Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.core.errors import UsageError

MOST_CHUNKS = 4096
"""Pieces of other files."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of another file."""

    filename: str
    text: str


@dataclass(frozen=True, slots=True)
class Infill:
    """The text around a cursor, for models that have tokens for it (fill in the middle; Bavarian et
    al. 2022, "Efficient training of language models to fill in the middle"), and rules that end the
    reply early, as llama-server's ``/infill`` has them.
    """

    prefix: str
    """The text before the cursor, but for `prompt`."""
    suffix: str
    """The text behind it."""
    prompt: str = ""
    """The rest of the text before the cursor, such as the beginning of its line: split into tokens
    apart, so that those of `prefix` stay the same while it is typed."""
    extra: tuple[Chunk, ...] = ()
    """Pieces of other files, the most important last: the first ones are left out where there is no
    room for all."""
    suffix_first: bool = False
    """Whether the prompt has the text behind the cursor first ("SPM"); which of the two orders a
    model has learnt, its file does not say."""
    indent: int = 0
    """Spaces or tabs that a further line must begin with; the reply ends before one with fewer."""
    predict_seconds: float | None = None
    """Seconds after the first token, from which on a line that ends also ends the reply."""
    prompt_seconds: float | None = None
    """Seconds after which reading the prompt is given up: the reply is empty then, and what was
    read is not read again. Without effect where no token is wanted."""
    certain: bool = False
    """Whether the reply ends where no token is likely enough, see
    `localspec.generation.infill_sampling`."""

    def __post_init__(self) -> None:
        if len(self.extra) > MOST_CHUNKS:
            raise UsageError(
                f"a gap has {len(self.extra)} pieces of other files, and {MOST_CHUNKS} is the most"
            )
        if self.indent < 0:
            raise UsageError("the indentation of further lines must be 0 or more")
        for seconds in (self.predict_seconds, self.prompt_seconds):
            if seconds is not None and not 0 < seconds < math.inf:
                raise UsageError("a time limit must be a number of seconds, more than 0")

    @property
    def before(self) -> str:
        """The whole text before the cursor."""
        return self.prefix + self.prompt

    @property
    def texts(self) -> tuple[str, ...]:
        """All its texts."""
        chunks = (text for chunk in self.extra for text in (chunk.filename, chunk.text))
        return (self.prefix, self.prompt, self.suffix, *chunks)
