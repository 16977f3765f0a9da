"""The prefix cache: what was read for earlier requests is not read again.

Three places are looked through for the longest beginning of a prompt: the target's sequences, saved
states in memory, and saved states on disk. Whichever spares most seconds by the measured speeds is
taken, and none where reading is faster. Requests see only what requests of the same owner left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from localspec.core.errors import AuditError, DecodeError
from localspec.core.interrupt import Cancelled
from localspec.core.target import CacheableTarget
from localspec.drafters.base import Drafter
from localspec.prefix_cache.disk import DAMAGED, DiskStates
from localspec.prefix_cache.file_format import DamagedError
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.memory import MemoryStates
from localspec.prefix_cache.search import Rates, Search
from localspec.prefix_cache.sources import Live, Opened, Source
from localspec.prefix_cache.states import (
    NONE,
    Checkpoint,
    Conversation,
    Restored,
    State,
    TokenIds,
    token_ids,
)

WORTH_SECONDS = 0.2
"""Seconds of reading that a state must spare to be saved."""
_TIMES_WORTH = 2.0
"""How much longer reading must take than moving the state, for it to be saved."""
MOST_PAUSE = 0.2
"""Seconds for which a state is moved at most while other requests wait: it is moved in one step."""
_MOST_CHECKPOINTS = 8
"""Checkpoints of one sequence."""


class PrefixCache:
    """Restores beginnings of prompts into sequences of the target, and saves them.

    For each request: `restore`, `has_read` after each part of the prompt, `checkpoint` at the
    `positions` in it, and `finished` when no more tokens are appended. A sequence that is emptied
    by others in between is `lost`.
    """

    def __init__(self, target: CacheableTarget, drafter: Drafter, limit: int) -> None:
        """Saved states take at most ``limit`` bytes of memory."""
        self._target = target
        self._drafter = drafter
        anywhere = target.cuts_anywhere
        share = limit if anywhere else limit // 2  # the other half is for checkpoints
        self._memory = MemoryStates(share, cuts_anywhere=anywhere)
        self._checkpoint_bytes = limit - share
        self._disk: DiskStates | None = None
        self._rates = Rates()
        self._live: dict[int, Live] = {}
        """The contents of the target's sequences."""
        self._search = Search(target, drafter, self._live, self._memory, self._rates)
        self._turn = 0
        self._notices: list[str] = []

    def use_disk(self, store: KvStore) -> None:
        """Restore from disk too from now on, and write to it in `rest`."""
        self._disk = DiskStates(store, cuts_anywhere=self._target.cuts_anywhere)
        self._search.disk = self._disk

    # -- before a prompt is read ---------------------------------------------------------------

    def conversations(self, owner: str = "") -> list[Conversation]:
        """Texts and tokens of the owner's states on disk that were not asked for before: prompts
        that quote them must be tokenized as they were.
        """
        return self._disk.conversations(owner) if self._disk is not None else []

    def choose(self, prompt: Sequence[int], owner: str, free: Sequence[int]) -> int:
        """The one of the free sequences that the prompt is best read into: it shares most with the
        prompt, and what it loses is worth least.
        """
        ids = token_ids(prompt)

        def value(seq: int) -> tuple[float, int]:
            live = self._live.get(seq, Live())
            kept = self._search.in_place(seq, live, ids, owner).cut.length
            return kept - (len(live.tokens) - kept) / 2, -live.turn

        return max(free, key=value)

    def prefetch(self, prompt: Sequence[int], owner: str = "") -> None:
        """Read the file that `restore` is going to take for this prompt, if it takes one, while
        other requests run; callable in any thread.
        """
        if self._disk is not None:
            file = self._search.file(self._disk, token_ids(prompt), owner)
            if file is not None and self._memory.fits(file.n_bytes):
                self._disk.prefetch(file)

    def restore(
        self,
        seq: int,
        cached: Sequence[int],
        prompt: Sequence[int],
        owner: str = "",
        *,
        waited_for: bool = False,
    ) -> Restored:
        """Make the sequence hold the longest beginning of the prompt that is worth it, without the
        last token of the prompt. While it is ``waited_for`` by other requests, nothing is moved
        that takes longer than `MOST_PAUSE`.

        ``cached`` are its tokens until now. Afterwards it holds exactly the ``length`` tokens of
        the result: none after a restore that failed, and a notice says so.
        """
        started = time.perf_counter()
        ids, before = token_ids(prompt), self._live.get(seq)
        live = Live() if before is None else before
        live.keep(token_ids(cached))
        most = MOST_PAUSE if waited_for else math.inf
        best, opened, moving = self._opened(seq, live, ids, owner, most)
        self._turn += 1
        now = self._live[seq] = Live(owner, running=True, turn=self._turn)
        if before is None or before.owner != owner:
            self._drafter.close(seq)
        if not self._put(seq, opened, best) or best.cut.length == 0:
            return NONE
        self._learn(best, time.perf_counter() - moving + opened.spent)
        now.checkpoints = opened.checkpoints
        now.keep(ids[: best.cut.length])
        rate = self._rates.reading.per_second or best.rate
        spent = time.perf_counter() - started + opened.spent
        seconds = best.cut.length / rate - spent if rate > 0 else 0.0
        return Restored(best.cut.length, best.place, max(0.0, seconds))

    def positions(self, seq: int, prompt: Sequence[int], stable: int | None = None) -> list[int]:
        """Positions of the prompt at which to call `checkpoint`, in ascending order; none
        where the target can be truncated everywhere.

        They are the end of the ``stable`` beginning, which the next turn's prompt will have again
        (None: not known), and the position where the prompt leaves what others began with, since
        more may come that do so.
        """
        if self._target.cuts_anywhere:
            return []
        ids, live = token_ids(prompt), self._live[seq]
        most = len(ids) - 1
        leaves = self._search.longest(seq, ids, live.owner)
        ends = most if stable is None else min(stable, most)
        return sorted(at for at in {ends, min(leaves, most)} if at > len(live.tokens))

    # -- while and after a prompt is read ------------------------------------------------------

    def has_read(self, seq: int, part: Sequence[int], seconds: float | None) -> None:
        """A part of the prompt was appended to the sequence in ``seconds``; None where that time
        was not for reading alone.
        """
        live = self._live[seq]
        live.tokens = np.concatenate([live.tokens, token_ids(part)])
        if seconds is not None:
            self._rates.reading.add(len(part), seconds)

    def checkpoint(self, seq: int) -> None:
        """Save what truncation to the present length could not bring back, where it is worth it."""
        live, size = self._live[seq], self._target.checkpoint_size(seq)
        if self._rates.reading.seconds(len(live.tokens)) < self._rates.memory.seconds(size):
            return
        kept = list(live.checkpoints)
        taken = sum(len(c.state) for other in self._live.values() for c in other.checkpoints)
        while kept and (taken + size > self._checkpoint_bytes or len(kept) >= _MOST_CHECKPOINTS):
            taken -= len(kept.pop(0).state)
        if taken + size <= self._checkpoint_bytes:
            kept.append(Checkpoint(live.tokens, self._target.checkpoint(seq)))
        live.checkpoints = tuple(kept)

    def finished(self, seq: int, cached: Sequence[int]) -> None:
        """The request has ended; its sequence rests with these tokens."""
        live = self._live.get(seq)
        if live is not None:
            live.keep(token_ids(cached))
            live.running = False

    def describe(self, seq: int, conversation: Conversation) -> None:
        """The text of what rests in the sequence, for prompts that quote it after a restart."""
        if seq in self._live:
            self._live[seq].conversation = conversation

    def lost(self, seq: int) -> None:
        """The sequence was emptied."""
        self._live.pop(seq, None)

    def clear(self) -> None:
        """Forget everything but the files, and of running requests all but what they read."""
        self._memory.clear()
        for seq, live in [*self._live.items()]:
            if live.running:
                live.checkpoints = ()
            else:
                del self._live[seq]

    def take_notices(self) -> list[str]:
        """New notices for the user."""
        notices, self._notices = self._notices, []
        if self._disk is not None:
            notices += self._disk.notices
            self._disk.notices = []
        return list(dict.fromkeys(notices))

    def rest(self, cancelled: Cancelled) -> None:
        """Write to disk what is worth it, of sequences at rest and of memory, until ``cancelled``
        returns true.
        """
        disk, rates = self._disk, self._rates
        if disk is None:
            return
        for seq, live in list(self._live.items()):
            whole = self._target.length(seq) == len(live.tokens) and not live.running
            if whole and not cancelled() and disk.wants(live.owner, live.tokens):
                size = self._target.state_size(seq)
                moving = rates.disk.seconds(size)
                if self._spares(len(live.tokens), moving) and disk.may_hold(size, cancelled):
                    seconds = rates.reading.seconds(len(live.tokens))
                    disk.write(self._state(seq, live), seconds, cancelled)
        for state in self._memory.all():
            worth = self._spares(len(state.tokens), rates.disk.seconds(state.n_bytes))
            if worth and not cancelled() and disk.wants(state.owner, state.tokens):
                disk.write(state, rates.reading.seconds(len(state.tokens)), cancelled)

    def _opened(
        self, seq: int, live: Live, prompt: TokenIds, owner: str, most: float
    ) -> tuple[Source, Opened, float]:
        """The best source that can be read and moved in ``most`` seconds, and the time when reading
        it began; what the sequence will lose is saved.
        """
        while True:
            best = self._search.best(seq, live, prompt, owner, most)
            self._displace(seq, live, best, most)
            start = time.perf_counter()
            try:
                return best, best.open(), start
            except DamagedError:
                self._notices.append(DAMAGED)
            except OSError:  # another process has removed it to make room
                pass
            self._forget(best)

    def _forget(self, source: Source) -> None:
        """A source turned out to be of no use."""
        if isinstance(source.saved, State):
            self._memory.remove(source.saved)
        elif source.saved is not None and self._disk is not None:
            self._disk.discard(source.saved)

    def _put(self, seq: int, opened: Opened, source: Source) -> bool:
        """Fill the sequence; if that fails, it is empty and the source forgotten."""
        try:
            opened.put(self._target, self._drafter, seq)
        except (AuditError, DecodeError) as error:
            self._forget(source)
            self._target.truncate(seq, 0)
            self._target.audit(seq)
            self._notices.append(
                f"what was read before could not be used ({error}); it is read again"
            )
            return False
        return True

    def _learn(self, source: Source, seconds: float) -> None:
        """Record how long a restore took, and that it was of use."""
        if source.place == "disk":
            self._rates.disk.add(source.n_bytes, seconds)
        elif source.place != "sequence":
            self._rates.memory.add(source.n_bytes, seconds)
        if isinstance(source.saved, State):
            self._memory.used(source.saved)

    def _displace(self, seq: int, live: Live, best: Source, most: float) -> None:
        """Save in memory what the sequence is about to lose, where that is the larger part of it,
        worth it, and done in ``most`` seconds.
        """
        lost = len(live.tokens) - (best.cut.length if best.place == "sequence" else 0)
        whole = self._target.length(seq) == len(live.tokens)
        if not whole or 2 * lost <= len(live.tokens):
            return
        if self._memory.has(live.owner, live.tokens):
            return
        size = self._target.state_size(seq)
        moving = self._rates.memory.seconds(size)
        if moving <= most and self._memory.fits(size) and self._spares(lost, moving):
            self._memory.add(self._state(seq, live), self._rates.reading.seconds(lost))

    def _spares(self, tokens: int, moving: float) -> bool:
        """Whether ``tokens`` are worth saving, if moving their state takes ``moving`` seconds."""
        return self._rates.reading.seconds(tokens) > max(WORTH_SECONDS, _TIMES_WORTH * moving)

    def _state(self, seq: int, live: Live) -> State:
        start = time.perf_counter()
        data = self._target.state(seq)
        self._rates.memory.add(len(data), time.perf_counter() - start)
        return State(
            owner=live.owner,
            tokens=live.tokens,
            state=data,
            checkpoints=live.checkpoints,
            drafts=self._drafter.state(seq, live.tokens.tolist()),
            rate=self._rates.reading.per_second,
            conversation=live.conversation,
        )
