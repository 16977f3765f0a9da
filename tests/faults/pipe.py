"""The engine's pipe: damaged, cut, doubled, reordered, delayed commands to a real engine process.

After each handful of them a whole command is sent, and its reply must come whole. An engine that
ends, falls silent or answers with what is no event is a fault.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from faults import mutations
from faults.limits import environment
from faults.runner import Search

_SECONDS = 60.0
"""Without a word on a busy machine."""
_HANDFUL = 10


@dataclass(frozen=True)
class Case:
    """A handful of messages."""

    seed: int
    left_out: tuple[int, ...] = ()


class Pipe(Search):
    """One engine for many handfuls; another one after a fault."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "engine.log"
        self._loop = asyncio.Runner()
        self._process: asyncio.subprocess.Process | None = None
        self._number = 1000

    def case(self, seed: int) -> Case:
        return Case(seed)

    def wrong(self, case: Case) -> str | None:
        self._number += 1
        lines = [line for i, line in enumerate(_handful(case.seed)) if i not in case.left_out]
        return self._loop.run(self._wrong(lines))

    def smaller(self, case: Case) -> Iterator[Case]:
        for i in range(_HANDFUL):
            if i not in case.left_out:
                yield replace(case, left_out=(*case.left_out, i))

    def close(self) -> None:
        self._loop.run(self._end())
        self._loop.close()

    async def _wrong(self, lines: list[list[tuple[float, bytes]]]) -> str | None:
        if self._process is None:
            self._process = await _started(self._log)
        what = await _talk(self._process, lines, self._number)
        if what is not None:
            await self._end()
        return what

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        while await process.stdout.read(1 << 20):
            pass
        await process.wait()


async def _started(log: Path) -> asyncio.subprocess.Process:
    from localspec.engine import protocol

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "localspec.engine", "--log", str(log)),
        *("--runtime", "faults.echo_runtime:create"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=protocol.MAX_LINE,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"type": "open", "options": {}}).encode() + b"\n")
    return process


def _handful(seed: int) -> list[list[tuple[float, bytes]]]:
    """Lines as nobody should send them, each in parts with waits before them, in seconds."""
    from localspec.core.events import Message
    from localspec.core.reply_request import ReplyRequest
    from localspec.engine import protocol
    from localspec.engine.messages import ExamineCommand, InterruptCommand, ReplyCommand

    chance = mutations.Chance(f"pipe:{seed}")
    hello = ReplyRequest((Message("user", "one two three"),), seed=1)
    whole = [
        protocol.encode(command)
        for command in (
            ReplyCommand(chance.randrange(1, 9), hello),
            InterruptCommand(chance.randrange(1, 9)),
            ExamineCommand(1, hello, (1, 2)),
        )
    ]
    lines: list[list[tuple[float, bytes]]] = []
    for _ in range(_HANDFUL):
        line = mutations.in_json(chance.choice(whole).strip(), chance).replace(b"\n", b" ")
        if b'"close"' in line or b'"open"' in line:
            continue
        kind = chance.randrange(12)
        if kind == 0:
            line = chance.randbytes(chance.choice((1, 100, 5000))).replace(b"\n", b" ")
        elif kind == 1:
            line += b"\n" + line
        elif kind == 2:
            line = line.ljust((17 << 20) if chance.random() < 0.05 else 70_000)
        elif kind == 3:
            line = chance.choice(whole).strip()  # as it should be, for an id that others have
        line += b"\n"
        at = chance.randrange(len(line))
        slow = chance.choice((0.01, 0.1)) if chance.random() < 0.1 else 0.0
        lines.append([(0.0, line[:at]), (slow, line[at:])])
    chance.shuffle(lines)
    return lines


async def _talk(
    process: asyncio.subprocess.Process, lines: list[list[tuple[float, bytes]]], number: int
) -> str | None:
    """The fault in how the engine answers; None if the whole command has its reply."""
    from localspec.core.events import Message
    from localspec.core.reply_request import ReplyRequest
    from localspec.engine import protocol
    from localspec.engine.messages import ReplyCommand

    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin
    text = f"whole {number}"
    request = ReplyRequest((Message("user", text),), seed=1)
    last = protocol.encode(ReplyCommand(number, request))

    async def send() -> None:
        for parts in [*lines, [(0.0, last)]]:
            for wait, part in parts:
                await asyncio.sleep(wait)
                stdin.write(part)
                await stdin.drain()

    sending = asyncio.create_task(send())
    try:
        while line := await asyncio.wait_for(process.stdout.readline(), _SECONDS):
            what = _answer(line, number, f"{text} ")
            if what is not None:
                await sending
                return what or None
    except TimeoutError:
        return f"it was silent for {_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return f"it ended with {await process.wait()}"


def _answer(line: bytes, number: int, text: str) -> str | None:
    """The fault of an answer: "" where it ends the reply as it should, None where it does
    not belong to it or does not end it.
    """
    from localspec.core.errors import EngineError
    from localspec.core.events import Finished
    from localspec.engine import protocol
    from localspec.engine.messages import FailedEvent, ReplyEvents

    try:
        event = protocol.decode_event(line)
    except EngineError as error:
        return f"it answered with no event: {error}"
    if getattr(event, "id", None) != number:
        return None
    end = event.events[-1] if isinstance(event, ReplyEvents) else None
    if isinstance(end, Finished) and end.reply.text == text:
        return ""
    if isinstance(end, Finished) or isinstance(event, FailedEvent):
        return f"the whole command was answered with {line[:200]!r}"
    return None
