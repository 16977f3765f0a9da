"""Prompts for the text at a cursor, token by token as llama-server builds them.

::

    [REPO] myproject  ( [FILE] name  text )…  [FILE] filename            pieces of other files
    [BOS] [PREFIX] prefix prompt [SUFFIX] suffix [MIDDLE]                the order of most models
    [BOS] [SUFFIX] suffix [PREFIX] prefix prompt [MIDDLE]                with ``suffix_first``

A model without tokens for repository and file gets the pieces after a line of words. Prefix and
suffix share a window of at most `WINDOW` tokens, three quarters and one; the pieces have the rest
of the context but for the reply. What lies nearest to the cursor stays. Texts are cut in steps, and
the pieces to a length that does not depend on the rest: so the prompt of the next keystroke begins
with the same tokens, which the KV cache holds.

Two things differ from llama-server: control tokens that a source text spells stay text, and no
space is put before a text that goes on behind another one (SentencePiece).

Suggestions that were made before are predictions for the next keystroke: who types on along one, or
takes the last character back, is suggested the rest of it again, most of the time. The rest is
drafted from, which changes the speed of a reply and never the reply.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.core.errors import RAISE_CTX, ContextError, UsageError
from localspec.core.infill import Infill
from localspec.generation.quoting import begins_spaced, continued
from localspec.generation.runnable import RunnableModel

WINDOW = 2048
"""Most tokens around the cursor: llama-server's ``n_batch``."""
SUITABLE = (
    "Qwen2.5-Coder (qwen2.5-coder-7b of the catalogue), StarCoder2, Codestral, DeepSeek-Coder or "
    "Granite Code"
)
"""Models that have the tokens."""
_CHARACTERS = 16
"""Of a token, at most: texts are cut to as many before they are split into tokens."""
_STEPS = 32
"""Parts of its window by which a text is cut, one such part at a time."""
_REPLY = 4
"""A quarter of the context is kept free for the reply, where it may be that long."""
_MARKS = 8
"""Tokens that are kept free for the marks of the parts."""
_SNIPPET = "\n\n--- snippet ---\n\n"
_KNOWN = 16 << 20
"""Bytes of texts and their tokens that are kept."""
_ENTRY, _TOKEN = 350, 36
"""Bytes of an entry of that, however short its text is, and of a token in a list."""

_SEEN = 256
"""Characters before the cursor by which its place is known."""
_LEAST = 24
"""Characters that must agree, where there are as many."""
_KEPT = 8
"""Suggestions of an owner."""
_OWNERS = 64
_LONGEST = 8192
"""Characters of a suggestion that are kept."""


@dataclass(frozen=True, slots=True)
class FillTokens:
    """The tokens of a vocabulary that mark the parts; -1 where there is none."""

    prefix: int
    suffix: int
    middle: int
    repository: int
    file: int

    @classmethod
    def of(cls, special: Mapping[str, int]) -> FillTokens:
        """The marks among ``special``, by the names of `localspec.llama.vocabulary`.

        Raises:
            UsageError: there are none.
        """
        names = ("fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep")
        found = cls(*(special.get(one, -1) for one in names))
        if min(found.prefix, found.suffix, found.middle) < 0:
            raise UsageError(
                "this model cannot fill in text at a cursor: its vocabulary has no tokens for "
                f"prefix, suffix and middle; load a model that has them, such as {SUITABLE}"
            )
        return found


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """A prompt, ready to be read."""

    tokens: list[int]
    stable: int
    """Tokens that the prompt of the next keystroke probably begins with too."""


_Key = tuple[str, bool, str]
"""Owner, whether the text goes on behind another one, and the text."""


def _size(key: _Key, tokens: list[int]) -> int:
    """Bytes that the tokens of a text take with it."""
    owner, _, text = key
    return _ENTRY + sys.getsizeof(owner) + sys.getsizeof(text) + _TOKEN * len(tokens)


