"""The tokens of earlier conversations, for the turns that quote them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence

from localspec.core.errors import TemplateEndedError

Tokenize = Callable[[str], list[int]]
EndsTurn = Callable[[str, int], bool]
"""Whether a turn of a text may end at a place. TemplateEndedError: that cannot be told now."""


def _anywhere(text: str, at: int) -> bool:
    del text, at
    return True


_TEXTS = 64
"""Texts of one owner whose tokens are kept: the turns of a few chats and their branches."""
_TOKENS = 2_000_000
"""Tokens of all owners' texts together: about 16 MB with the texts."""
_OWNERS = 64
"""Owners whose texts are kept."""


class Transcript:
    """Turns texts into tokens, reusing those of the longest beginning that was seen before.

    A reply is not tokenized again when the next turn quotes it: another split of the same text
    would throw away the KV cache from there on, and would not be what the model wrote. A turn that
    is asked again gets the same tokens again. A beginning that ends within a turn of the text, even
    within a word, is not quoted: such a turn was written by somebody else.
    """

    def __init__(
        self, tokenize_start: Tokenize, tokenize_rest: Tokenize, ends_turn: EndsTurn = _anywhere
    ) -> None:
        """Tokenizers for the start of a text (adding bos where wanted) and for what follows."""
        self._start, self._rest = tokenize_start, tokenize_rest
        self._ends_turn = ends_turn
        self._seen: dict[str, array[int]] = {}
        """By text; what was remembered last comes last."""
        self._lock = threading.Lock()
        self.size = 0
        """Tokens that are kept."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt. Callable from any thread, as are the others."""
        with self._lock:
            begins = {len(t): tokens for t, tokens in self._seen.items() if text.startswith(t)}
        # Without the lock, which the end of every reply needs: a template may have to be rendered.
        try:
            known = next((n for n in sorted(begins, reverse=True) if self._ends_turn(text, n)), 0)
        except TemplateEndedError:
            known = 0
        if not known:
            return self._start(text)
        return [*begins[known].tolist(), *self._rest(text[known:])]

    def remember(self, text: str, tokens: Sequence[int]) -> None:
        """Record that ``text`` was made of exactly these tokens. Of no text nothing is known: it
        would be the beginning of all, without the token that begins one.
        """
        if not text:
            return
        with self._lock:
            self._drop(text)
            self._seen[text] = array("i", tokens)
            self.size += len(tokens)
            if len(self._seen) > _TEXTS:
                self._drop(next(iter(self._seen)))

    def forget_oldest(self) -> bool:
        """Forget the text that was remembered first; False where only one is left, or none."""
        with self._lock:
            if len(self._seen) < 2:
                return False
            self._drop(next(iter(self._seen)))
            return True

    def _drop(self, text: str) -> None:
        self.size -= len(self._seen.pop(text, ()))


class Transcripts:
    """A transcript for each owner: how a prompt is split must tell nothing of another's chats.

    Bounded in all: the texts of the owners who asked least lately are forgotten first.
    """

    def __init__(self, new: Callable[[], Transcript]) -> None:
        """``new`` makes an empty transcript."""
        self._new = new
        self._lock = threading.Lock()
        self._of: dict[str, Transcript] = {}
        """Who asked last comes last."""

    @property
    def size(self) -> int:
        """Tokens that are kept."""
        return sum(transcript.size for transcript in self._of.values())

    def of(self, owner: str) -> Transcript:
        """The transcript of an owner."""
        with self._lock:
            found = self._of.pop(owner) if owner in self._of else self._new()
            self._of[owner] = found
            if len(self._of) > _OWNERS:
                del self._of[next(iter(self._of))]
            return found

    def remember(self, owner: str, text: str, tokens: Sequence[int]) -> None:
        """Record that ``text`` of that owner was made of exactly these tokens."""
        transcript = self.of(owner)
        transcript.remember(text, tokens)
        with self._lock:
            while self.size > _TOKENS and len(self._of) > 1:
                oldest = next(iter(self._of))
                if not self._of[oldest].forget_oldest():
                    del self._of[oldest]
        while transcript.size > _TOKENS and transcript.forget_oldest():
            pass
