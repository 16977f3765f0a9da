"""The engine's pipe: damaged, cut, doubled and reordered commands to a real engine process.

After each handful of them a whole command is sent, and its reply must come whole. An engine that
ends, falls silent or answers with what is no event is a fault. ``python scripts/fuzz_pipe.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from faults import mutations
from faults.limits import Fault

_SECONDS = 20.0
_HANDFUL = 10
_SCRIPTS = str(Path(__file__).resolve().parent.parent)


def _handful(chance: random.Random, number: int) -> list[bytes]:
    """Lines as nobody should send them, and one that is whole."""
    from localspec.core.events import Message
    from localspec.core.sampling_params import Sampling
    from localspec.engine import protocol
    from localspec.engine.commands import ExamineCommand, InterruptCommand, ReplyCommand

    hello = (Message("user", "one two three"),)
    whole = [
        protocol.encode(command)
        for command in (
            ReplyCommand(chance.randrange(1, 9), hello, Sampling()),
            InterruptCommand(chance.randrange(1, 9)),
            ExamineCommand(1, hello, (1, 2), Sampling(), 1),
        )
    ]
    lines = []
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
        lines.append(line + b"\n")
    chance.shuffle(lines)
    text = f"whole {number}"
    return [*lines, protocol.encode(ReplyCommand(number, (Message("user", text),), Sampling()))]


async def _talk(process: asyncio.subprocess.Process, lines: list[bytes], number: int) -> str | None:
    """What is wrong with how the engine answers; None if the whole command has its reply."""
    from localspec.core.events import Finished
    from localspec.engine import protocol
    from localspec.engine.events import FailedEvent, ReplyEvents
    from localspec.errors import EngineError

    assert process.stdin is not None
    assert process.stdout is not None

    async def send() -> None:
        assert process.stdin is not None
        for line in lines:
            process.stdin.write(line)
            await process.stdin.drain()

    sending = asyncio.create_task(send())
    try:
        while line := await asyncio.wait_for(process.stdout.readline(), _SECONDS):
            try:
                event = protocol.decode_event(line)
            except EngineError as error:
                return f"it answered with no event: {error}"
            if getattr(event, "id", None) != number:
                continue
            last = event.events[-1] if isinstance(event, ReplyEvents) else None
            if isinstance(last, Finished) or isinstance(event, FailedEvent):
                await sending
                if isinstance(last, Finished) and last.reply.text == f"whole {number} ":
                    return None
                return f"the whole command was answered with {line[:200]!r}"
    except TimeoutError:
        return f"it was silent for {_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sending.cancel()
    return f"it ended with {await process.wait()}"


async def _search(cases: int, seed: int, first: int) -> list[Fault]:
    from localspec.engine import protocol

    found: list[Fault] = []
    process: asyncio.subprocess.Process | None = None
    with tempfile.TemporaryDirectory() as folder:
        for i in range(first, first + cases):
            if process is None:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "localspec.engine"),
                    *("--log", str(Path(folder) / "engine.log")),
                    *("--runtime", "faults.echo_runtime:create"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    limit=protocol.MAX_LINE,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), _SCRIPTS])},
                )
                assert process.stdin is not None
                process.stdin.write(json.dumps({"type": "open", "options": {}}).encode() + b"\n")
            number = 1000 + i
            chance = random.Random(f"pipe:{seed}:{i}")
            what = await _talk(process, _handful(chance, number), number)
            if what is not None:
                found.append(Fault("pipe", seed, i, what))
                if process.returncode is None:
                    process.kill()
                await process.wait()
                process = None
        if process is not None:
            process.kill()
            await process.wait()
    return found


def search(cases: int, seed: int, first: int = 0) -> list[Fault]:
    """Run so many handfuls; their faults."""
    found = asyncio.run(_search(cases, seed, first))
    for fault in found[:5]:
        print(fault)
    print(f"pipe: {cases} handfuls of {_HANDFUL} messages, {len(found)} faults, seed {seed}")
    return found


def main() -> int:
    """The command line; 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="handfuls of messages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first handful")
    asked = parser.parse_args()
    return 1 if search(asked.cases, asked.seed, asked.first) else 0


if __name__ == "__main__":
    sys.exit(main())
