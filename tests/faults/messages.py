"""Damaged messages of other processes, and answers of the Hub."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import threading
from pathlib import Path

from faults import mutations
from faults.entries import fresh, outcome
from faults.mutations import Chance


def _messages() -> list[bytes]:
    from localspec.core.emitted import Origin
    from localspec.core.events import Loading, Message, Notice, Reading, Token
    from localspec.core.events import Round as RoundEvent
    from localspec.core.reply_request import ReplyRequest
    from localspec.engine import protocol
    from localspec.engine.messages import (
        ExamineCommand,
        FailedEvent,
        HelloEvent,
        InterruptCommand,
        LoadingEvent,
        OpenCommand,
        ReplyCommand,
        ReplyEvents,
    )

    hello = ReplyRequest((Message("user", "a"),), seed=1, max_tokens=10, stop=("a",))
    empty = {f.name: 0 for f in dataclasses.fields(RoundEvent)}
    made = [
        OpenCommand({"model": "demo"}),
        ReplyCommand(1, hello),
        ExamineCommand(2, hello, (1, 2)),
        InterruptCommand(1),
        HelloEvent(protocol.VERSION, 1),
        LoadingEvent(Loading("a", 0.5)),
        LoadingEvent(Loading("a", None)),
        ReplyEvents(1, (Reading(1, 2, 0), Notice("a"))),
        FailedEvent(1, "UsageError", "a", 2),
        ReplyEvents(1, (Token(1, "a", Origin.ACCEPTED, "model"),)),
    ]
    lines = [protocol.encode(message) for message in made]
    lines.append(
        json.dumps({"type": "events", "id": 1, "events": [{"type": "round", **empty}]}).encode()
    )
    return lines


def protocol_lines(chance: Chance, _: Path) -> str | None:
    """Lines between interface and engine, and between interface and pull."""
    from localspec.core.errors import LocalspecError
    from localspec.engine import protocol
    from localspec.models.hub import pull_process

    line = mutations.in_json(chance.choice(_messages()).strip(), chance)

    def failed() -> None:
        event = protocol.decode_event(line)
        if hasattr(event, "exception") and not isinstance(event.exception(), LocalspecError):
            raise AssertionError("an error that is none of ours")

    planned = {"event": "PullPlanned", "n_bytes": 1, "missing": 1, "licence": "a", "notices": ["a"]}
    told = mutations.in_json(json.dumps(planned | {"suggestion": None}).encode(), chance)
    return (
        outcome(lambda: protocol.decode_command(line), protocol.BadCommandError)
        or outcome(failed)
        or outcome(lambda: pull_process.decode(told))
    )


_REPO = json.dumps(
    {
        "_id": "1",
        "id": "user/repo",
        "modelId": "user/repo",
        "sha": "0123456789" * 4,
        "gated": False,
        "private": False,
        "tags": ["gguf"],
        "cardData": {"license": "mit"},
        "siblings": [
            {
                "rfilename": "model-Q4_K_M.gguf",
                "size": 1000,
                "blobId": "a" * 40,
                "lfs": {"sha256": "b" * 64, "size": 1000, "pointerSize": 100},
            },
            {"rfilename": "README.md", "size": 10, "blobId": "c" * 40},
        ],
    }
).encode()


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers everything with the same bytes."""

    answer = b""
    status = 200
    kind = "application/json"

    def do_GET(self) -> None:
        """Send it."""
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_server: list[http.server.ThreadingHTTPServer] = []


def hub_answer(chance: Chance, folder: Path) -> str | None:
    """The description of a repository by the Hub, or by its stand-in."""
    from localspec.models.catalog import file_names
    from localspec.models.catalog.links import HubRef
    from localspec.models.hub import api

    if not _server:
        _server.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub))
        threading.Thread(target=_server[0].serve_forever, daemon=True).start()
    fresh(folder)
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{_server[0].server_address[1]}"
    _Hub.answer = mutations.in_json(_REPO, chance)
    _Hub.status = chance.choice((200,) * 12 + (401, 403, 404))
    _Hub.kind = chance.choice(("application/json", "application/json", "text/html"))

    def read() -> None:
        repo = api.look_up("user/repo")
        wanted = HubRef("user/repo")
        file_names.candidates(repo.entries, wanted)

    return outcome(read)
