"""Where an emitted token came from."""

from __future__ import annotations

import enum

SERVER = "server"
"""Source of tokens that a server drafted: it does not name its drafter."""


class Origin(enum.StrEnum):
    """Where an emitted token came from."""

    ACCEPTED = "accepted"
    """Drafted, and the target agreed."""
    CORRECTED = "corrected"
    """The target's replacement at the first miss."""
    BONUS = "bonus"
    """The target's extra token after every drafted one was accepted."""
    PLAIN = "plain"
    """Nothing was drafted in this round."""
    UNKNOWN = "unknown"
    """A server does not tell."""
