"""The process of a worker that has the devices: ``python -m localspec.loading.rpc_server``.

Its parent, `localspec.llama.rpc.serving`, reads what it prints, tells the user, and starts it again
when it dies: llama.cpp aborts on requests that it cannot carry out.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.processes.children import end_with_parent
from localspec.llama import library, remote
from localspec.llama.rpc.watch import accepted_at, keep_alive
from localspec.models.memory.machine import host_only

_LOOK_S = 1.0
_UNREAD_S = 120
"""Seconds after which a client that takes no answers is left."""


def main() -> None:
    """Serve until the parent ends this process."""
    parser = argparse.ArgumentParser(prog="python -m localspec.loading.rpc_server")
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    library.start()
    port = int(arguments.address.rpartition(":")[2])
    threading.Thread(target=_keep_alive, args=(port,), daemon=True).start()
    try:
        remote.serve(
            arguments.plugin, arguments.address, arguments.threads, arguments.cache, _available
        )
    except LocalspecError as error:
        sys.exit(f"localspec: {error}")
    sys.exit(1)


def _available() -> tuple[int, int]:
    """Free and total memory of the host; ggml itself takes all of it for free."""
    memory = host_only()
    return memory.host_usable, memory.host_total


def _keep_alive(port: int) -> None:
    """A client whose machine vanishes must not hold the only place for ever."""
    known: set[tuple[object, ...]] = set()
    while True:
        now = set()
        for connection in accepted_at(port):
            with contextlib.suppress(OSError):
                peer = tuple(connection.getpeername())
                now.add(peer)
                if peer not in known:
                    keep_alive(connection, _UNREAD_S)
        known = now
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
