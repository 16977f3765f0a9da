"""The real server in front of an engine that plays the model of an agent.

    python scripts/scripted_server.py PORT FOLDER

The agent is to replace "one" by "two" in FOLDER/notes.txt. Asked with tools, the engine calls the
one that reads, where there is one, then one that edits, writes or runs a command, with arguments by
its schema, and then says that it is done. Asked without tools, it says the file in the form of
aider's edit format ``whole``. All of this passes through the server as the text of a model does.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests" / folder) for folder in ("helpers", "serve")]

from fake_serving import ON, FakeEngine, World  # noqa: E402
from served import served  # noqa: E402

from localspec.core.emitted import Origin  # noqa: E402
from localspec.core.errors import EngineError  # noqa: E402
from localspec.core.events import (  # noqa: E402
    Finished,
    Message,
    ModelInfo,
    Reading,
    Reply,
    ReplyFormat,
    Stats,
    Token,
)
from localspec.core.options import Options  # noqa: E402
from localspec.core.reply_request import ReplyRequest  # noqa: E402
from localspec.serve.http.settings import ServeSettings  # noqa: E402

_READS = ("read", "readfile", "read_file")
_WRITES = ("edit", "write", "writefile", "write_file", "exec_command", "shell", "bash")
_CTX = 200_000


def says(tools: str | None, messages: Sequence[Message], folder: Path) -> str:
    """The model's next text."""
    if tools is None:
        asked = any("notes.txt" in message.content for message in messages)
        return "notes.txt\n```\ntwo\n```\n" if asked else "Notes"
    known = {tool["function"]["name"]: tool["function"] for tool in json.loads(tools)}
    steps = [found for names in (_READS, _WRITES) if (found := _first(known, names)) is not None]
    asked_at = max((i for i, one in enumerate(messages) if one.role == "user"), default=0)
    done = sum(message.role == "tool" for message in messages[asked_at:])
    if done >= len(steps):
        return "Done."
    tool = known[steps[done]]
    call = {"name": tool["name"], "arguments": _arguments(tool.get("parameters", {}), folder)}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def _first(known: Mapping[str, object], names: Sequence[str]) -> str | None:
    """The tool of the first of the names that is known, whatever its case."""
    by_name = {name.lower(): name for name in known}
    return next((by_name[name] for name in names if name in by_name), None)


def _arguments(schema: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Values for what a schema requires, by the names of the properties."""
    line = "sed -i s/one/two/ notes.txt"
    found: dict[str, Any] = {}
    for name in schema.get("required", ()):
        plain = name.lower().replace("_", "")
        if plain in {"filepath", "path", "file"}:
            found[name] = str(folder / "notes.txt")
        elif plain in {"oldstring", "oldtext"}:
            found[name] = "one"
        elif plain in {"newstring", "newtext"}:
            found[name] = "two"
        elif plain in {"content", "contents", "text"}:
            found[name] = "two\n"
        elif plain in {"cmd", "command"}:
            lines = schema["properties"][name].get("type") == "array"
            found[name] = ["sh", "-c", line] if lines else line
        else:
            found[name] = "the file"
    return found


class ScriptedEngine(FakeEngine):
    """Says what the script says, a piece a token."""

    async def open(self) -> ModelInfo:
        self.info = replace(await super().open(), context=_CTX)
        return self.info

    def _batches(self, request: ReplyRequest) -> Iterator[list[object]]:
        if request.markers:
            yield [ReplyFormat(tools=None if request.tools is None else "hermes")]
        text = says(request.tools, request.messages, self.world.folder)
        n = sum(len(message.content) for message in request.messages) // 4 + 1
        yield [Reading(n, n, 0)]
        pieces = [text[i : i + 8] for i in range(0, len(text), 8)]
        for i, piece in enumerate(pieces):
            yield [Token(i, piece, Origin.PLAIN, None)]
        stats = Stats(
            n, 0, len(pieces), len(pieces), 0, 0, 0, (), {}, 0.01, 0.02, 0.0, 0.02, ON
        )  # fmt: skip
        plain = (Origin.PLAIN,) * len(pieces)
        yield [Finished(Reply(text, tuple(range(len(pieces))), plain, "stop", stats, 1))]


class Scripted(World):
    """Makes such engines for an agent in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def engine(self, options: Options, on_death: Callable[[EngineError], None]) -> ScriptedEngine:
        return ScriptedEngine(options, on_death, self)


def main() -> None:
    settings = ServeSettings(port=int(sys.argv[1]), aliases=("*",))
    with served(settings, Options(model="demo"), Scripted(Path(sys.argv[2]))):
        threading.Event().wait()


if __name__ == "__main__":
    main()
