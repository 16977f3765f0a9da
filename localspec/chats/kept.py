"""What a saver holds of each chat: what is on disk, and what is not yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.chats.values import Chat, ChatInfo, ChatMessage

ERASED = "it was erased elsewhere"


@dataclass(slots=True)
class Kept:
    """One chat of a saver."""

    info: ChatInfo
    info_waits: bool = False
    """Whether its info has changed since it was saved."""
    waiting: dict[int, ChatMessage] = field(default_factory=dict)
    """Messages to be saved, by id."""
    saved: dict[int, ChatMessage] = field(default_factory=dict)
    """Messages on disk; saved again where the file is replaced by another one."""
    given: frozenset[str] = frozenset()
    """What of the info the user has given and is not saved, see `rows.GIVE`."""
    why: str | None = None
    """Why what waits cannot be saved."""
    erased: bool = False
    """Erased elsewhere: nothing of it is written any more."""
    retry_at: float = 0.0
    """When to try again what the file did not take."""
    removed: bool = False
    """Whether it was taken off the list elsewhere."""

    @property
    def waits(self) -> bool:
        """Whether there is something to be saved."""
        return not self.erased and (self.info_waits or bool(self.waiting))

    @property
    def unsaved(self) -> str | None:
        """A line about messages that are not saved; None where all are."""
        if self.why is None or not self.waiting:
            return None
        count = len(self.waiting)
        messages = "1 message" if count == 1 else f"{count} messages"
        return f'{messages} of "{self.info.title}" not saved: {self.why}'

    def take(self) -> Part:
        """What is to be saved now; it does not wait any more."""
        part = Part(self, self.info, self.waiting, self.given, info_changed=self.info_waits)
        self.info_waits, self.waiting, self.given = False, {}, frozenset()
        return part


@dataclass(frozen=True, slots=True)
class Part:
    """What is saved of a chat at one time."""

    kept: Kept
    info: ChatInfo
    messages: dict[int, ChatMessage] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    info_changed: bool = False

    @property
    def id(self) -> str:
        """The chat's id."""
        return self.info.id

    @property
    def before(self) -> dict[int, ChatMessage]:
        """Its messages as they were saved last."""
        saved = self.kept.saved
        return {key: saved[key] for key in self.messages if key in saved}

    @property
    def known(self) -> Chat:
        """What was on disk before."""
        saved = self.kept.saved
        return Chat(self.info, tuple(saved[key] for key in sorted(saved)))

    def is_not_saved(self) -> None:
        """It waits again; what came in between is newer."""
        self.kept.info_waits |= self.info_changed
        self.kept.waiting = self.messages | self.kept.waiting
        self.kept.given |= self.given
