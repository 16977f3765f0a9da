"""Runs the real interface in this terminal and measures it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from benches.interface_cost.decoding import PROMPT, asked, cpu
from benches.interface_cost.moments import moments
from benches.interface_cost.replay import HISTORY, KINDS, Replay
from benches.interface_cost.watch import Watch

Found = Mapping[str, Any]


async def ready(app: Any) -> None:
    """Wait until a message can be sent."""
    from tui.session.session_engine import Phase

    while app.session.engine.phase is not Phase.READY or not app.is_running:  # noqa: ASYNC110 - from outside
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)  # let mounting and first pictures pass


async def streaming(app: Any) -> Found:
    """Send a prompt and measure the cost of the reply."""
    await ready(app)
    turns = app.session.chat.conversation.turns
    before = len(turns)
    engine = app.session.engine.client.pid
    # Checking 200 times a second takes a core that a real engine would use.
    with Watch() if engine is None else Watch(every=0.25) as watched:
        own, engines = time.process_time(), cpu(engine)
        app.session.send(PROMPT)
        while len(turns) < before + 2 or turns[-1].end is None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        engines = cpu(engine) - engines
        await asyncio.sleep(0.3)
        own = time.process_time() - own
    stats = turns[-1].stats
    return {
        "cpu_ms": 1000 * own / stats.emitted,
        "engine_cpu_ms": 1000 * engines / stats.emitted,
        "stall_ms": watched.longest,
        "work_ms": watched.work,
        "p99_ms": watched.p99,
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "tokens_per_second": stats.tokens_per_second,
    }


async def at_once(app: Any) -> Found:
    """Do the actions that show much at once, one after another."""
    await ready(app)
    found = {}
    for name, does in moments(app).items():
        await asyncio.sleep(1.0)
        with Watch() as watched:
            start = time.perf_counter()
            await does()
            took = time.perf_counter() - start
            await asyncio.sleep(0.3)
        memory = psutil.Process().memory_info().rss / 1e6
        found[name] = {
            "stall_ms": watched.longest,
            "work_ms": watched.work,
            "seconds": took,
            "memory_mb": memory,
        }
    return found


def run(kind: str, history: int, model: str, result: Path) -> None:
    """Run the interface in this terminal and write down what was measured."""
    from localspec.chats.saver import Saver
    from localspec.engine.client import EngineClient
    from tui.app import ChatApp
    from tui.session.recorder import ChatRecorder
    from tui.session.settings import Settings
    from tui.terminal.resources import MESSAGE_SECONDS

    wanted = asked(model or "demo")
    engine: Any = Replay(KINDS[kind]() if kind in KINDS else ())
    if kind == "real":
        options = dataclasses.replace(wanted.options, draft_memory=0)  # as decoding without it
        engine = EngineClient(options, log_dir=result.parent, interval=MESSAGE_SECONDS)
    recorder = ChatRecorder(Saver(result.with_name("chats.db")))
    settings = Settings(wanted.sampling, wanted.max_tokens, wanted.seed)
    name = model or "replay"
    app = ChatApp(engine, settings, name=name, options=wanted.options, recorder=recorder)
    conversation = app.session.chat.conversation
    for _ in range(history // 2):
        question, turn = conversation.say("An earlier question"), conversation.answer()
        turn.text, turn.end = HISTORY, "stop"
        turn.runs.extend(HISTORY)
        recorder.begin_reply(conversation, question, turn)()
    measure = at_once if kind == "moments" else streaming
    asyncio.run(_watched(app, lambda: measure(app), result))


async def _watched(app: Any, measure: Callable[[], Awaitable[Found]], result: Path) -> None:
    async def measuring() -> None:
        try:
            result.write_text(json.dumps(await measure()), encoding="utf-8")  # noqa: ASYNC240 - all is over
        finally:
            app.exit()

    task = asyncio.ensure_future(measuring())
    await app.run_async()
    await task
