"""The engine child process: takes commands from a pipe, runs the runtime, writes events.

Three threads. The main thread opens the model and decodes. The reader takes commands, so that an
interrupt works while the main thread decodes. The writer (`localspec.engine.outbox`) sends events.

Native code prints to whatever it takes for standard output and may abort the process, so the
protocol runs on duplicates of descriptors 0 and 1; the originals lead to nothing and to the log.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import logging
import os
import signal
import threading
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from localspec.core.files.log_file import LogFile
from localspec.core.files.private import without_secrets
from localspec.core.processes.children import end_with_parent
from localspec.core.safe_text import safe_text
from localspec.engine import protocol
from localspec.engine.messages import HelloEvent
from localspec.engine.native_words import CONTINUED
from localspec.engine.outbox import INTERVAL, Outbox
from localspec.engine.worker import EngineRuntime, EngineWorker, Factory

log = logging.getLogger("localspec.engine")
RUNTIME = "localspec.runtime:open_from_fields"
"""What opens the real runtime: the engine knows how to speak of one, and not what is in it."""


class _Discreet(logging.Formatter):
    """Lines of the log, tracebacks included, without secrets and without control characters. All
    but the first of a record are marked: they are not what native code prints.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        text = safe_text(without_secrets(super().format(record)))
        return text.replace("\n", f"\n{CONTINUED}")


def record_formatter() -> logging.Formatter:
    """Makes the lines of this process in the log."""
    return _Discreet(f"%(asctime)s {os.getpid()} %(levelname)s %(name)s: %(message)s")


class EngineLog(LogFile):
    """The log, into which standard output and errors lead too: native code prints there."""

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
        return stream


def main(argv: Sequence[str] | None = None) -> None:
    """Run the engine until the interface closes it or is gone."""
    parser = argparse.ArgumentParser(prog="python -m localspec.engine")
    parser.add_argument("--log", type=Path, required=True, help="where native output goes")
    parser.add_argument(
        "--runtime", metavar="MODULE:FACTORY", default=RUNTIME, help="opens the runtime"
    )
    parser.add_argument(
        "--interval", type=float, default=INTERVAL, help="seconds between two messages with tokens"
    )
    arguments = parser.parse_args(argv)

    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the interface
    os.environ["GGML_NO_BACKTRACE"] = "1"  # an abort of ggml must not wait for a debugger
    commands, events = _take_pipes()
    handler = EngineLog(arguments.log)
    faulthandler.enable()
    handler.setFormatter(record_formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    log.info("begun")  # what is printed behind it is not an earlier engine's

    outbox = Outbox(events, arguments.interval)
    outbox.send(HelloEvent(protocol.VERSION, os.getpid()))

    def factory(*given: Any) -> EngineRuntime:
        # Named at the first call: what cannot be imported is then told as what cannot be loaded.
        return _named_factory(arguments.runtime)(*given)

    engine = EngineWorker(outbox, factory, arguments.log)
    threading.Thread(target=engine.listen, args=(commands,), name="reader", daemon=True).start()
    engine.run()
    outbox.close()
    log.info("closed")


def _named_factory(name: str) -> Factory:
    module, _, attribute = name.partition(":")
    factory: Factory = getattr(importlib.import_module(module), attribute)
    return factory


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the protocol's two pipes to ourselves; `EngineLog` leads the descriptor of the second
    one away.
    """
    commands = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return commands, events
