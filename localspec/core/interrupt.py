"""How a running computation is told to stop."""

from __future__ import annotations

from typing import Protocol


class StopSignal(Protocol):
    """A flag that any thread may set; whoever computes looks at it between two passes or in one."""

    def set(self) -> None:
        """Stop what runs."""
        ...

    def clear(self) -> None:
        """Let it run again."""
        ...

    def is_set(self) -> bool:
        """Whether it was told to stop."""
        ...


__all__ = ["StopSignal"]
