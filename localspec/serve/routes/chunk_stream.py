"""The stream of chat completions and of completions: chunks of choices, the usage, ``[DONE]``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from localspec.core.events import Notice, Reading, Reply, ReplyEvent, Stats, Token
from localspec.serve.backend.answering import Answering
from localspec.serve.http.sse import DONE, Chunks
from localspec.serve.replies.answer_fields import head, measurements, own
from localspec.serve.replies.deltas import rounds
from localspec.serve.requests.generation import Extras

Chunk = dict[str, Any]
"""A chunk without the fields that all chunks of a stream have."""


class ChunkStream(ABC):
    """An answer as it comes; `kind` and `type` are the prefix of its id and its ``object``."""

    kind: str
    type: str

    def __init__(self, answering: Answering, extras: Extras) -> None:
        self._answering = answering
        self._extras = extras
        self._finished: dict[int, Stats] = {}
        self._prompts_read: dict[int, int] = {}
        self._emitted: Counter[int] = Counter()
        """Tokens of each reply so far, and above those of its prompt."""
        self._told: dict[int, list[Notice]] = {}
        """Notices of each reply."""

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes of the stream; each item has all chunks that are there.

        Raises:
            ApiError: there is no engine, or a reply failed.
        """
        last = b""
        async with self._answering as answering:
            chunks = Chunks(head(self.kind, self.type, answering.record.model))
            if first := await self._opening():
                yield b"".join(map(chunks.sse, first))
            async for index, events in answering:
                last = b"".join(
                    chunks.sse(chunk)
                    for part in rounds(events)
                    for chunk in self._counted(index, part)
                )
                if len(self._finished) < answering.size:
                    yield last  # the last one goes with what ends the stream
        if self._extras.include_usage:
            stats = [self._finished[index] for index in range(answering.size)]
            last += chunks.sse({"choices": [], "usage": self._usage(stats)})
        yield last + DONE

    def _counted(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        """The chunks of a round, whose tokens are counted first."""
        for event in events:
            if isinstance(event, Token):
                self._emitted[index] += 1
            elif isinstance(event, Reading):
                self._prompts_read[index] = event.total
            elif isinstance(event, Notice):
                self._told.setdefault(index, []).append(event)
        return self._round(index, events)

    async def _opening(self) -> list[Chunk]:
        """The chunks before those of the replies."""
        return []

    @abstractmethod
    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        """The chunks of a round."""

    @abstractmethod
    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        """``usage`` of the whole answer, from the figures of its replies."""

    def _chunk(self, index: int, content: dict[str, Any], **more: Any) -> Chunk:
        """A chunk of one choice; ``more`` are further fields of it."""
        choice = {"index": index} | content | {"logprobs": None, "finish_reason": None} | more
        chunk: Chunk = {"choices": [choice]}
        if self._extras.continuous_usage:
            prompt, emitted = self._prompts_read.get(index, 0), self._emitted[index]
            counts = {"prompt_tokens": prompt, "completion_tokens": emitted}
            chunk["usage"] = counts | {"total_tokens": prompt + emitted}
        elif self._extras.include_usage:
            chunk["usage"] = None
        return chunk

    def _last_chunk(
        self,
        index: int,
        content: dict[str, Any],
        reason: str,
        reply: Reply,
    ) -> Chunk:
        """The chunk that says why the reply ended, with its figures."""
        self._finished[index] = reply.stats
        chunk = self._chunk(
            index,
            content,
            finish_reason=reason,
            localspec=own(self._told.get(index, ()), reply, Extras(notices=self._extras.notices)),
        )
        return chunk | measurements(reply.stats)