class InfillPrompts:
    """Builds the prompts for one model. May be called in several threads."""

    def __init__(self, model: RunnableModel, capacity: int) -> None:
        """``capacity`` is the context size in tokens."""
        self._model, self._capacity = model, capacity
        self._spaced = begins_spaced(model)
        self._lock = threading.Lock()  # guards the two below
        self._known: OrderedDict[_Key, list[int]] = OrderedDict()
        self._size = 0

    def prompt(self, infill: Infill, most: int | None, owner: str) -> InfillPrompt:
        """The prompt, with room for a reply of ``most`` tokens; None: as long as may be. The tokens
        of its texts are kept for the next one of that ``owner``.

        Raises:
            UsageError: the model has no tokens for it.
            ContextError: the context is too small for any.
        """
        marks = FillTokens.of(self._model.special_ids)
        quarter = self._capacity // _REPLY
        reserve = max(1, quarter if most is None else min(most, quarter))
        window = max(0, min(WINDOW, self._capacity - reserve - _MARKS))
        typed = self._end(infill.prompt, window // 2, owner, goes_on=True)
        before = self._end(infill.prefix, 3 * (window // 4), owner)
        before = before[max(0, len(before) + len(typed) - window) :]
        after = self._beginning(infill.suffix, window // 4 - 2 - len(typed), owner)
        bos = [self._model.special_ids["bos"]] if self._model.adds_bos else []
        head, tail = [marks.prefix, *before, *typed], [marks.suffix, *after]
        parts = [*tail, *head] if infill.suffix_first else [*head, *tail]
        extra = self._extra(infill, marks, self._capacity - reserve - window - _MARKS, owner)
        tokens = [*extra, *bos, *parts, marks.middle]
        if len(tokens) >= self._capacity:
            raise ContextError(
                f"a context of {self._capacity} tokens is too small to fill in text; {RAISE_CTX}"
            )
        # Where nothing is apart from the prefix, its last token may be another one next time.
        changes = 1 + max(1, len(typed)) + (0 if infill.suffix_first else len(tail))
        return InfillPrompt(tokens, max(0, len(tokens) - changes))

    def _extra(self, infill: Infill, marks: FillTokens, most: int, owner: str) -> list[int]:
        """At most ``most`` tokens of the pieces of other files, the last ones."""
        found: list[int] = []
        if marks.file >= 0:
            found = [marks.file, *self._tokens("filename\n", owner)]
        for chunk in reversed(infill.extra):
            if len(found) >= most:
                break
            text = self._tokens(chunk.text[-_CHARACTERS * most :], owner)
            if marks.file >= 0:
                name = chunk.filename[-_CHARACTERS * most :]
                found = [marks.file, *self._tokens(f"{name}\n", owner), *text, *found]
            else:
                found = [*self._tokens(_SNIPPET, owner), *text, *found]
        if marks.repository >= 0:
            found = [marks.repository, *self._tokens("myproject\n", owner), *found]
        return found[max(0, len(found) - most) :] if most > 0 else []

    def _end(self, text: str, most: int, owner: str, *, goes_on: bool = False) -> list[int]:
        """The last tokens of a text, at most so many; cut at the same places while it grows."""
        if most <= 0:
            return []
        step = max(1, most // _STEPS)
        over = len(text) - _CHARACTERS * most
        if over > 0:
            by = _CHARACTERS * step
            text = text[-(-over // by) * by :]
        tokens = self._tokens(text, owner, goes_on=goes_on)
        over = len(tokens) - most
        return tokens if over <= 0 else tokens[-(-over // step) * step :]

    def _beginning(self, text: str, most: int, owner: str) -> list[int]:
        """The first tokens of a text that goes on behind another one, at most so many."""
        if most <= 0:
            return []
        return self._tokens(text[: _CHARACTERS * most], owner, goes_on=True)[:most]

    def _tokens(self, text: str, owner: str, *, goes_on: bool = False) -> list[int]:
        """The tokens of a text; ``goes_on`` where it stands behind another one."""
        if not text:
            return []
        key = (owner, goes_on, text)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = self._split(text, goes_on=goes_on)
        with self._lock:
            if _size(key, found) <= _KNOWN and key not in self._known:
                self._known[key] = found
                self._size += _size(key, found)
            while self._size > _KNOWN:
                self._size -= _size(*self._known.popitem(last=False))
        return found

    def _split(self, text: str, *, goes_on: bool) -> list[int]:
        split = functools.partial(self._model.tokenize, special=False)
        return continued(split, text) if goes_on and self._spaced else split(text)


@dataclass(frozen=True, slots=True)
class _Suggestion:
    before: str
    """The end of the text before the cursor."""
    text: str

    def rest_at(self, before: str) -> str:
        """The rest of it for a cursor behind ``before``; "" where that is another place."""
        whole = self.before + self.text
        here = before[-_LEAST:]
        at = whole.rfind(here)
        if not here or at < 0:
            return ""
        seen = whole[: at + len(here)]
        return whole[len(seen) :] if before.endswith(seen[-_SEEN:]) else ""


class Suggestions:
    """The last ones of each owner. May be used in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: OrderedDict[str, deque[_Suggestion]] = OrderedDict()
        """Who was suggested something last comes last."""

    def note(self, owner: str, infill: Infill, text: str) -> None:
        """A suggestion was made."""
        if not text:
            return
        with self._lock:
            known = self._owners.setdefault(owner, deque(maxlen=_KEPT))
            self._owners.move_to_end(owner)
            known.append(_Suggestion(infill.before[-_SEEN:], text[:_LONGEST]))
            while len(self._owners) > _OWNERS:
                self._owners.popitem(last=False)

    def expected(self, owner: str, infill: Infill) -> str | None:
        """What will probably be suggested: the rest of the newest suggestion that the text before
        the cursor follows, or of an older one that goes on in the same way. None where none does.
        """
        with self._lock:
            known = [*self._owners.get(owner, ())]
        best = ""
        before = infill.before[-2 * _SEEN - _LONGEST :]
        for suggestion in reversed(known):
            rest = suggestion.rest_at(before)
            if rest.startswith(best):  # an older one may have been longer
                best = rest
        return best or None

    def forget(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._owners.clear()
