"""Pictures are fetched from the places that the server was started for, and from nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from picture_files import png

from localspec.core.errors import MediaError, UsageError
from localspec.core.events import Message
from localspec.core.picture import LARGEST_FILE, Picture
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend import media_places
from localspec.serve.backend.media_places import MediaPlaces


class Web(http.server.BaseHTTPRequestHandler):
    """Serves one picture, and answers that go astray."""

    asked: list[str]
    speaks: threading.Event

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/away.png":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/cat.png")
            self.end_headers()
            return
        if self.path == "/silent.png":
            self.speaks.wait()
        self.send_response(200 if self.path in ("/cat.png", "/endless.png") else 404)
        self.end_headers()
        if self.path == "/cat.png":
            self.wfile.write(png())
        elif self.path == "/endless.png":
            with contextlib.suppress(ConnectionError):
                for _ in range((LARGEST_FILE >> 20) + 8):
                    self.wfile.write(bytes(1 << 20))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    Web.asked, Web.speaks = [], threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Web.speaks.set()
    server.shutdown()
    server.server_close()


def fetched(places: MediaPlaces, *addresses: str, grow=lambda _: None) -> tuple[Picture, ...]:
    pictures = tuple(Picture(address=address, at=i) for i, address in enumerate(addresses))
    request = ReplyRequest(messages=(Message("user", "what?", pictures=pictures),))
    return asyncio.run(places.fetched("", request, grow)).messages[0].pictures


def test_a_named_server_and_a_named_folder_are_read(web: str, tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(b"other")
    places = MediaPlaces([web, str(tmp_path)])
    one, two = fetched(places, f"{web}/cat.png", f"file://{tmp_path}/a%20b.png")
    assert (one.data, one.address, one.at) == (png(), "", 0)
    assert (two.data, two.at) == (b"other", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:{port}/cat.png",
        "http://127.0.0.1:1/cat.png",
        "https://127.0.0.1:{port}/cat.png",
        "http://127.0.0.1/cat.png",
        "http://user:secret@127.0.0.1:{port}/cat.png",
        "http://127.0.0.1:{port}@example.org/cat.png",
        "http://[::1]:{port}/cat.png",
        "http://127.0.0.1:99999999/cat.png",
        "http:///cat.png",
        "file:///etc/hostname",
    ],
)
def test_no_other_address_is_asked(web: str, address: str) -> None:
    with pytest.raises(MediaError, match="this server fetches nothing"):
        fetched(MediaPlaces([web]), address.format(port=web.rpartition(":")[2]))
    assert Web.asked == []


async def test_a_request_has_its_pictures_by_address(web: str, make_world) -> None:
    world = await make_world(media=(web,))
    part = {"type": "image_url", "image_url": {"url": f"{web}/cat.png"}}
    content = [{"type": "text", "text": "What is this?"}, part]
    asked = {"messages": [{"role": "user", "content": content}]}
    answer = await world.client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200
    (picture,) = world.requests[0].messages[0].pictures
    assert (picture.data, picture.address) == (png(), "")
    choices = await world.client.post("/v1/chat/completions", json=asked | {"n": 3})
    assert choices.status_code == 200
    seen = [request.messages[0].pictures for request in world.requests]
    assert seen == [(picture,)] * 4
    assert Web.asked == ["/cat.png"] * 2  # once for each request, however many choices it has
    part["image_url"]["url"] = "http://example.org/cat.png"  # type: ignore[index]
    answer = await world.client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("this server fetches nothing (http)")


def test_without_the_flag_nothing_is_fetched(web: str) -> None:
    with pytest.raises(MediaError, match="or start the server with --allow-media"):
        fetched(MediaPlaces(), f"{web}/cat.png")
    assert Web.asked == []


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "socks9://x"])
def test_a_proxy_that_cannot_be_used_is_a_sentence(
    web: str, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(MediaError, match="with the proxy settings of the server's environment"):
        fetched(MediaPlaces([web]), f"{web}/cat.png")


def test_a_redirection_is_not_followed(web: str) -> None:
    with pytest.raises(MediaError, match="answers with status 302"):
        fetched(MediaPlaces([web]), f"{web}/away.png")
    assert Web.asked == ["/away.png"]


def test_what_cannot_be_had_is_a_sentence(web: str, tmp_path: Path) -> None:
    places = MediaPlaces([web, str(tmp_path), "http://127.0.0.1:9"])
    for address, why in {
        f"{web}/no.png": "answers with status 404",
        f"{web}/endless.png": "larger than 32 MB",
        "http://127.0.0.1:9/a.png": "cannot be fetched",
        f"file://{tmp_path}/no.png": "No such file",
        f"file://{tmp_path}": "no regular file",
        "file://elsewhere/a.png": "no file of this machine",
        f"file://{tmp_path}/%00.png": "no file of this machine",
    }.items():
        with pytest.raises(MediaError, match=why):
            fetched(places, address)


def test_no_link_and_no_dots_lead_out_of_a_folder(tmp_path: Path) -> None:
    inside, secret = tmp_path / "inside", tmp_path / "secret.png"
    inside.mkdir()
    secret.write_bytes(b"secret")
    (inside / "link.png").symlink_to(secret)
    (inside / "up").symlink_to(tmp_path)
    (tmp_path / "inside too").mkdir()
    (tmp_path / "inside too" / "a.png").write_bytes(b"secret")
    names = ("link.png", "up/secret.png", "../secret.png", "%2e%2e/secret.png")
    for name in (*names, "../inside too/a.png"):
        with pytest.raises(MediaError, match="in none of the folders"):
            fetched(MediaPlaces([str(inside)]), f"file://{inside}/{name}")


def test_a_pipe_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(MediaError, match="no regular file"):
        fetched(MediaPlaces([str(tmp_path)]), f"file://{tmp_path}/pipe.png")


def test_what_is_fetched_counts_as_if_it_were_sent(web: str) -> None:
    told: list[int] = []
    fetched(MediaPlaces([web]), f"{web}/cat.png", f"{web}/cat.png", grow=told.append)
    assert told[-1] == 2 * len(png())


@pytest.mark.parametrize(
    "place",
    [
        *("https://", "ftp://a.org", "https://a.org/b", "https://u@a.org", "https://a.org:x"),
        "/no/such",
    ],
)
def test_a_place_that_is_none_is_refused_at_the_start(place: str) -> None:
    with pytest.raises(UsageError, match="--allow-media"):
        MediaPlaces([place])


def test_pictures_that_never_come_leave_their_turn_to_other_requests(
    web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each picture had twenty seconds, and a request may have hundreds."""
    monkeypatch.setattr(media_places, "_IN_ALL", 0.3)
    places = MediaPlaces([web])

    def asked(path: str, n: int) -> ReplyRequest:
        pictures = tuple(Picture(address=f"{web}/{path}", at=i) for i in range(n))
        return ReplyRequest(messages=(Message("user", "what?", pictures=pictures),))

    async def together() -> list[object]:
        silent = [places.fetched("", asked("silent.png", 50), lambda _: None) for _ in range(8)]
        return await asyncio.gather(
            *silent, places.fetched("", asked("cat.png", 1), lambda _: None), return_exceptions=True
        )

    *failed, found = asyncio.run(together())
    assert all("together" in str(error) for error in failed)
    assert isinstance(found, ReplyRequest)
