"""Suggestions at a cursor that were made before, as predictions for the next keystroke.

Who types on along a suggestion, or takes the last character back, is suggested the rest of it
again, most of the time. The rest is drafted from, which changes the speed of a reply and never the
reply.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass

from localspec.core.infill import Infill

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
