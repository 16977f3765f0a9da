"""The grammar of a request, for the model that answers it."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from localspec.core.constraint import Constraint
from localspec.core.errors import QueueFullError, UsageError
from localspec.core.events import FinishReason, Notice
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Cancelled, never
from localspec.generation.runnable import RunnableModel
from localspec.grammar.thinking import markers, thinking
from localspec.grammar.tool_families import Family, family_of

if TYPE_CHECKING:
    from localspec.grammar.checking import Checker
    from localspec.grammar.rehearsal import Rehearsed
    from localspec.grammar.thinking import Thinking
    from localspec.grammar.thought_end import ThoughtEnd

_LARGE = 32768
"""Tokens of a vocabulary from which its preparation is worth a notice."""
_KEPT = 64
"""Grammars that are kept, the refused ones too."""
_KEPT_CHARACTERS = 8 << 20
"""Characters of them together."""
_QUICK = 0.02
"""Seconds in which a matcher is made while other prompts wait."""
_MATCHERS = 512 << 20
"""Bytes of all matchers of grammars that are followed or wait."""


class Grammars:
    """Makes the constraints of one model's replies. The vocabulary is prepared for the first.

    A grammar is tried out before it is followed, in a process with limits of time and memory, and
    what came of it is kept: an agent sends the same tools with each request.
    """

    def __init__(self, model: RunnableModel) -> None:
        self._model = model
        self._prepared = False
        self._lock = threading.RLock()
        self._kept: dict[tuple[GrammarSpec, str | None], Rehearsed | str] = {}
        """Grammars that can be followed, and the reasons why others cannot; the one used last at
        the end."""
        self._closes: dict[str, ThoughtEnd] = {}
        """The ends of thinkings by their markers: for each, all tokens were looked through."""
        self._size = 0
        """Bytes of all matchers that are in use."""

    @functools.cached_property
    def _checker(self) -> Checker:
        from localspec.grammar.checking import Checker

        return Checker(lambda: self._vocabulary)

    @functools.cached_property
    def _vocabulary(self) -> Any:
        self._prepared = True
        return self._model.grammar_vocabulary()

    def prepare(self) -> Iterator[Notice]:
        """Prepare the vocabulary, which takes a second or two where it is large; nothing else of
        this process runs meanwhile.
        """
        if not self._prepared:
            if self._model.n_vocab > _LARGE:
                yield Notice("preparing the vocabulary for grammars, once for this model")
            with self._lock:
                _ = self._vocabulary
                for end in markers(self._model.template)[1:2]:
                    self._close(end)

    def warm(self) -> None:
        """Prepare all that the first grammar needs, before others wait for its sake."""
        for _ in self.prepare():
            pass
        self._checked(GrammarSpec.json_object(), None, lambda: False)

    def knows(self, spec: GrammarSpec, family: Family | None) -> bool:
        """Whether it is known what comes of a grammar, so that a constraint takes no time."""
        with self._lock:
            found = self._kept.get(self._key(spec, family))
            return found is not None and (isinstance(found, str) or found.seconds < _QUICK)

    def constraint(
        self,
        spec: GrammarSpec | None,
        prompt: list[int],
        text: str | None,
        family: Family | None = None,
        cancelled: Cancelled = never,
    ) -> Constraint | None:
        """The constraint of a reply after ``prompt``; None without a grammar. ``family`` is how the
        prompt tells the model to call tools; None: as its template writes calls.

        ``text`` is the prompt as a chat template wrote it, None where none did: only then may the
        model think before the grammar begins.

        Raises:
            UsageError: the grammar is refused.
            QueueFullError: large grammars of other requests take the memory for it, or their
                masks the time; or the process that tried it out was ended from outside.
            Interrupted: ``cancelled`` returned true while it was tried out.
        """
        if spec is None:
            return None
        from localspec.grammar.guard import require_room
        from localspec.grammar.matching import GrammarMatcher

        model = self._model
        require_room()
        checked = self._checked(spec, family, cancelled)
        self._take(checked.size)
        try:
            found = GrammarMatcher(
                self._vocabulary,
                checked.grammar,
                spec.kind,
                start=len(prompt),
                n_vocab=model.n_vocab,
                end_ids=model.end_ids,
                thinking=self._thinking(text),
            )
        except BaseException:
            self._take(-checked.size)
            raise
        weakref.finalize(found, self._take, -checked.size)
        return found

    def _thinking(self, prompt: str | None) -> Thinking | None:
        """The thinking of a reply to that prompt."""
        if prompt is None:
            return None
        tokenize: Callable[[str], list[int]] = functools.partial(self._model.tokenize, special=True)
        return thinking(self._model.template, prompt, tokenize, self._close)

    def _close(self, marker: str) -> ThoughtEnd:
        from localspec.grammar.thought_end import ThoughtEnd

        with self._lock:
            if marker not in self._closes:
                vocabulary = self._vocabulary
                texts = (vocabulary.decode_bytes([t]) for t in range(vocabulary.vocab_size))
                self._closes[marker] = ThoughtEnd(marker, self._model, texts)
            return self._closes[marker]

    def _take(self, size: int) -> None:
        with self._lock:
            if size > 0 and self._size and self._size + size > _MATCHERS:
                raise QueueFullError(
                    "the large grammars of other requests take all memory that grammars may have; "
                    "try again later"
                )
            self._size += size

    def _checked(self, spec: GrammarSpec, family: Family | None, cancelled: Cancelled) -> Rehearsed:
        """The grammar in the library's own form.

        Raises:
            UsageError: the grammar is refused, now and later.
            QueueFullError, Interrupted: as `constraint`.
        """
        key = self._key(spec, family)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
        if found is None:
            try:
                found = self._checker.checked(spec, key[1], self._marker, cancelled)
            except UsageError as error:
                found = str(error)
            self._keep(key, found)
        if isinstance(found, str):
            raise UsageError(found)
        return found

    def _key(self, spec: GrammarSpec, family: Family | None) -> tuple[GrammarSpec, str | None]:
        if spec.kind != "tools":
            return spec, None
        family = family or family_of(self._model.template)
        return spec, family.name if family is not None else None

    def _keep(self, key: tuple[GrammarSpec, str | None], found: Rehearsed | str) -> None:
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > 1 and (
                len(self._kept) > _KEPT
                or sum(map(_characters, self._kept.items())) > _KEPT_CHARACTERS
            ):
                self._kept.pop(next(iter(self._kept)))

    def _marker(self, name: str) -> int | None:
        """The id of a marker that is a token of its own; None where it is plain text."""
        tokens = self._model.tokenize(name, special=True)
        alone = len(tokens) == 1 and self._vocabulary.is_special_token(tokens[0])
        return tokens[0] if alone else None


def _characters(kept: tuple[tuple[GrammarSpec, str | None], Rehearsed | str]) -> int:
    (spec, _), found = kept
    return len(spec.text) + (len(found) if isinstance(found, str) else len(found.grammar))


def incomplete(finish: FinishReason, stop_text: str | None, *, limited: bool) -> Notice:
    """The notice of a reply that ended before its grammar was complete, perhaps by a stop text or,
    if ``limited``, by a limit of lines.
    """
    by_itself = "the model's end token, which the grammar has in its middle, ended the reply"
    by_length = "the reply was cut at its largest length"
    why = {
        "length": "a limit of its lines ended the reply" if limited else by_length,
        "interrupt": "the reply was stopped",
    }.get(finish, by_itself if stop_text is None else "a stop text ended the reply")
    return Notice(f"{why} before its grammar was complete: the text is not valid")
