"""What the interface costs: CPU per token, stalls, memory, start, and decode speed beside `run`.

Every measurement runs the real interface in a pseudo-terminal of its own that somebody reads, as a
terminal would. Streaming replays 2,000 tokens at 200 a second through a stand-in for the engine;
decode speed uses the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
TOKENS, RATE, PER_ROUND = 2000, 200, 3
KINDS = ("prose", "code", "list", "table")
HISTORIES = (0, 100, 300)
_BEAT = 0.005
"""Seconds between two looks at whether the event loop is late."""
_DECODED = 128
"""Tokens of a reply whose decode speed is measured."""
_PROMPT = "Make a list of twenty animals, then write a function that adds two numbers."


# -- what is streamed ------------------------------------------------------------------------------


def words(kind: str) -> list[str]:
    """2,000 tokens of one kind of Markdown."""
    prose = "The little fox went into the *forest* and met the old bear.".split()  # noqa: SIM905
    if kind == "prose":
        ends = ["\n\n" if i % 60 == 59 else " " for i in range(TOKENS)]
        return [prose[i % len(prose)] + end for i, end in enumerate(ends)]
    if kind == "code":
        line = ["    ", "total ", "= ", "add(", "first, ", "second) ", "# sum\n"]
        body = [line[i % len(line)] for i in range(TOKENS - 2)]
        return ["```python\n", *body, "\n```\n"]
    if kind == "list":
        per_item = TOKENS // 140
        return [
            f"- item {i // per_item} "
            if i % per_item == 0
            else "word\n"
            if i % per_item == per_item - 1
            else "word "
            for i in range(TOKENS)
        ]
    row = ["| ", "left ", "| ", "middle ", "| ", "right ", "|\n"]
    head = ["| a ", "| b ", "| c |\n", "|---|---|---|\n"]
    return [*head, *(row[i % len(row)] for i in range(TOKENS - len(head)))]


HISTORY = "Some earlier reply, with words enough to fill a few lines of it. " * 4 + (
    "\n\n```python\ndef add(a, b):\n    return a + b\n```\n\n- one\n- two\n"
)


# -- inside the terminal ---------------------------------------------------------------------------


async def _late(found: list[float]) -> None:
    """Note how late the event loop comes to a task that sleeps."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(_BEAT)
        found.append(time.perf_counter() - before - _BEAT)


class Replay:
    """An engine that says given words at a given rate."""

    pid = None
    on_death = None

    def __init__(self, said: Sequence[str]) -> None:
        self._said = said

    async def open(self, on_loading: object = None) -> Any:
        """There is nothing to load."""
        from localspec.events import ModelInfo, Speculation

        del on_loading
        return ModelInfo(
            "target.gguf", "draft.gguf", "cpu", 8192, "replay", 1, 1, 1, Speculation("on")
        )

    async def reply(self, messages: object, **more: object) -> AsyncIterator[Any]:
        """The words, in rounds of three, on time."""
        from localspec.events import Finished, Reading, Reply, Round, Speculation, Stats, Token
        from localspec.origin import Origin

        del messages, more
        yield Reading(10, 10, 0)
        on, start = Speculation("on"), time.perf_counter()
        for at in range(0, len(self._said), PER_ROUND):
            await asyncio.sleep(max(0.0, start + at / RATE - time.perf_counter()))
            part = self._said[at : at + PER_ROUND]
            for i, text in enumerate(part):
                last = i == len(part) - 1
                yield Token(
                    at + i,
                    text,
                    Origin.CORRECTED if last else Origin.ACCEPTED,
                    None if last else "model",
                )
            yield Round(4, 3, len(part) - 1, len(part), 0.002, 0.01, 0.015, "model", at, on)
        whole = "".join(self._said)
        stats = Stats(10, 0, len(self._said), 1, 1, 1, 1, (), {}, 0.1, 10.0, 1.0, 8.0, None, on)
        ids = tuple(range(len(self._said)))
        yield Finished(Reply(whole, ids, (Origin.ACCEPTED,) * len(ids), "stop", stats, 1))

    async def examine(self, *_: object, **__: object) -> Any:
        """Never asked here: nothing in the benchmark moves the token cursor."""
        raise AssertionError("the benchmark examined a token")

    def interrupt(self) -> None:
        """Never asked here."""

    async def close(self) -> None:
        """There is nothing to end."""


