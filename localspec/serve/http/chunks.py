"""Bodies that come in chunks: a limit on how many, for each takes time, however small it is."""

from __future__ import annotations

from typing import Any

import h11

_AT_ONCE = 4000
"""Chunks of any size, of which h11 reads one in 5 µs; `json.JSONEncoder.iterencode` makes ten of a
short message."""
_BYTES = 64
"""One more for each so many bytes, up to as many as in the beginning."""
_SAID = "too many small chunks"


class Chunks(h11.Connection):
    """h11's side of a server that refuses a body in countless small chunks."""

    def __init__(self, max_incomplete_event_size: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._left = 0.0

    @property
    def too_many(self) -> bool:
        """Whether there were."""
        return self._left < 0

    def next_event(self) -> Any:
        """The next event.

        Raises:
            h11.RemoteProtocolError: it is none, or one of too many.
        """
        if self.too_many:  # of what came before the connection was closed
            raise h11.RemoteProtocolError(_SAID)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._left = _AT_ONCE
        elif isinstance(event, h11.Data) and event.chunk_end:
            self._left = min(self._left + len(event.data) / _BYTES, _AT_ONCE) - 1
            if self._left < 0:
                raise h11.RemoteProtocolError(_SAID)
        return event
