"""A stand-in for the Hugging Face Hub on loopback: the protocol that huggingface_hub speaks.

It serves real GGUFs, redirects to a "CDN" as the real one does, and misbehaves on demand.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from localspec.models.catalog import catalog

TARGET, DRAFT = "org/Tiny-8B-GGUF", "org/Tiny-1B-GGUF"
TARGET_FILE, DRAFT_FILE = "tiny-8b-Q4_K_M.gguf", "tiny-1b-Q8_0.gguf"
LFS_FROM = 20_000
"""Bytes from which a file is in LFS, as .gitattributes would have it for .gguf."""
FREE = 100_000
"""Bytes that are sent before enough downloads are under way."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def own_catalogue(text: str) -> Path:
    path = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "models.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    catalog.catalog.cache_clear()
    return path


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    name: str
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    main: str = ""
    refs: dict[str, str] = field(default_factory=dict)
    """Commits of branches, tags and pull requests beside main."""
    gated: bool = False
    private: bool = False
    licence: str = "apache-2.0"

    def commit(self, files: dict[str, bytes]) -> str:
        """A new commit on main that adds or replaces files."""
        tree = {**self.commits.get(self.main, {}), **files}
        content = "".join(f"{p}{sha256(d)}" for p, d in sorted(tree.items()))
        self.main = hashlib.sha1((self.main + content).encode()).hexdigest()
        self.commits[self.main] = tree
        return self.main

    def branch(self, name: str, files: dict[str, bytes]) -> str:
        """A branch, tag or pull request with files of its own; main stays where it is."""
        main = self.main
        self.refs[name], self.main = self.commit(files), main
        return self.refs[name]

    def resolve(self, revision: str | None) -> str:
        """The commit that a revision means; itself if it is none of the names."""
        if revision in {None, "main"}:
            return self.main
        return self.refs.get(str(revision), str(revision))


