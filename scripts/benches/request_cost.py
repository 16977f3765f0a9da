"""The processor time of the server's own process for a request: what HTTP costs beside the engine.

Replies have one token, greedy and without drafts, over one connection. Processor time is little
disturbed by other programs; the time of the engine's process is not in it.
"""

from __future__ import annotations

import argparse
import http.client
import json
from typing import Any

import psutil

from benches.shared.servers import running

_ADDRESS = r"http://127\.0\.0\.1:(\d+)"
_FIRST = 20
"""Requests that are not counted."""
_SAID = [{"role": "user", "content": "Hello there"}]
_ONE: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
_ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"messages": _SAID, "stream": True} | _ONE),
    ("/v1/chat/completions", {"messages": _SAID} | _ONE),
    ("/v1/completions", {"prompt": "Hello there", "stream": True} | _ONE),
    ("/v1/messages", {"messages": _SAID, "stream": True} | _ONE),
    ("/api/chat", {"messages": _SAID, "options": {"num_predict": 1, "temperature": 0}}),
)


def milliseconds(server: psutil.Process, port: int, path: str, body: Any, n: int) -> float:
    """Of processor time for a request, the mean of n."""
    connection, raw, before = http.client.HTTPConnection("127.0.0.1", port), json.dumps(body), 0.0
    for i in range(_FIRST + n):
        if i == _FIRST:
            before = sum(server.cpu_times()[:2])
        connection.request("POST", path, raw, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{path} answers {answer.status}")
    return 1e3 * (sum(server.cpu_times()[:2]) - before) / n


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=400, help="requests of each kind")
    asked = parser.parse_args()
    flags = ("demo", "--port", "0", "--drafter", "off", "--threads", "1")
    with running("serve", *flags, address=_ADDRESS) as port:
        server = _server(int(port))
        for path, body in _ASKED:
            spent = milliseconds(server, int(port), path, body, asked.n)
            how = "stream" if body.get("stream", path.startswith("/api")) else "whole"
            print(f"{path:22} {how:7} {spent:5.2f} ms", flush=True)


def _server(port: int) -> psutil.Process:
    """The process that listens."""
    for process in psutil.Process().children():
        for one in process.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
                return process
    raise SystemExit("the process of the server was not found")


if __name__ == "__main__":
    main()