async def _measure(app: Any, prompt: str, result: Path) -> None:
    """Send a prompt in the running app and note what the reply cost."""
    from tui.engine import Phase

    session = app.session
    while session.phase is not Phase.READY or not app.is_running:  # noqa: ASYNC110 - from outside
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)  # let mounting and first pictures pass
    late: list[float] = []
    watch = asyncio.create_task(_late(late))
    cpu, turns = time.process_time(), session.conversation.turns
    before = len(turns)
    session.send(prompt)
    while len(turns) < before + 2 or turns[-1].end is None:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    watch.cancel()
    stats = turns[-1].stats
    found = {
        "cpu_ms": 1000 * (time.process_time() - cpu) / stats.emitted,
        "stall_ms": 1000 * max(late),
        "p99_ms": 1000 * statistics.quantiles(late, n=100)[-1],
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "tokens_per_second": stats.tokens_per_second,
    }
    result.write_text(json.dumps(found), encoding="utf-8")  # noqa: ASYNC240 - all is over
    app.exit()


async def _moments(app: Any, result: Path) -> None:
    """Show what is long at once, and resize the terminal then; note how late the loop came."""
    from tui.conversation import Turn
    from tui.session import Phase
    from tui.widgets.chat_log import ChatLog
    from tui.widgets.document import StreamedMarkdown

    while app.session.phase is not Phase.READY or not app.is_running:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.02)
    log = app.screen.query_one(ChatLog)

    def reply(text: str) -> Turn:
        turn = Turn("assistant", text, end="stop")
        turn.runs.extend(text)
        return turn

    async def show(*turns: Turn) -> None:
        with app._context():  # noqa: SLF001 - as if a key had been pressed
            await log.show_turns(turns)
        await asyncio.sleep(0.1)
        while not all(part.settled for part in app.screen.query(StreamedMarkdown)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def resize() -> None:
        for columns in (100, 80, 120):
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            await asyncio.sleep(0.4)

    code = "```python\n" + "total = add(first, second)  # sum\n" * 10_000 + "```\n"
    prose = "The little fox went into the *forest* and met the old bear. " * 4 + "\n\n"
    chat = [Turn("user", "An earlier question"), reply(HISTORY)] * 150
    moments = {
        "switch to a chat of 300 messages": lambda: show(*chat),
        "resize it, three times": resize,
        "open a reply of 10,000 lines of code": lambda: show(reply(code)),
        "resize that, three times": resize,
        "open a reply of 2,000 paragraphs": lambda: show(reply(prose * 2000)),
        "resize this, three times": resize,
    }
    found = {}
    for name, does in moments.items():
        await asyncio.sleep(1.0)
        late: list[float] = []
        watch = asyncio.create_task(_late(late))
        start = time.perf_counter()
        await does()
        took = time.perf_counter() - start
        await asyncio.sleep(0.3)
        watch.cancel()
        memory = psutil.Process().memory_info().rss / 1e6
        found[name] = {"stall_ms": 1000 * max(late), "seconds": took, "memory_mb": memory}
    result.write_text(json.dumps(found), encoding="utf-8")  # noqa: ASYNC240 - all is over
    app.exit()


def inside(kind: str, history: int, model: str, result: Path) -> None:
    """Run the interface in this terminal and measure it."""
    from localspec.engine.client import EngineClient
    from localspec.options import Options
    from localspec.parameters import Sampling
    from tui.app import ChatApp
    from tui.engine import Settings

    real = kind == "real"
    threads = os.environ.get("LOCALSPEC_THREADS")  # as `run` reads it
    options = Options(model=model or "demo", threads=int(threads) if threads else None)
    engine = (
        EngineClient(options, log_dir=result.parent)
        if real
        else Replay(words(kind) if kind in KINDS else ())
    )
    app = ChatApp(engine, Settings(Sampling(temperature=0.0), _DECODED, 1), name=model or "replay")
    conversation = app.session.conversation
    for _ in range(history // 2):
        conversation.say("An earlier question")
        turn = conversation.answer()
        turn.text, turn.end = HISTORY, "stop"
        turn.runs.extend(HISTORY)
    failed: list[BaseException] = []

    async def watched() -> None:
        try:
            await (_moments(app, result) if kind == "moments" else _measure(app, _PROMPT, result))
        except Exception as error:  # noqa: BLE001 - raised again once the terminal is back
            failed.append(error)
            app.exit()

    async def main() -> None:
        task = asyncio.ensure_future(watched())
        await app.run_async()
        task.cancel()

    asyncio.run(main())
    if failed:
        raise failed[0]


# -- outside ---------------------------------------------------------------------------------------


def in_terminal(
    command: Sequence[str], until: Callable[[bytes], bool] | None = None, seconds: float = 120
) -> tuple[float, bytes]:
    """Run a command in a pseudo-terminal and read what it draws: (seconds, the drawing).

    It runs to its end, or until the drawing is as wished; then it is ended.
    """
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.environ.update(TERM="xterm-256color", TEXTUAL_ANIMATIONS="none", PYTHONPATH=str(ROOT))
        os.execv(command[0], list(command))  # noqa: S606 - no shell is wanted
    drawn = b""
    while time.perf_counter() - start < seconds:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:
                break
        if until is not None and until(drawn):
            break
    took = time.perf_counter() - start
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 15)
    with contextlib.suppress(OSError):  # drain, or the end would wait for a reader
        while select.select([terminal], [], [], 2)[0] and os.read(terminal, 1 << 16):
            pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return took, drawn


def measure(kind: str, history: int, model: str = "") -> dict[str, Any]:
    """One run of the interface."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        script = str(Path(__file__).resolve())
        command = [sys.executable, script, "--inside", kind, str(history), model, str(result)]
        _, drawn = in_terminal(command)
        if not result.exists():
            sys.exit(f"bench_interface: {kind} gave no result; it said:\n{_plain(drawn)[-2000:]}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def _plain(drawn: bytes) -> str:
    return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)", "", drawn.decode("utf-8", "replace"))


def start_seconds(times: int = 5) -> float:
    """Median time from the command to a composer that can be typed in."""
    command = [sys.executable, "-m", "localspec", "chat"]
    return statistics.median(
        in_terminal(command, lambda d: b"essage" in d)[0] for _ in range(times)
    )


def run_speed(model: str) -> float:
    """Decode speed of `localspec run`, in tokens per second."""
    command = [
        sys.executable,
        "-m",
        "localspec",
        "run",
        "-m",
        model,
        "--json",
        "-t",
        "0",
        "-n",
        str(_DECODED),
        "--seed",
        "1",
        _PROMPT,
    ]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    return float(json.loads(done.stdout)["stats"]["tokens_per_second"])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="measure decode speed with the interface and with `run`")
    parser.add_argument("--times", type=int, default=3, help="of each for decode speed")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--histories", nargs="*", type=int, default=HISTORIES)
    parser.add_argument(
        "--moments", action=argparse.BooleanOptionalAction, default=True, help="long texts at once"
    )
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        kind, history, model, result = arguments.inside
        inside(kind, int(history), model, Path(result))
        return
    if arguments.kinds:
        print("| text | earlier messages | CPU ms/token | longest stall ms | p99 ms | memory MB |")
        print("|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        for history in arguments.histories:
            found = measure(kind, history)
            print(
                f"| {kind} | {history} | {found['cpu_ms']:.2f} | {found['stall_ms']:.0f} "
                f"| {found['p99_ms']:.0f} | {found['memory_mb']:.0f} |",
                flush=True,
            )
    if arguments.moments:
        print("\n| what is shown | longest stall ms | seconds | memory MB |\n|---|---|---|---|")
        for name, found in measure("moments", 0).items():
            print(
                f"| {name} | {found['stall_ms']:.0f} | {found['seconds']:.2f} "
                f"| {found['memory_mb']:.0f} |"
            )
    print(f"\nstart to a usable composer: {start_seconds():.2f} s")
    if arguments.model:
        pairs = [
            (run_speed(arguments.model), measure("real", 0, arguments.model)["tokens_per_second"])
            for _ in range(arguments.times)
        ]
        each = ", ".join(f"{a:.1f} and {b:.1f}" for a, b in pairs)
        alone, shown = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(
            f"decode speed: `run` {alone:.1f} tok/s, in the chat {shown:.1f} tok/s "
            f"({100 * (shown / alone - 1):+.1f} %); each: {each}"
        )


if __name__ == "__main__":
    main()
