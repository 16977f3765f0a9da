"""The engine's pipe from the other end: an engine that sends damaged, reordered, cut, doubled or
delayed events, or ends in between, to the interface's client.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path

from faults import mutations
from faults.mutations import Chance

_SECONDS = 60.0
_ENGINE = """
import base64, json, sys, time
sys.stdin.buffer.readline()
for wait, part in json.load(open(sys.argv[1])):
    time.sleep(wait)
    sys.stdout.buffer.write(base64.b64decode(part))
    sys.stdout.buffer.flush()"""


def _events() -> list[bytes]:
    """The messages of an engine about a model that is opened and about one reply."""
    from faults.echo_runtime import Echo
    from localspec.core.events import Loading, Message, Notice, Reading
    from localspec.core.interrupt import Interrupt
    from localspec.core.reply_request import ReplyRequest
    from localspec.engine import protocol
    from localspec.engine.messages import HelloEvent, LoadingEvent, OpenedEvent, ReplyEvents

    request = ReplyRequest((Message("user", "one two three"),))
    made = [
        HelloEvent(protocol.VERSION, 1),
        LoadingEvent(Loading("t.gguf", 0.5)),
        OpenedEvent(Echo.info),
        ReplyEvents(1, (Reading(1, 2, 0), Notice("a notice"))),
        *(ReplyEvents(1, (event,)) for event in Echo().answer(request, Interrupt())),
    ]
    return [protocol.encode(event) for event in made]


def engine_answers(chance: Chance, folder: Path) -> str | None:
    """A model is opened and a reply asked for: both end, in a result or in one sentence."""
    lines = _events()
    first = chance.choice((0, 3, 3, 3))  # most are opened properly
    for _ in range(chance.choice((1, 1, 2, 4))):
        if len(lines) <= first:
            break
        at, kind = chance.randrange(first, len(lines)), chance.randrange(7)
        damaged = [*lines]
        if kind <= 1:
            name, damaged[at] = "damaged", mutations.in_json(lines[at].strip(), chance) + b"\n"
        elif kind == 2:
            name, damaged[at] = "random bytes", chance.randbytes(chance.choice((1, 99, 70_000)))
        elif kind == 3:
            name, damaged[at] = "cut", lines[at][: chance.randrange(len(lines[at]) + 1)]
        elif kind == 4:
            name, damaged[at:at] = "doubled", [lines[at]]
        elif kind == 5:
            other = chance.randrange(first, len(lines))
            name, damaged[at], damaged[other] = f"exchanged with {other}", lines[other], lines[at]
        else:
            name, damaged = "the last one", lines[:at] or [b"\n"]
        if chance.makes(f"event {at} {name}"):
            lines = damaged
    play = []
    for line in lines:
        wait = chance.choice((0.01, 0.2)) if chance.random() < 0.1 else 0.0
        at = chance.randrange(len(line) + 1)
        play += [(0.0, line[:at]), (wait, line[at:])]
    script = folder / "play.json"
    script.write_text(json.dumps([(wait, base64.b64encode(p).decode()) for wait, p in play]))
    return asyncio.run(_ask(script, folder))


async def _ask(script: Path, folder: Path) -> str | None:
    from localspec.core.errors import LocalspecError
    from localspec.core.events import Finished, Message
    from localspec.core.options import Options
    from localspec.core.reply_request import ReplyRequest
    from localspec.engine import client as module
    from localspec.engine import protocol

    async def spawn(
        log: Path, runtime: str | None, interval: float | None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-E", "-c", _ENGINE, str(script)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=protocol.MAX_LINE,
        )

    module.spawn = spawn
    client = module.EngineClient(Options(), log_dir=folder)

    async def run() -> str | None:
        await client.open()
        reply = client.reply(ReplyRequest((Message("user", "one two three"),)))
        events = [event async for event in reply]
        return None if isinstance(events[-1], Finished) else "a reply without its end"

    try:
        return await asyncio.wait_for(run(), _SECONDS)
    except LocalspecError as error:
        return None if str(error).strip() else f"{type(error).__name__} without a word"
    except TimeoutError:
        return f"nothing came to an end within {_SECONDS:.0f} s"
    finally:
        await asyncio.wait_for(client.close(), _SECONDS)