@dataclass
class Fault:
    """An answer other than the right one, once."""

    where: str
    """A regular expression on the path."""
    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    token: str | None
    host: str


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Readers that go away are part of the game."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Hub:
    """The server and its knobs."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens = {"hf_good"}
        self.faults: list[Fault] = []
        self.cuts: list[int] = []
        """Offsets in a file at which a connection breaks, one after the other."""
        self.stalls: list[int] = []
        """Offsets in a file at which nothing comes any more, one after the other."""
        self.wrong: dict[str, bytes] = {}
        """By sha256: what is served instead."""
        self.portal: bytes | None = None
        """A page that something between sends instead of every file, as portals and proxies do."""
        self.portal_length = True
        """Whether it says how long that page is."""
        self.compresses = False
        """Whether something between compresses every file, though nobody has asked for that."""
        self.ranges = True
        self.blobs = True
        """Whether a description lists sizes and hashes where it is asked to; mirrors may not."""
        self.tree = True
        """Whether there is a tree to be asked."""
        self.heads = True
        """Whether HEAD says sizes and hashes."""
        self.page = 1000
        """Files on a page of a tree."""
        self.said: bytes | None = None
        """An answer to every question instead."""
        self.shift = 0
        """Bytes by which ranges are sent from another place than was asked for."""
        self.rate: float | None = None
        """Bytes a second of each connection to the CDN."""
        self.crawls = 0
        """Requests to the CDN, the next ones, that get a byte now and then."""
        self.open = self.most_open = 0
        """Downloads under way, and the most there ever were."""
        self.together = 0
        """Downloads that must have been under way at once before a file is sent to its end."""
        self.hangs = False
        """Whether downloads stop in the middle and stay open."""
        self.most: int | None = None
        """Bytes of files after which they come one byte at a time, for as long as this is set."""
        self.cdn_host = "localhost"
        """Another origin than the Hub's, as in life."""
        self.log: list[Request] = []
        self.sent = 0
        """Bytes of files that were sent."""
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def repo(self, name: str, files: dict[str, bytes], **settings: object) -> Repo:
        found = self.repos.setdefault(name, Repo(name))
        for key, value in settings.items():
            setattr(found, key, value)
        found.commit(files)
        return found

    def blob(self, digest: str) -> bytes:
        for repo in self.repos.values():
            for tree in repo.commits.values():
                for data in tree.values():
                    if sha256(data) == digest:
                        return data
        raise KeyError(digest)

    def downloads(self) -> list[Request]:
        return [r for r in self.log if r.path.startswith("/cdn/")]

    def forget(self) -> None:
        self.log.clear()
        self.sent = 0


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    return type("BoundHandler", (Handler,), {"hub": hub})


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path, allow_fragments=False).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        said = self.headers.get("Range")
        with self.hub.lock:
            host = self.headers.get("Host") or ""
            self.hub.log.append(Request(self.command, path, said, token, host))
            fault = next((f for f in self.hub.faults if re.search(f.where, path)), None)
            if fault is not None:
                self.hub.faults.remove(fault)
        if fault is not None:
            self._reply(fault.status, b"{}", fault.headers)
        elif found := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            self._file(self.hub.wrong.get(found[1]) or self.hub.blob(found[1]))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            self._api(found[1], found[2], found[3], token)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3], token)
        else:
            self._reply(404, b"{}")

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._reply(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _repo(self, name: str, token: str | None) -> Repo | None:
        repo = self.hub.repos.get(name)
        if token is not None and token not in self.hub.tokens:
            message = "Invalid credentials in Authorization header"
            self._reply(401, b"{}", {"X-Error-Message": message})
        elif repo is None or (repo.private and token is None):
            self._error(401 if token is None else 404, "RepoNotFound")
        else:
            return repo
        return None

    def _api(self, name: str, kind: str | None, revision: str | None, token: str | None) -> None:
        repo = self._repo(name, token)
        if repo is None:
            return
        if self.hub.said is not None:
            kind = "text/html" if self.hub.said.startswith(b"<") else "application/json"
            self._reply(200, self.hub.said, {"Content-Type": kind})
            return
        commit = repo.resolve(revision)
        if commit not in repo.commits or (kind == "tree" and not self.hub.tree):
            self._error(404, "RevisionNotFound" if commit not in repo.commits else "")
            return
        tree = repo.commits[commit]
        further: dict[str, str] = {}
        answer: object
        query = parse_qs(urlsplit(self.path).query)
        if kind == "tree":
            at = int(query.get("cursor", ["0"])[0])
            if at + self.hub.page < len(tree):
                place = f"{self.hub.url}{urlsplit(self.path).path}?recursive=true"
                further = {"Link": f'<{place}&cursor={at + self.hub.page}>; rel="next"'}
            answer = [
                {"type": "file", "path": p, "size": len(d), "oid": git_oid(d), **_lfs(d, "oid")}
                for p, d in list(tree.items())[at : at + self.hub.page]
            ]
        else:
            blobs = "blobs" in query and self.hub.blobs
            answer = {
                "id": name,
                "modelId": name,
                "sha": commit,
                "private": repo.private,
                "gated": "manual" if repo.gated else False,
                "tags": [],
                "cardData": {"license": repo.licence},
                "siblings": [
                    {"rfilename": p}
                    | ({"size": len(d), "blobId": git_oid(d), **_lfs(d, "sha256")} if blobs else {})
                    for p, d in tree.items()
                ],
            }
        body = json.dumps(answer).encode()
        self._reply(200, body, {"Content-Type": "application/json", **further})

    def _resolve(self, name: str, revision: str, path: str, token: str | None) -> None:
        repo = self._repo(name, token)
        if repo is None:
            return
        if repo.gated and token is None:
            self._error(401, "GatedRepo")
            return
        if repo.gated and token not in self.hub.tokens - {"hf_stranger"}:
            self._error(403, "GatedRepo")
            return
        commit = repo.resolve(revision)
        if commit not in repo.commits:
            self._error(404, "RevisionNotFound")
        elif path not in repo.commits[commit]:
            self._error(404, "EntryNotFound")
        else:
            data = repo.commits[commit][path]
            headers = {"X-Repo-Commit": commit}
            if len(data) < LFS_FROM:
                self._file(data, headers | {"ETag": f'"{git_oid(data)}"'})
                return
            digest = sha256(data)
            headers |= {
                "Location": f"http://{self.hub.cdn_host}:{self.hub.port}/cdn/{digest}",
                "X-Linked-ETag": f'"{digest}"',
                "X-Linked-Size": str(len(data)),
            }
            if not self.hub.heads:
                headers = {"Location": headers["Location"]}
            self._reply(302, b"", headers)

    def _file(self, data: bytes, headers: dict[str, str] | None = None) -> None:
        if self.hub.portal is not None:
            self._portal(self.hub.portal)
            return
        start, end, status = 0, len(data), 200
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        extra = {"Accept-Ranges": "bytes", **(headers or {})}
        if found and self.hub.ranges:
            start = int(found[1])
            if start >= len(data):
                self._reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            end = min(len(data), int(found[2]) + 1) if found[2] else len(data)
            status = 206
            first = start + self.hub.shift
            extra["Content-Range"] = f"bytes {first}-{end - 1}/{len(data)}"
        if self.hub.compresses:
            extra["Content-Encoding"] = "gzip"
            self._without_length(status, gzip.compress(data[start:end], 1), extra)
            return
        self.send_response(status)
        for key, value in {**extra, "Content-Length": str(end - start)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with self.hub.lock:
            self.hub.open += 1
            self.hub.most_open = max(self.hub.most_open, self.hub.open)
            crawls = self.hub.crawls > 0
            self.hub.crawls -= crawls
        try:
            self._send(data, start, end, crawls=crawls)
        finally:
            with self.hub.lock:
                self.hub.open -= 1

    def _portal(self, page: bytes) -> None:
        kind = {"Content-Type": "text/html; charset=utf-8"}
        if self.hub.portal_length:
            self._reply(200, page, kind)
        else:
            self._without_length(200, page, kind)

    def _without_length(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Connection": "close"}.items():  # which says where it ends
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def _wait(self, step: int, *, trickles: bool) -> None:
        """Wait as long as this hub does before it sends so many bytes."""
        if trickles:
            time.sleep(0.02)
        while trickles and self.hub.hangs:
            time.sleep(0.05)
        while self.hub.sent > FREE and self.hub.most_open < self.hub.together:
            time.sleep(0.005)
        if self.hub.rate is not None:
            time.sleep(step / self.hub.rate)

    def _send(self, data: bytes, at: int, end: int, *, crawls: bool) -> None:
        while at < end:
            trickles = crawls or (self.hub.most is not None and self.hub.sent >= self.hub.most)
            step = 1 << 14
            self._wait(step, trickles=trickles)
            until = min(end, at + (1 if trickles else step))
            with self.hub.lock:
                stall = next((c for c in self.hub.stalls if at < c <= until), None)
                if stall is not None:
                    self.hub.stalls.remove(stall)
            if stall is not None:
                time.sleep(1.5)
                self.close_connection = True
                return
            with self.hub.lock:
                cut = next((c for c in self.hub.cuts if at < c <= until), None)
                if cut is not None:
                    self.hub.cuts.remove(cut)
                    until = cut
                self.hub.sent += until - at
            try:
                self.wfile.write(data[at:until])
                self.wfile.flush()
            except OSError:  # the reader has gone
                self.close_connection = True
                return
            if cut is not None:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            at = until


def _lfs(data: bytes, key: str) -> dict[str, object]:
    if len(data) < LFS_FROM:
        return {}
    return {"lfs": {"size": len(data), key: sha256(data), "pointerSize": 134}}
