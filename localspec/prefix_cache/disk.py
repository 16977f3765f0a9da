"""The states of a `KvStore` as the prefix cache uses them: listed, loaded and written."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.interrupt import Cancelled
from localspec.prefix_cache.file_format import DamagedError, Saved
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.states import Conversation, State, TokenIds, covers

DAMAGED = "a saved state of an earlier chat was damaged and is ignored; it is read again"
_OWNERS = 64
"""Owners whose files are known without listing them."""
_REFUSED = 1024
"""States that could not be written, of which that is remembered."""


def _digest(owner: str, tokens: TokenIds) -> bytes:
    whose = hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return hashlib.blake2b(tokens.tobytes(), key=whose, digest_size=16).digest()


@dataclass(slots=True)
class _Listing:
    """The files of an owner."""

    version: int
    """Version of their folder when they were listed."""
    saved: list[Saved]
    told: set[Path]
    """Files whose conversations were asked for."""


class DiskStates:
    """Saved states on disk. Other processes may add and remove files at any time."""

    def __init__(self, store: KvStore, *, cuts_anywhere: bool) -> None:
        """``cuts_anywhere`` is as in `SavesState`."""
        self._store = store
        self._cuts_anywhere = cuts_anywhere
        self._lock = threading.Lock()  # prompts are made in another thread than replies
        self._listed: dict[str, _Listing] = {}
        """By owner; who asked last comes last."""
        self._ready: tuple[Saved, State, float] | None = None
        """One that is at hand, and the seconds that it took to read."""
        self._refused: dict[bytes, None] = {}
        """Digests of the last states that could not be written, which is not tried again."""
        self._said: set[str] = set()
        self.notices: list[str] = []
        """New ones for the user."""

    def of(self, owner: str) -> list[Saved]:
        """The owner's states, listed again whenever the folder has changed."""
        with self._lock:
            return self._listing(owner).saved

    def _listing(self, owner: str) -> _Listing:
        """The caller holds the lock."""
        version = self._store.version(owner)
        known = self._listed.pop(owner, None)
        if known is None or known.version != version:
            told = set() if known is None else known.told
            saved, damaged = self._store.saved(owner)
            if damaged:
                self.notices.append(DAMAGED)
            known = _Listing(version, saved, told & {one.path for one in saved})
        self._listed[owner] = known
        if len(self._listed) > _OWNERS:
            oldest = next(iter(self._listed))
            del self._listed[oldest]
            self._store.forget(oldest)
        return known

    def conversations(self, owner: str) -> list[Conversation]:
        """Texts and tokens of the owner's states that were not asked for before, as far as that is
        remembered; raw prompts have no text.
        """
        with self._lock:
            known = self._listing(owner)
            new = [saved for saved in known.saved if saved.path not in known.told]
            known.told |= {saved.path for saved in new}
        return [saved.conversation for saved in new if saved.conversation.text]

    def load(self, saved: Saved) -> tuple[State, float]:
        """A state with its bytes, see `KvStore.load`; and the seconds spent on it before."""
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is not None and ready[0] is saved:
            return ready[1], ready[2]
        return self._store.load(saved), 0.0

    def prefetch(self, saved: Saved) -> None:
        """Have a state at hand, in place of the one before; callable in any thread."""
        start = time.perf_counter()
        try:
            state = self._store.load(saved)
        except DamagedError:
            self.notices.append(DAMAGED)
            self.discard(saved)
        except OSError:  # another process has removed it
            self.discard(saved)
        else:
            with self._lock:
                self._ready = saved, state, time.perf_counter() - start

    def at_hand(self, saved: Saved) -> bool:
        """Whether a state was read by `prefetch`, and nothing else since."""
        with self._lock:
            return self._ready is not None and self._ready[0] is saved

    def discard(self, saved: Saved) -> None:
        """Forget a state that turned out to be of no use."""
        with self._lock:
            known = self._listed.get(saved.owner)
            if known is not None:
                known.saved = [other for other in known.saved if other is not saved]

    def wants(self, owner: str, tokens: TokenIds) -> bool:
        """Whether a state of these tokens is neither there nor was refused."""
        if not len(tokens) or _digest(owner, tokens) in self._refused:
            return False
        return not any(
            len(s.tokens) == len(tokens) and bool((s.tokens == tokens).all())
            for s in self.of(owner)
        )

    def may_hold(self, n_bytes: int, cancelled: Cancelled) -> bool:
        """Whether a state of so many bytes may fit: it takes long to copy one."""
        return self._store.may_hold(n_bytes, cancelled)

    def write(self, state: State, seconds: float, cancelled: Cancelled) -> None:
        """Write a state that spares ``seconds``, in place of those that it covers."""
        replaced = [
            saved
            for saved in self.of(state.owner)
            if covers(state, saved.tokens, saved.ends, cuts_anywhere=self._cuts_anywhere)
        ]
        try:
            done = self._store.put(state, seconds, replaces=replaced, cancelled=cancelled)
        except (OSError, LocalspecError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            line = f"this chat's state cannot be kept on disk ({why}); resuming it will take longer"
            if line not in self._said:
                self._said.add(line)
                self.notices.append(line)
            done = False
        if not done and not cancelled():
            self._refused[_digest(state.owner, state.tokens)] = None
            if len(self._refused) > _REFUSED:
                del self._refused[next(iter(self._refused))]
