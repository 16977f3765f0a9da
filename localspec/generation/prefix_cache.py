"""Going on with a conversation of an earlier session: its KV cache comes from disk where that is
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

_BYTES_PER_SECOND = 300e6
"""Of a disk that has not been measured yet."""
_WORTH_SECONDS = 0.2
"""A state that spares less is not worth its place on the disk."""


class PrefixCache:
    """The states of one runtime's setting."""

    def __init__(self, shelf: KvStore, target: SavesState, transcript: Transcript) -> None:
        self._shelf = shelf
        self._target = target
        self._transcript = transcript
        self._saved: list[Saved] | None = None
        self._disk = _BYTES_PER_SECOND
        self._read_tokens, self._read_seconds = 0, 0.0
        self._kept: tuple[int, ...] = ()
        self._notices: list[str] = []

    def prepare(self) -> None:
        """Look once what there is, so that its texts are cut into tokens as they were then."""
        if self._saved is not None:
            return
        self._saved, damaged = self._shelf.saved()
        for saved in self._saved:
            self._transcript.remember(saved.text, list(saved.tokens))
        if damaged:
            self._tell_damaged()

    def has_read(self, tokens: int, seconds: float) -> None:
        """How long reading a part of a prompt took."""
        self._read_tokens += tokens
        self._read_seconds += seconds

    def take_notices(self) -> list[str]:
        """What the person should know and has not been told."""
        notices, self._notices = self._notices, []
        return notices

    def restore(self, seq: int, held: Sequence[int], prompt: Sequence[int]) -> list[int]:
        """Put the state with the longest beginning of ``prompt`` in place of what is held, if that
        is faster than reading; the tokens held then.
        """
        self.prepare()
        assert self._saved is not None
        have = common_prefix(held, prompt)
        best = max(self._saved, key=lambda saved: self._usable(saved, prompt), default=None)
        if best is None:
            return list(held)
        spared = self._usable(best, prompt) - have
        rate = self._rate() or best.rate
        if spared <= 0 or spared / rate <= best.n_bytes / self._disk:
            return list(held)
        start = time.perf_counter()
        try:
            state = self._shelf.load(best)
            self._target.restore(seq, state)
        except OSError:  # gone in the meantime: another process needed the room
            self._saved.remove(best)
            return list(held)
        except (DamagedError, DecodeError) as error:
            self._saved.remove(best)
            remove(best.path)
            self._tell_damaged()
            return list(held) if isinstance(error, DamagedError) else []
        self._disk = best.n_bytes / max(time.perf_counter() - start, 1e-6)
        self._kept = best.held
        return list(best.held)

    def _usable(self, saved: Saved, prompt: Sequence[int]) -> int:
        """Tokens of the prompt that need not be read once this state is restored."""
        length = min(common_prefix(saved.held, prompt), len(prompt) - 1)
        return length if self._target.can_cut(len(saved.held), length) else 0

    def keep(
        self,
        seq: int,
        held: Sequence[int],
        text: str,
        tokens: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> None:
        """Save what is held, where reading it again would take longer than restoring it.

        ``text`` is that of the conversation, ``tokens`` are those that it was made of.
        """
        rate = self._rate()
        if not rate or self._kept == tuple(held):
            return
        seconds = len(held) / rate
        if seconds < max(_WORTH_SECONDS, 2 * self._target.state_size(seq) / self._disk):
            return
        try:
            done = self._shelf.put(
                held=held,
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
            self._kept = tuple(held)
            self._saved = None  # look again before the next one is needed

    def _rate(self) -> float:
        """Tokens per second of reading prompts; 0 if none was read yet."""
        return self._read_tokens / self._read_seconds if self._read_seconds > 0 else 0.0

    def _tell(self, line: str) -> None:
        if line not in self._notices:
            self._notices.append(line)

    def _tell_damaged(self) -> None:
        self._tell("a saved state of an earlier chat was damaged and is ignored; it is read again")
