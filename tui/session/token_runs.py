"""The origins of the tokens of a reply, as runs of text with a style.

Each kind has a colour for eyes that see it and an attribute for terminals and eyes that do not;
only the most frequent kind, accepted from the draft model, goes without one. The colours are theme
variables, so they change with the theme.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content

from localspec.core import drafter_registry
from localspec.core.drafter_registry import Family
from localspec.core.emitted import SERVER, Origin
from localspec.core.events import Token
from tui.render.text import plain


class Kind(enum.Enum):
    """A kind of origin, with its names from the longest to the shortest and its style."""

    MODEL = (("guessed by the draft model", "draft model", "draft"), "$origin-model")
    NGRAM = (("found in earlier text", "earlier text", "text"), "underline $origin-ngram")
    AHEAD = (("found by lookahead", "lookahead", "ahead"), "underline italic $origin-model")
    CORRECTED = (
        ("corrected, the guess was wrong", "corrected", "fixed"),
        "bold $origin-corrected",
    )
    BONUS = (("bonus, all guesses were right", "bonus", "bonus"), "italic $origin-bonus")
    PLAIN = (("plain, nothing was guessed", "plain", "plain"), "dim $origin-plain")
    UNKNOWN = (("the server does not tell", "not told", "?"), "")

    def __init__(self, labels: tuple[str, str, str], style: str) -> None:
        self.labels, self.style = labels, style


_ACCEPTED = {
    Family.LOOKUP: Kind.NGRAM,
    Family.PREDICTION: Kind.NGRAM,
    Family.GRAMMAR: Kind.NGRAM,
    Family.LOOKAHEAD: Kind.AHEAD,
    Family.MODEL: Kind.MODEL,
    Family.HEAD: Kind.MODEL,
}
"""Kinds of accepted tokens by the family of their drafter."""
_ONE_HOT = frozenset({Family.LOOKUP, Family.PREDICTION, Family.GRAMMAR, Family.LOOKAHEAD})
"""Families whose draft is fixed by the text before: q is 1 for its tokens and 0 for all others."""
_OWN = {
    Origin.CORRECTED: Kind.CORRECTED,
    Origin.BONUS: Kind.BONUS,
    Origin.PLAIN: Kind.PLAIN,
    Origin.UNKNOWN: Kind.UNKNOWN,
}


def kind_of(token: Token) -> Kind:
    """The kind of a token."""
    if token.origin is Origin.ACCEPTED:
        if token.source == SERVER:
            return Kind.MODEL
        spec = drafter_registry.find(token.source)
        return _ACCEPTED.get(spec.family, Kind.NGRAM) if spec is not None else Kind.NGRAM
    return _OWN[token.origin]


def is_looked_up(token: Token) -> bool:
    """Whether a token was accepted from a draft that looks the text up."""
    spec = drafter_registry.find(token.source)
    return token.origin is Origin.ACCEPTED and spec is not None and spec.family in _ONE_HOT


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring text of one kind."""

    text: str
    kind: Kind


class Runs:
    """The runs of a reply as it grows."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, token: Token) -> None:
        """Append a token's text, made safe to show."""
        self._append(plain(token.text), kind_of(token))

    def extend(self, text: str) -> None:
        """Append text that belongs to the last token."""
        self._append(plain(text), self._runs[-1].kind if self._runs else Kind.PLAIN)

    def _append(self, text: str, kind: Kind) -> None:
        if not text:
            return
        if self._runs and self._runs[-1].kind is kind:
            text = self._runs.pop().text + text
        self._runs.append(Run(text, kind))

    def since(self, length: int) -> list[Run]:
        """The runs after the first ``length`` characters."""
        found: list[Run] = []
        excess = sum(len(run.text) for run in self._runs) - length
        for run in reversed(self._runs):
            if excess <= 0:
                break
            found.append(Run(run.text[-excess:], run.kind) if excess < len(run.text) else run)
            excess -= len(run.text)
        return found[::-1]


def styled(runs: Iterable[Run]) -> Content:
    """The runs as styled text; nothing in them is parsed as markup."""
    return Content.assemble(*((run.text, run.kind.style) for run in runs))


_GUESSED = (Kind.MODEL, Kind.NGRAM, Kind.AHEAD)
_BY_TARGET = (Kind.CORRECTED, Kind.BONUS, Kind.PLAIN)


def legend(width: int) -> Content:
    """The meaning of the styles on two lines: guesses that were right, and the target's own."""
    lines = []
    for headings, kinds in (
        (("right guess: ", "right guess: ", "guess "), _GUESSED),
        (("the model's own: ", "the model's own: ", "own "), _BY_TARGET),
    ):
        forms = zip(headings, zip(*(kind.labels for kind in kinds), strict=True), strict=True)
        for heading, labels in forms:
            if len(heading) + len("  ".join(labels)) <= width:
                break
        parts: list[tuple[str, str] | str] = [(heading, "$quiet")]
        for at, (kind, label) in enumerate(zip(kinds, labels, strict=True)):
            parts += ["  "] * (at > 0) + [(label, kind.style)]
        lines.append(Content.assemble(*parts))
    return Content("\n").join(lines)
