"""Pulls from a stand-in for the Hub that misbehaves in one or several ways at once.

Whatever it does, the command ends in a documented code with one line, nothing that is not the
file that was asked for ever lies under its name, and the next pull from a healthy Hub completes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from hub_server import Fault, Hub

from faults.entries import command, fresh
from faults.mutations import TEXTS, Chance, in_json

_NAME, _FILE = "org/One-GGUF", "one-Q4_0.gguf"
_PLACES = ("/api/models/", "/resolve/", "/cdn/")
_STATUSES = (400, 401, 403, 404, 408, 410, 416, 418, 429, 451, 500, 502, 503, 504)
_SWITCHES = ("ranges", "blobs", "tree", "heads")


class _Misbehaviour:
    """The faults of a Hub that serves one repository; the name tells the kind."""

    def __init__(self, hub: Hub, chance: Chance, data: bytes) -> None:
        self._hub, self._chance, self._data = hub, chance, data
        self._digest = hashlib.sha256(data).hexdigest()

    def kinds(self) -> dict[str, Callable[[], object]]:
        """All of them by name."""
        refusals = itertools.product(_PLACES, _STATUSES)
        hub, repo = self._hub, self._hub.repos[_NAME]
        return {
            **{f"{n} at {p}": functools.partial(self._refuses, p, n) for p, n in refusals},
            **{f"sent to {w[:20]!r}": functools.partial(self._sends, w) for w in _ELSEWHERE},
            **{f"no {name}": functools.partial(setattr, hub, name, False) for name in _SWITCHES},
            "connections cut": self._cuts,
            "a connection stalls": self._stalls,
            "a byte is another": self._changes_a_byte,
            "the size is another": self._changes_the_size,
            "ranges from elsewhere": self._shifts,
            "a damaged description": self._damages,
            "no description": self._answers_nonsense,
            "main moves": functools.partial(repo.commit, {"README.md": b"newer"}),
            "gated": functools.partial(setattr, repo, "gated", True),
            "private": functools.partial(setattr, repo, "private", True),
            "a page for each file": self._pages,
        }

    def ends(self) -> None:
        """All is well again."""
        hub, repo = self._hub, self._hub.repos[_NAME]
        hub.faults, hub.cuts, hub.stalls, hub.wrong, hub.said = [], [], [], {}, None
        hub.ranges = hub.blobs = hub.tree = hub.heads = True
        hub.shift, hub.page = 0, 1000
        repo.gated = repo.private = False

    def _refuses(self, place: str, status: int) -> None:
        headers = {"Retry-After": self._chance.choice(("0", "0.2", "-1", "soon", "9" * 40))}
        times = self._chance.choice((1, 2, 12))
        self._hub.faults += [Fault(place, status, headers) for _ in range(times)]

    def _sends(self, where: str) -> None:
        place = self._chance.choice(_PLACES)
        self._hub.faults.append(Fault(place, 302, {"Location": where}))

    def _cuts(self) -> None:
        places = range(1, len(self._data))
        self._hub.cuts = sorted(self._chance.sample(places, self._chance.choice((1, 3, 9))))

    def _stalls(self) -> None:
        self._hub.stalls = [self._chance.randrange(1, len(self._data))]

    def _changes_a_byte(self) -> None:
        changed = bytearray(self._data)
        changed[self._chance.randrange(len(changed))] ^= 1
        self._hub.wrong[self._digest] = bytes(changed)

    def _changes_the_size(self) -> None:
        size = len(self._data) + self._chance.choice((-len(self._data) + 1, -1000, -1, 9))
        self._hub.wrong[self._digest] = self._data.ljust(size, b"x")[:size]

    def _shifts(self) -> None:
        self._hub.shift = self._chance.choice((1, 7, 1000))

    def _damages(self) -> None:
        self._hub.said = in_json(_ANSWER, self._chance)

    def _answers_nonsense(self) -> None:
        text = self._chance.choice(("<html>", "[]", "null", "{", *TEXTS))
        self._hub.said = text.encode("utf-8", "replace")

    def _pages(self) -> None:
        self._hub.blobs, self._hub.page = False, 1


_ELSEWHERE = (
    "/nowhere", "", "http://127.0.0.1:1/", "file:///etc/passwd", "ftp://localhost/x", "http://",
    "https://[::1", "/" * 5000, "data:,x", "//localhost:99999/x",
)  # fmt: skip
_ANSWER = b"""{"_id": "1", "id": "org/One-GGUF", "modelId": "org/One-GGUF", "sha":
"0123456789012345678901234567890123456789", "gated": false, "private": false, "tags": ["gguf"],
"cardData": {"license": "mit"}, "siblings": [{"rfilename": "one-Q4_0.gguf", "size": 1000, "blobId":
"a", "lfs": {"sha256": "b", "size": 1000, "pointerSize": 100}}, {"rfilename": "README.md",
"size": 10, "blobId": "c"}]}"""


def pulls(chance: Chance, folder: Path) -> str | None:
    """One pull from a Hub that misbehaves, and one from the same when it is well."""
    from faults.model_files import small_gguf
    from localspec.models.hub import client, retry

    fresh(folder)
    retry.FIRST_WAIT = 0.01  # type: ignore[misc]
    retry._LONGEST_WAIT = 0.3
    client.READ_TIMEOUT = 2.0  # type: ignore[misc]
    data = small_gguf()
    hub = Hub()
    try:
        os.environ |= {"HF_ENDPOINT": hub.url, "NO_PROXY": "*", "HF_TOKEN": "hf_good"}
        hub.repo(_NAME, {_FILE: data, "README.md": b"# one"})
        misbehaviour = _Misbehaviour(hub, chance, data)
        kinds = misbehaviour.kinds()
        for name in chance.sample([*kinds], chance.choice((1, 1, 2, 3))):
            if chance.makes(name):
                kinds[name]()
        words = ("pull", _NAME, "--draft", "none")
        wrong = command(*words) or _whole(folder, data)
        misbehaviour.ends()
        wrong = wrong or command(*words) or _whole(folder, data)
        return wrong or (None if _there(folder) else "nothing is there after a healthy pull")
    finally:
        hub.close()


def _there(folder: Path) -> list[Path]:
    return [p for p in (folder / "hf").rglob(f"snapshots/*/{_FILE}") if p.exists()]


def _whole(folder: Path, data: bytes) -> str | None:
    """Faults of the files that have the name of the one asked for."""
    for path in _there(folder):
        if path.read_bytes() != data:
            return f"{path.name} is there with other contents"
    return None
