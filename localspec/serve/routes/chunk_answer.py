"""What the answers of chat completions and of completions share: choices, whole or in chunks, the
usage, ``[DONE]``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats, Token
from localspec.serve.backend.answering import Answering, Replies
from localspec.serve.http.sse import DONE, Chunks
from localspec.serve.replies.answer_fields import REASONS, head, measurements, own
from localspec.serve.requests.generation import Extras
from localspec.serve.routes.replying import A, Answer

Chunk = dict[str, Any]
"""A chunk without the fields that all chunks of a stream have."""


class ChunkAnswer(Answer[A]):
    """An answer with choices."""

    tells_origins = False
    prefix: str
    """Beginning of its id."""
    type: str
    """Its ``object``."""
    chunk_type: str
    """``object`` of the chunks of a stream."""
    nothing: ClassVar[dict[str, Any]]
    """What a choice of a chunk has where nothing is said."""

    def __init__(self, answering: Answering, asked: A) -> None:
        super().__init__(answering, asked)
        self._finished: dict[int, Stats] = {}
        self._prompts_read: dict[int, int] = {}
        self._emitted: Counter[int] = Counter()
        """Tokens of each reply so far, and above those of its prompt, for the usage so far."""

    @abstractmethod
    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        """``usage`` of the whole answer, from the figures of its replies."""

    # -- in one piece --------------------------------------------------------------------------

    def _whole(self, found: Replies) -> dict[str, Any]:
        stats = [reply.stats for _, reply in found]
        return {
            **head(self.prefix, self.type, self._model),
            "choices": [
                self._choice(index, events, reply) for index, (events, reply) in enumerate(found)
            ],
            "usage": self._usage(stats),
            **measurements(stats[0]),
        }

    @abstractmethod
    def _choice(self, index: int, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        """A choice, of all events of its reply."""

    # -- in chunks -----------------------------------------------------------------------------

    @cached_property
    def _chunks(self) -> Chunks:
        return Chunks(head(self.prefix, self.chunk_type, self._model))

    def _first_of(self, index: int, events: Sequence[ReplyEvent]) -> Iterable[Chunk]:
        """The chunks that come before all others of a reply, with the next of its events."""
        del index, events
        return ()

    def _pieces(self, index: int, events: Sequence[ReplyEvent]) -> Iterator[bytes]:
        if self._asked.extras.continuous_usage:
            self._count(index, events)
        yield from map(self._chunks.sse, self._first_of(index, events))
        if self._asked.extras.progress:
            yield from map(self._chunks.sse, self._progress(index, events))
        yield from map(self._chunks.sse, self._round(index, events))
        last = events[-1]
        if not isinstance(last, Finished):
            return
        self._finished[index] = last.reply.stats
        yield self._chunks.sse(self._last_chunk(index, last.reply))
        over = len(self._finished) == self._answering.size
        if over and self._asked.extras.include_usage:
            stats = [self._finished[index] for index in range(self._answering.size)]
            yield self._chunks.sse({"choices": [], "usage": self._usage(stats)})
        if over:
            yield DONE

    def _count(self, index: int, events: Sequence[ReplyEvent]) -> None:
        for event in events:
            if isinstance(event, Token):
                self._emitted[index] += 1
            elif isinstance(event, Reading):
                self._prompts_read[index] = event.total

    def _progress(self, index: int, events: Sequence[ReplyEvent]) -> Iterator[Chunk]:
        """llama.cpp's chunks that tell how much of a prompt was read."""
        for event in events:
            if isinstance(event, Reading):
                read = {"total": event.total, "cache": event.cached, "processed": event.done}
                yield self._chunk(index, self.nothing) | {"prompt_progress": read}

    @abstractmethod
    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        """The chunks of a round, but for the last one of a reply."""

    def _reason(self, index: int, reply: Reply) -> str:
        """``finish_reason``."""
        del index
        return REASONS[reply.finish_reason]

    def _chunk(self, index: int, content: dict[str, Any], **more: Any) -> Chunk:
        """A chunk of one choice; ``more`` are further fields of it."""
        choice = {"index": index} | content | {"logprobs": None, "finish_reason": None} | more
        chunk: Chunk = {"choices": [choice]}
        if self._asked.extras.continuous_usage:
            prompt, emitted = self._prompts_read.get(index, 0), self._emitted[index]
            counts = {"prompt_tokens": prompt, "completion_tokens": emitted}
            chunk["usage"] = counts | {"total_tokens": prompt + emitted}
        elif self._asked.extras.include_usage:
            chunk["usage"] = None
        return chunk

    def _last_chunk(self, index: int, reply: Reply) -> Chunk:
        """The chunk that says why the reply ended, with its figures."""
        said = own(self._told[index], reply, Extras(notices=self._asked.extras.notices))
        reason = self._reason(index, reply)
        chunk = self._chunk(index, self.nothing, finish_reason=reason, localspec=said)
        return chunk | measurements(reply.stats)
