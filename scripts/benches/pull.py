"""How much of a line a pull uses, if each connection gets less than the line.

A fake Hub on loopback, in a separate process, sends one file; every connection and the whole line
have a limit. Measured is a pull as `localspec pull` does it: download, write, hash and move.

    scripts/bench pull [--gigabytes 4] [--line 250] [--connection 50] [--folder FOLDER]

Rates are in megabytes a second; 250 are 2 Gbit/s. The folder gets a cache of its own, and is
removed afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

_BLOCK = random.Random(1).randbytes(1 << 24)
_STEP = 1 << 17
REPO, COMMIT, FILE = "bench/Line-GGUF", "1" * 40, "line-Q4_0.gguf"


class _Bucket:
    """Limits the rate to a number of bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock, self._next = rate, threading.Lock(), time.monotonic()

    def delay(self, n_bytes: int) -> float:
        """Seconds to wait before the next ``n_bytes``."""
        with self._lock:
            now = time.monotonic()
            # Up to a tenth of a second of unused rate is carried over, as by the buffers of a line.
            self._next = max(self._next, now - 0.1) + n_bytes / self._rate
            return self._next - now


def _serve(size: int, line: float, connection: float, told: Connection) -> None:
    bucket = _Bucket(line)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def setup(self) -> None:
            super().setup()
            self.own = _Bucket(connection)

        def do_GET(self) -> None:
            if not self.path.startswith("/cdn"):
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{port}/cdn")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"])
            assert found is not None
            at, end = int(found[1]), int(found[2]) + 1 if found[2] else size
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {at}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - at))
            self.end_headers()
            view = memoryview(_BLOCK)
            while at < end:
                place = at % len(_BLOCK)
                n_bytes = min(_STEP, end - at, len(_BLOCK) - place)
                delay = max(self.own.delay(n_bytes), bucket.delay(n_bytes))
                if delay > 0:
                    time.sleep(delay)
                try:
                    self.wfile.write(view[place : place + n_bytes])
                except OSError:
                    self.close_connection = True
                    return
                at += n_bytes

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    told.send(port)
    server.serve_forever()


def _sha256(size: int) -> str:
    digest, left = hashlib.sha256(), size
    while left:
        part = _BLOCK[:left]
        digest.update(part)
        left -= len(part)
    return digest.hexdigest()


def main() -> None:
    """Measure one pull and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--line", type=float, default=250.0)
    parser.add_argument("--connection", type=float, default=50.0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    ours, theirs = multiprocessing.Pipe()
    arguments = (size, 1e6 * options.line, 1e6 * options.connection, theirs)
    server = multiprocessing.Process(target=_serve, args=arguments, daemon=True)
    server.start()
    home = tempfile.mkdtemp(prefix="bench-pull-", dir=options.folder)
    os.environ |= {"HF_ENDPOINT": f"http://127.0.0.1:{ours.recv()}", "HF_HOME": home}
    os.environ |= {"NO_PROXY": "*", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    try:
        print(json.dumps(_measure(size, options.line)))
    finally:
        server.terminate()
        server.join()
        shutil.rmtree(home)


def _measure(size: int, line: float) -> dict[str, object]:
    from localspec.models.catalog.file_names import RepoFile
    from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress
    from localspec.models.hub.transfers import obtain_all

    seen: list[tuple[float, int]] = []

    def watch(files: list[DownloadProgress]) -> None:
        seen.append((time.perf_counter(), files[0].fetched))

    job = DownloadJob(REPO, COMMIT, RepoFile(FILE, size, _sha256(size)))
    began, used = time.perf_counter(), time.process_time()
    obtain_all([job], watch, lambda: False)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    whole = next(at for at, came in seen if came >= size) - began
    steady = [(at, came) for at, came in seen if at - began >= 5.0 and came < size]
    rate = None
    if len(steady) > 1:
        rate = (steady[-1][1] - steady[0][1]) / (steady[-1][0] - steady[0][0]) / 1e6
    return {
        "bytes": size,
        "seconds": round(seconds, 2),
        "fetched_after": round(whole, 2),
        "share_of_line": round(size / seconds / 1e6 / line, 3),
        "cpu_seconds": round(time.process_time() - used, 2),
        "steady_share_of_line": None if rate is None else round(rate / line, 3),
    }


if __name__ == "__main__":
    main()
