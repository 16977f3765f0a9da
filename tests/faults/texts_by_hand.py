"""The text of a reply written down again, from what is documented of it: tokens are bytes of UTF-8,
stop texts are not shown, nor is what may become one, and lines must be indented enough. No line is
shared with `localspec.generation.stop_condition`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Texts:
    """How tokens become text, and what ends it."""

    pieces: tuple[bytes, ...]
    """By token."""
    stops: tuple[str, ...] = ()
    indent: int = 0

    def shown(self, said: Sequence[int], *, over: bool) -> tuple[str, str | None]:
        """What a reader has after these tokens, and "stop" or "length" where that ends the reply;
        ``over``: whether no token follows.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text = decoder.decode(b"".join(self.pieces[token] for token in said), final=over)
        places = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        beginnings = {stop[:n] for stop in self.stops for n in range(1, len(stop))}
        held = [len(one) for one in beginnings if text.endswith(one)] if not over else []
        text = text[: min(places, default=len(text) - max(held, default=0))]
        for line in re.finditer(r"\n([ \t]*)(?=[^ \t])", text):
            if len(line[1]) < self.indent:
                return text[: line.end()], "length"
        return text, "stop" if places else None
