"""Text, origins and figures of a reply that a remote engine streams."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable

from localspec.core.emitted import SERVER, Origin
from localspec.core.errors import RemoteError
from localspec.core.events import (
    Clock,
    Finished,
    FinishReason,
    Reading,
    Reply,
    ReplyEvent,
    Round,
    Speculation,
    Stats,
    Token,
)
from localspec.core.round_counts import RoundCounts, RoundFigures
from localspec.remote.chunk import Chunk
from localspec.remote.measured import Arrivals
from localspec.remote.probe import NOT_REPORTED
from localspec.remote.reported import Reported

NO_ID = -1
"""Token id of a token that the engine does not name."""
_LARGEST = 16 << 20
"""Characters and tokens of a reply; no context holds more."""
_WIDEST = 1024
"""Tokens of a draft, and of one event of few characters: a server that names more counts something
else."""
_TOKENS_PER_CHARACTER = 4
"""At most: one for each byte of UTF-8."""
_MOST_IDS = 1 << 16
"""Ids of tokens of one event, which are 0.1 s of computing."""
_FASTEST = 5000.0
"""Tokens per second beyond which a reply was not streamed but held back on its way, where the
engine does not tell how long it decoded."""
_FEWEST = 32
"""Fewest tokens of a reply that is judged so."""
_LONG_SECONDS, _SQUEEZED = 0.5, 0.1
"""Where the engine tells: a reply that was decoded for longer than these seconds, and arrived
within this part of that time, was held back."""
_FEWEST_TIMED = 8
"""Fewest tokens whose time by the engine's clock tells a speed: of one, llama-server says 0.001 ms.
"""
_IMPOSSIBLE = 20_000.0
"""Tokens per second that no model decodes for one reply."""
_THINK, _THOUGHT = "<think>\n", "\n</think>\n\n"
_NOTHING = Speculation("off", "the server drafted nothing in this reply", "nothing drafted")


class Tally:
    """Counts of one reply as it grows.

    llama-server sends its counts of drafted and accepted tokens with every token. A token with
    which they grow is the first one of a round; so the origin of each token is known. `localspec
    serve` names the origins, and a token that was not accepted is the last one of its round. Other
    engines report the sums at the end, or nothing, and their tokens are of unknown origin.
    """

    def __init__(
        self,
        seed: int,
        speculation: Speculation,
        clock: Callable[[], float] = time.monotonic,
        *,
        first_untimed: bool = False,
    ) -> None:
        """``speculation`` is the server's own statement; ``first_untimed`` whether its clock starts
        when the first token is there. The request is sent now.
        """
        self.seed = seed
        self.reported: Reported | None = None
        """The engine's report; callers may set one that they found elsewhere."""
        self.finish_reason: FinishReason | None = None
        self._speculation = speculation
        self._first_untimed = first_untimed
        self._clock = clock
        self._arrivals = Arrivals(clock())
        self._round_began = self._arrivals.began
        self._text: list[str] = []
        self._characters = 0
        self._ids: list[int] = []
        self._origins: list[Origin] = []
        self._thinking = False
        self._told = False
        """Whether each token comes with the counts of drafts."""
        self._named = False
        """Whether the engine names the origin of each token."""
        self._drafts = False
        """Whether any of those origins is one of a draft."""
        self._pending: deque[Origin] = deque()
        """Origins of the tokens of the present round that have not arrived yet."""
        self._round = (0, 0)
        """Drafted and accepted tokens of the present round."""
        self._since = 0
        """Tokens of the present round."""
        self._announced = RoundCounts()
        """Rounds of which drafted and accepted tokens were told with the first one."""
        self._emitted = 0
        self._prompt = self._cached = 0
        self._prompt_seconds: float | None = None
        self._decode_seconds: float | None = None
        self._round_clock = 0.0

    def take(self, chunk: Chunk) -> list[ReplyEvent]:
        """The events of a chunk.

        Raises:
            RemoteError: the reply is longer than any context.
        """
        events: list[ReplyEvent] = []
        if chunk.progress is not None:
            events.append(Reading(*chunk.progress))
            self._prompt = chunk.progress[1]
        text = self._shown(chunk)
        most = min(max(_WIDEST, _TOKENS_PER_CHARACTER * len(text)), _MOST_IDS)
        if len(chunk.tokens or ()) > most:
            chunk = dataclasses.replace(chunk, tokens=None, origins=())
        count = self._tokens_in(chunk, text)
        self._characters += len(text)
        if max(self._characters, len(self._ids) + count) > _LARGEST:
            raise RemoteError(f"the server sent a reply of more than {_LARGEST >> 20} MB")
        self._note(chunk)
        if text or count:
            events += self._emit(text, count, chunk)
        if chunk.finish is not None and self._named and self._since:
            events.append(self._end_round(self._clock(), chunk))
        self.finish_reason = chunk.ends or self.finish_reason
        return events

    def _shown(self, chunk: Chunk) -> str:
        """The text of a chunk, with thinking between the marks that models write themselves."""
        text = ""
        if chunk.thought:
            text = chunk.thought if self._thinking else _THINK + chunk.thought
            self._thinking = True
        if self._thinking and (chunk.text or chunk.finish is not None):
            text += _THOUGHT
            self._thinking = False
        return text + chunk.text

    def _tokens_in(self, chunk: Chunk, text: str) -> int:
        """Number of tokens that a chunk adds."""
        if chunk.tokens is not None:
            return len(chunk.tokens)
        if chunk.timed and chunk.emitted is not None:
            return min(max(0, chunk.emitted - len(self._ids)), _WIDEST)
        return 1 if text else 0

    def _note(self, chunk: Chunk) -> None:
        """Take over the figures of a chunk."""
        if chunk.emitted is not None:
            self._emitted = chunk.emitted
        if chunk.prompt_tokens is not None:
            self._prompt = chunk.prompt_tokens
        if chunk.cached_tokens is not None:
            self._cached = chunk.cached_tokens
        if chunk.prompt_seconds is not None:
            self._prompt_seconds = chunk.prompt_seconds
        if chunk.decode_seconds is not None:
            self._decode_seconds = chunk.decode_seconds
        before, now = self.reported, chunk.reported
        if now is None:
            return
        self.reported = now
        drafted = now.drafted - (before.drafted if before is not None else 0)
        accepted = now.accepted - (before.accepted if before is not None else 0)
        if chunk.timed and chunk.finish is None and 0 <= accepted <= drafted <= _WIDEST and drafted:
            last = Origin.CORRECTED if accepted < drafted else Origin.BONUS
            self._pending = deque([Origin.ACCEPTED] * accepted + [last])
            self._round = (drafted, accepted)
            self._announced.add(self._figures(0, 0.0))

    def _emit(self, text: str, count: int, chunk: Chunk) -> list[ReplyEvent]:
        """Tokens, and the round that they end; text without a token of its own joins the last."""
        now = self._clock()
        if not self._ids:
            self._round_began = now
        self._arrivals.add(max(count, bool(text)), now)
        self._told = self._told or (chunk.timed and chunk.finish is None)
        if count:
            origins = [origin for origin, _ in chunk.origins[:count]]
            known = len(origins) == count and Origin.UNKNOWN not in origins
            self._named = known and not self._told
        events: list[ReplyEvent] = []
        self._text.append(text)
        ids = chunk.tokens if chunk.tokens is not None else (NO_ID,) * max(count, bool(text))
        for at, id in enumerate(ids):  # noqa: A001
            if at < len(chunk.origins):
                origin, source = chunk.origins[at]
            else:
                origin = self._origin(chunk)
                source = SERVER if origin is Origin.ACCEPTED else None
            if self._named:
                self._count_in(origin)
            self._ids.append(id)
            self._origins.append(origin)
            self._since += 1
            events.append(Token(id, text if at == len(ids) - 1 else "", origin, source))
            if self._ends_round(origin):
                events.append(self._end_round(now, chunk))
        if text and not ids:
            events.append(Token(NO_ID, text, Origin.UNKNOWN, None))
        if not self._told and not self._named and self._since:
            events.append(self._end_round(now, chunk))
        return events

    def _origin(self, chunk: Chunk) -> Origin:
        if not (chunk.timed and self._told):
            return Origin.UNKNOWN
        return self._pending.popleft() if self._pending else Origin.PLAIN

    def _count_in(self, origin: Origin) -> None:
        """Count a token of the present round by its origin. A draft that failed had more tokens
        than the judged ones, perhaps; how many is not told.
        """
        drafted, accepted = self._round
        kept, missed = origin is Origin.ACCEPTED, origin is Origin.CORRECTED
        self._round = drafted + (kept or missed), accepted + kept
        self._drafts = self._drafts or kept or missed

    def _ends_round(self, origin: Origin) -> bool:
        """Whether the last token is the last one of its round, as far as that is told."""
        if self._named:
            return origin is not Origin.ACCEPTED
        return self._told and not self._pending

    def _end_round(self, now: float, chunk: Chunk) -> Round:
        seconds = now - self._round_began
        if chunk.decode_seconds is not None and self._told:  # by the engine's clock
            seconds = max(0.0, chunk.decode_seconds - self._round_clock)
            self._round_clock = chunk.decode_seconds
        done = Round(
            **dataclasses.asdict(self._figures(self._since, seconds)),
            context_used=self._prompt + len(self._ids) if self._prompt else 0,
            speculation=self._state(final=False),
        )
        self._round, self._since, self._round_began = (0, 0), 0, now
        return done

    def _figures(self, emitted: int, seconds: float) -> RoundFigures:
        """The present round."""
        drafted, accepted = self._round
        missed = accepted < drafted
        return RoundFigures(
            drafted=drafted,
            verified=accepted + missed,
            accepted=accepted,
            emitted=emitted,
            draft_seconds=0.0,
            verify_seconds=0.0,
            seconds=seconds,
            source=SERVER if drafted else "",
            corrected=int(missed),
        )

    def _state(self, *, final: bool) -> Speculation:
        """The state of speculation, as far as it was told."""
        told = self._told or self._named
        reported = self.reported if told or final else None  # sums tell nothing about a round
        if (self._named and self._drafts) or (reported is not None and reported.drafted):
            return Speculation("on")
        if self._speculation.state == "off":
            return self._speculation
        unknown = self._speculation.state == "unknown"
        if reported is not None or (told and (final or unknown)):
            return _NOTHING
        return self._speculation if told else NOT_REPORTED

    @property
    def held_back(self) -> bool:
        """Whether the reply came all at once, although it was asked for as a stream."""
        span = self._arrivals.span
        if self._decode_seconds is not None:
            return self._decode_seconds > _LONG_SECONDS and span < _SQUEEZED * self._decode_seconds
        return self._count >= _FEWEST and span * _FASTEST < self._count

    @property
    def _count(self) -> int:
        """Tokens so far, by the engine or by what arrived, whichever are more."""
        return max(self._emitted, len(self._ids))

    @property
    def begun(self) -> bool:
        """Whether anything of the reply has arrived."""
        return bool(self._text)

    def finished(self, reason: FinishReason) -> Finished:
        """The end of the reply."""
        known = NO_ID not in self._ids
        reply = Reply(
            text="".join(self._text),
            tokens=tuple(self._ids) if known else (),
            origins=tuple(self._origins) if Origin.UNKNOWN not in self._origins else (),
            finish_reason=reason,
            stats=self._stats(),
            seed=self.seed,
        )
        return Finished(reply)

    def _stats(self) -> Stats:
        emitted = self._emitted or len(self._ids)
        reported, state = self.reported, self._state(final=True)
        told = self._told and reported is not None
        # What grows with the end alone is of a round whose first token ends the text.
        judged = self._announced if told else reported
        accepted = min(judged.accepted, emitted) if judged is not None else 0
        counted = self._told or reported is not None or state.state == "off"
        clock, prompt, decode = self._seconds()
        return Stats(
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            emitted=emitted,
            # Each round emits one token of the target behind the accepted ones.
            rounds=emitted - accepted if counted else 0,
            drafted=reported.drafted if reported is not None else 0,
            verified=(judged and judged.verified) or 0,
            accepted=accepted,
            per_position=self._announced.per_position
            or (reported.per_position if reported is not None else ()),
            by_drafter={},
            prompt_seconds=prompt,
            decode_seconds=decode,
            draft_seconds=0.0,
            verify_seconds=0.0,
            speculation=state,
            clock=clock,
        )

    def _seconds(self) -> tuple[Clock, float, float]:
        """Seconds of reading and of decoding; the engine's own, where it tells them and they can
        be.
        """
        arrivals = self._arrivals
        decode = self._told_seconds()
        if decode is not None:
            return "engine", self._prompt_seconds or 0.0, decode
        if not self._text:
            return "request", self._clock() - arrivals.began, 0.0
        if self.held_back or arrivals.decoding is None:
            whole = arrivals.last - arrivals.began
            known = self._count <= _IMPOSSIBLE * whole
            return "request", 0.0, whole if known else 0.0
        return "arrivals", arrivals.first - arrivals.began, arrivals.decoding

    def _told_seconds(self) -> float | None:
        """Seconds of decoding by the engine's clock; None where it tells none, has timed too few
        tokens, or tells what cannot be.
        """
        seconds, tokens = self._decode_seconds, self._count
        if seconds is None or tokens < _FEWEST_TIMED:
            return None
        if self._first_untimed:
            seconds *= tokens / (tokens - 1)
        return seconds if tokens <= _IMPOSSIBLE * seconds else None
