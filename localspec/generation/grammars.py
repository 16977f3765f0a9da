"""The grammar of a request, for the model that answers it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from localspec.core.constraint import Constraint
from localspec.core.events import FinishReason, Notice
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar.tool_families import Family

_LARGE = 32768
"""Tokens of a vocabulary from which its preparation is worth a notice."""
_KEPT = 8
"""Compiled grammars that are kept; the largest have some megabytes."""


class GrammarModel(Protocol):
    """A target model, as far as grammars need it."""

    @property
    def template(self) -> str | None:
        """Source of the chat template; None where the file has none."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a reply."""
        ...

    @property
    def n_vocab(self) -> int:
        """Tokens of its vocabulary."""
        ...

    def tokenize(self, text: str, *, special: bool = ..., bos: bool = ...) -> list[int]:
        """Ids of a text; with ``special``, control tokens are recognised in it."""
        ...

    def grammar_vocabulary(self) -> Any:
        """An ``llguidance.LLTokenizer`` of its vocabulary."""
        ...


class Grammars:
    """Makes the constraints of one model's replies. The vocabulary is prepared for the first."""

    def __init__(self, model: GrammarModel) -> None:
        self._model = model
        self._prepared = False
        self._kept: dict[tuple[GrammarSpec, str | None], str] = {}
        """Compiled grammars, the one used last at the end."""

    @functools.cached_property
    def _vocabulary(self) -> Any:
        self._prepared = True
        return self._model.grammar_vocabulary()

    def prepare(self) -> Iterator[Notice]:
        """Prepare the vocabulary, which takes a second or two where it is large; nothing else of
        this process runs meanwhile. A server calls it while it loads.
        """
        if not self._prepared:
            if self._model.n_vocab > _LARGE:
                yield Notice("preparing the vocabulary for grammars, once for this model")
            _ = self._vocabulary

    def constraint(
        self,
        spec: GrammarSpec | None,
        prompt: list[int],
        text: str | None,
        family: Family | None = None,
    ) -> Constraint | None:
        """The constraint of a reply after ``prompt``; None without a grammar. ``family`` is how the
        prompt tells the model to call tools; None: as its template writes calls.

        ``text`` is the prompt as a chat template wrote it, None where none did: only then may the
        model think before the grammar begins.

        Raises:
            UsageError: the grammar is refused.
        """
        if spec is None:
            return None
        from localspec.grammar.matching import GrammarMatcher
        from localspec.grammar.thinking import thinking

        model = self._model
        tokenize: Callable[[str], list[int]] = functools.partial(model.tokenize, special=True)
        return GrammarMatcher(
            self._vocabulary,
            self._written(spec, family),
            spec.kind,
            start=len(prompt),
            n_vocab=model.n_vocab,
            end_ids=model.end_ids,
            thinking=None if text is None else thinking(model.template, text, tokenize),
        )

    def _written(self, spec: GrammarSpec, family: Family | None) -> str:
        """The grammar in the library's own form. The last ones are kept: an agent sends the same
        tools with each request, and compiling sixty of them takes 0.4 s.

        Raises:
            UsageError: the grammar is refused.
        """
        from localspec.grammar.compiling import compiled

        key = (spec, family.name if family is not None else None)
        found = self._kept.pop(key, None)
        if found is None:
            found = compiled(spec, self._model.template, self._marker, family)
        self._kept[key] = found
        if len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        return found

    def _marker(self, name: str) -> int | None:
        """The id of a marker that is a token of its own; None where it is plain text."""
        tokens = self._model.tokenize(name, special=True)
        alone = len(tokens) == 1 and self._vocabulary.is_special_token(tokens[0])
        return tokens[0] if alone else None


def incomplete(finish: FinishReason, stop_text: str | None) -> Notice:
    """The notice of a reply that ended before its grammar was complete, perhaps by a stop text."""
    by_itself = "the model's end token, which the grammar has in its middle, ended the reply"
    why = {
        "length": "the reply was cut at its largest length",
        "interrupt": "the reply was stopped",
    }.get(finish, by_itself if stop_text is None else "a stop text ended the reply")
    return Notice(f"{why} before its grammar was complete: the text is not valid")


__all__ = ["GrammarModel", "Grammars", "incomplete"]
