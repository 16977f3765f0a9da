"""An engine without a process or a model: it replays rounds."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from dataclasses import dataclass, field

from localspec.chats.values import ChatMessage, new_message_id
from localspec.core.errors import EngineError, Interrupted
from localspec.core.events import (
    Candidate,
    Examination,
    Finished,
    Loading,
    ModelInfo,
    Notice,
    Reading,
    Reply,
    ReplyFormat,
    Round,
    Speculation,
    Speedup,
    Stats,
    Token,
)
from localspec.core.round_counts import DrafterStats
from localspec.core.values import Origin

LONG = "One two three four five six seven eight nine ten eleven twelve.\n\n- a\n- b\n\nThe end."
"""A reply with a list."""
ON = Speculation("on")
INFO = ModelInfo(
    target="/models/story-target-q8.gguf",
    draft="/models/story-draft-q8.gguf",
    backend="cpu",
    context=2048,
    name="demo",
    target_bytes=1,
    draft_bytes=1,
    threads=2,
    speculation=ON,
)


@dataclass
class Script:
    """One reply: its text, cut into tokens and rounds, and what happens on the way."""

    text: str = "A *short* reply.\n"
    hold_at: int | None = None
    """Round before which it waits for `FakeEngine.go`."""
    error: Exception | None = None
    """Raised in place of the rounds."""
    notice: str | None = None
    speculation: Speculation = ON
    speedup: Speedup | None = None
    seconds: float = 0.02
    """Duration of each round."""

    def rounds(self):
        """Rounds of up to four tokens with every origin among them."""
        words = re.findall(r"\s*\S+\s*?|\s+", self.text)
        cycle = [
            [(Origin.ACCEPTED, "model")] * 3 + [(Origin.CORRECTED, None)],
            [(Origin.ACCEPTED, "ngram")] * 2 + [(Origin.BONUS, None)],
            [(Origin.PLAIN, None)],
        ]
        at, number = 0, 0
        while at < len(words):
            kinds = cycle[number % len(cycle)][: len(words) - at]
            number += 1
            yield [
                Token(zlib.crc32(words[at + i].encode()) % 5000, words[at + i], origin, source)
                for i, (origin, source) in enumerate(kinds)
            ]
            at += len(kinds)


class FakeReply:
    """Implements localspec.engine.port.ReplyHandle."""

    def __init__(self, engine, request):
        self.engine = engine
        self.interrupted = False
        self._events = engine.events(self, request)

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await anext(self._events)

    def interrupt(self):
        self.interrupted = True
        self.engine.go.set()

    def close(self):
        """A reply that is not over is interrupted in the real engine."""


@dataclass
class FakeEngine:
    """Implements localspec.engine.port.Engine."""

    scripts: list[Script] = field(default_factory=list)
    open_error: Exception | None = None
    open_errors: list[Exception] = field(default_factory=list)
    """Errors of the next attempts to open it."""
    pace: float = 0.0
    """Seconds between two rounds."""

    def __post_init__(self):
        self.on_death = None
        self.go = asyncio.Event()
        self.loaded = asyncio.Event()
        self.loaded.set()
        self.loading = Loading("story-target", 0.4)
        self.info = INFO
        self.asked = []
        self.requests = []
        self.seeds = []
        self.drafted = []
        self.examined = []
        self.opened = self.closed = 0
        self.holding = False
        self._dead = None
        self.cancelled = False

    pid = None
    server = ""
    why_not_plain = ""

    async def open(self, on_loading=None):
        on_loading(self.loading)
        await self.loaded.wait()
        if self.cancelled:
            self.cancelled = False
            raise Interrupted("loading was stopped")
        if self.open_errors:
            raise self.open_errors.pop(0)
        if self.open_error is not None:
            raise self.open_error
        self.opened += 1
        self._dead = None
        return self.info

    async def examine(self, request, tokens, rival=None):
        self.examined.append(tuple(tokens))
        likely = Candidate(tokens[-1], "chosen", 0.75, 0.5, 0.7)
        other = Candidate(7777, " other", 0.25, 0.5, 0.2)
        return Examination(likely, (likely, other), None if rival is None else 0.0012)

    def reply(self, request):
        return FakeReply(self, request)

    def die(self, error=None):
        """End as a killed process does, or with another ``error``."""
        killed = EngineError("the engine stopped (signal 9, SIGKILL); its log is x")
        self._dead = error or killed
        self.go.set()
        self.on_death(self._dead)

    async def close(self):
        self.closed += 1
        if not self.loaded.is_set():
            self.cancelled = True
            self.loaded.set()

    async def events(self, reply, request):
        messages, draft = request.messages, request.draft
        self.asked.append(messages)
        self.seeds.append(request.seed)
        self.drafted.append(draft)
        script = self.scripts.pop(0) if self.scripts else Script()
        self.requests.append(request)
        if request.markers:
            yield ReplyFormat(tools="hermes" if request.tools is not None else None)
        yield Reading(1, 10, 0)
        await asyncio.sleep(0)
        if script.error is not None:
            raise script.error
        if script.notice is not None:
            yield Notice(script.notice)
        tokens, drafted, verified, accepted, rounds, reason = [], 0, 0, 0, 0, "stop"
        used = 10 + sum(len(message.content.split()) for message in messages)
        for number, round_tokens in enumerate(script.rounds()):
            if script.hold_at == number:
                self.go.clear()
                self.holding = True
                await self.go.wait()
                self.holding = False
            if self._dead is not None:
                raise self._dead
            if reply.interrupted:
                reason = "interrupt"
                break
            for token in round_tokens:
                tokens.append(token)
                yield token
            took = sum(token.origin is Origin.ACCEPTED for token in round_tokens)
            wanted = 4 if took else 0
            rounds, accepted = rounds + 1, accepted + took
            drafted, verified = drafted + wanted, verified + min(wanted, took + 1)
            yield Round(
                drafted=wanted,
                verified=min(wanted, took + 1),
                accepted=took,
                emitted=len(round_tokens),
                draft_seconds=0.004,
                verify_seconds=0.015,
                seconds=script.seconds,
                source="model",
                context_used=used + len(tokens),
                speculation=script.speculation,
                speedup=script.speedup,
                corrected=int(took < wanted),
            )
            await asyncio.sleep(self.pace)
        stats = Stats(
            prompt_tokens=used,
            cached_tokens=0,
            emitted=len(tokens),
            rounds=rounds,
            drafted=drafted,
            verified=verified,
            accepted=accepted,
            per_position=(0.7, 0.5),
            by_drafter={"model": DrafterStats(drafted, verified, accepted, 0.1)},
            prompt_seconds=0.1,
            decode_seconds=script.seconds * rounds,
            draft_seconds=0.01,
            verify_seconds=0.01,
            speculation=script.speculation,
            speedup=script.speedup,
        )
        yield Finished(
            Reply(
                "".join(token.text for token in tokens),
                tuple(token.token for token in tokens),
                tuple(token.origin for token in tokens),
                reason,
                stats,
                1,
            )
        )


def calling(name, text="", **arguments):
    """The text of a reply that calls a tool, as a model of Hermes' family writes it."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"{text}<tool_call>\n{call}\n</tool_call>"


def conversation(count):
    """Messages of a saved chat, each with its number as text."""
    found = []
    for number in range(count):
        parent = found[-1].id if found else None
        role, end = ("assistant", "stop") if number % 2 else ("user", None)
        text = f"message number {number}"
        found.append(ChatMessage(new_message_id(parent), parent, role, text, 1.0, end))
    return tuple(found)
