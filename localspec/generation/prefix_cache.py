"""Resuming a conversation of an earlier session: its KV cache is restored from disk where that is
faster than reading the prompt again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from localspec.core.target import SavesState
from localspec.drafters.model.interface import common_prefix
from localspec.errors import DecodeError, LocalspecError
from localspec.generation.chat_template import Transcript
from localspec.generation.kv_files import DamagedError, KvStore, Saved, remove

BYTES_PER_SECOND = 300e6
"""Assumed speed of a disk that has not been measured yet."""
WORTH_SECONDS = 0.2
"""Seconds of prefill that a state must spare to be saved."""


class PrefixCache:
    """The saved states of one setting (model, context, devices)."""

    def __init__(self, store: KvStore, target: SavesState, transcript: Transcript) -> None:
        self._store = store
        self._target = target
        self._transcript = transcript
        self._saved: list[Saved] | None = None
        self._disk = BYTES_PER_SECOND
        self._read_tokens, self._read_seconds = 0, 0.0
        self._newest: tuple[int, ...] = ()
        """Tokens of the state that was saved or restored last."""
        self._notices: list[str] = []

    def prepare(self) -> None:
        """List the saved states once, so that their texts are tokenized as they were then."""
        if self._saved is not None:
            return
        self._saved, damaged = self._store.saved()
        for saved in self._saved:
            self._transcript.remember(saved.text, list(saved.tokens))
        if damaged:
            self._tell_damaged()

    def has_read(self, tokens: int, seconds: float) -> None:
        """Record how long it took to read a part of a prompt."""
        self._read_tokens += tokens
        self._read_seconds += seconds

    def take_notices(self) -> list[str]:
        """New notices for the user."""
        notices, self._notices = self._notices, []
        return notices

    def restore(self, seq: int, cached: Sequence[int], prompt: Sequence[int]) -> list[int]:
        """Replace the cached tokens by the state with the longest beginning of ``prompt``, if that
        is faster than reading; returns the tokens cached then.
        """
        self.prepare()
        assert self._saved is not None
        have = common_prefix(cached, prompt)
        best = max(self._saved, key=lambda saved: self._usable(saved, prompt), default=None)
        if best is None:
            return list(cached)
        spared = self._usable(best, prompt) - have
        rate = self._rate() or best.rate
        if spared <= 0 or spared / rate <= best.n_bytes / self._disk:
            return list(cached)
        start = time.perf_counter()
        try:
            state = self._store.load(best)
            self._target.restore(seq, state)
        except OSError:  # another process has removed it to make room
            self._saved.remove(best)
            return list(cached)
        except (DamagedError, DecodeError) as error:
            self._saved.remove(best)
            remove(best.path)
            self._tell_damaged()
            return list(cached) if isinstance(error, DamagedError) else []
        self._disk = best.n_bytes / max(time.perf_counter() - start, 1e-6)
        self._newest = best.cached
        return list(best.cached)

    def _usable(self, saved: Saved, prompt: Sequence[int]) -> int:
        """Tokens of the prompt that need not be read once this state is restored."""
        length = min(common_prefix(saved.cached, prompt), len(prompt) - 1)
        return length if self._target.can_cut(len(saved.cached), length) else 0

    def save(
        self,
        seq: int,
        cached: Sequence[int],
        text: str,
        tokens: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> None:
        """Save the cached tokens' state where reading them takes longer than restoring it.

        ``text`` is that of the conversation, ``tokens`` are its tokens.
        """
        rate = self._rate()
        if not rate or self._newest == tuple(cached):
            return
        seconds = len(cached) / rate
        if seconds < max(WORTH_SECONDS, 2 * self._target.state_size(seq) / self._disk):
            return
        try:
            done = self._store.put(
                cached=cached,
                text=text,
                tokens=tokens,
                rate=rate,
                state=self._target.state(seq),
                cancelled=cancelled,
            )
        except (OSError, LocalspecError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._tell(
                f"this chat's state cannot be kept on disk ({why}); resuming it will take longer"
            )
            return
        if done:
            self._newest = tuple(cached)
            self._saved = None  # listed again before the next one is needed

    def _rate(self) -> float:
        """Tokens per second of reading prompts; 0 if none was read yet."""
        return self._read_tokens / self._read_seconds if self._read_seconds > 0 else 0.0

    def _tell(self, line: str) -> None:
        if line not in self._notices:
            self._notices.append(line)

    def _tell_damaged(self) -> None:
        self._tell("a saved state of an earlier chat was damaged and is ignored; it is read again")


__all__ = ["BYTES_PER_SECOND", "WORTH_SECONDS", "PrefixCache"]
