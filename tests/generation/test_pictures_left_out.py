"""A request has a most of pictures: those of tools' results beyond it are left out. What is decoded
and not encoded yet has a most, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from localspec.core.errors import QueueFullError, UsageError
from localspec.core.events import Message
from localspec.core.media_rows import row_ids
from localspec.core.picture import LEFT_OUT, MOST_PICTURES, Decoded, Picture
from localspec.core.reply_request import ReplyRequest
from localspec.generation.pictures import Pictures
from localspec.media import decoding


class Part:
    n_bytes = 4

    def __init__(self, digest: bytes, waiting_bytes: int) -> None:
        self.tokens = tuple(row_ids(digest, 1))
        self.waiting_bytes = waiting_bytes


class Sight:
    rate = None

    def __init__(self, n_bytes: int = 0) -> None:
        self.n_bytes = n_bytes

    def encoder(self, tell: Callable[[str], None], cancelled: object = None) -> Sight:
        return self

    def tokenized(self, decoded: Decoded, cancelled: Callable[[], bool]) -> Part:
        return Part(decoded.digest, self.n_bytes)


def results(count: int) -> list[Message]:
    return [
        Message("tool", "seen: ", call_id=str(i), pictures=(Picture(data=b"%d" % i, at=6),))
        for i in range(count)
    ]


@pytest.fixture(autouse=True)
def _pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grey:
        def __init__(self, data: bytes) -> None:
            self.digest = hashlib.sha256(data).digest()

    monkeypatch.setattr(decoding, "decoded", lambda data, *_, **__: Grey(data))


def left_out(messages: list[Message]) -> list[int]:
    found, _ = Pictures(Sight()).marked(messages, lambda: False, lambda _: None)
    return [i for i, message in enumerate(found) if LEFT_OUT in message.content]


def test_the_first_results_of_tools_are_left_out_some_at_a_time() -> None:
    assert left_out(results(MOST_PICTURES)) == []
    for count in (MOST_PICTURES + 1, MOST_PICTURES + 16):  # what was read of the prompt stays so
        assert left_out(results(count)) == list(range(16))
    assert left_out(results(MOST_PICTURES + 17)) == list(range(32))
    ReplyRequest(tuple(results(500)))


def test_the_last_one_is_seen_where_it_can_be() -> None:
    asked = [Message("user", "", pictures=(Picture(data=b"u%d" % i),)) for i in range(60)]
    assert left_out([*asked, *results(5)]) == [60, 61, 62, 63]
    full = [Message("user", "", pictures=(Picture(data=b"u%d" % i),)) for i in range(64)]
    assert left_out([*full, *results(2)]) == [64, 65]


def test_a_user_who_shows_too_many_is_told_what_to_do() -> None:
    pictures = tuple(Picture(data=b"%d" % i) for i in range(MOST_PICTURES + 1))
    with pytest.raises(UsageError, match=r"has 65: leave earlier messages out, or begin a new"):
        ReplyRequest((Message("user", "", pictures=pictures),))


def test_what_waits_to_be_encoded_has_a_most_for_all_requests_together() -> None:
    pictures = Pictures(Sight(n_bytes=600 << 20))

    def marked(*data: bytes) -> tuple[object, ...]:
        shown = tuple(Picture(data=one) for one in data)
        asked = (Message("user", "", pictures=shown),)
        return pictures.marked(asked, lambda: False, lambda _: None)[1]

    held = marked(b"one", b"two")
    with pytest.raises(QueueFullError, match="pictures and sounds of 1200 MB, decoded, wait"):
        marked(b"three")
    assert marked(b"one") == held[:1]  # it is decoded already
    for part in held:
        part.waiting_bytes = 0  # type: ignore[attr-defined] # as they are encoded
    assert marked(b"three")


def test_what_was_given_up_is_not_kept_with_its_pixels() -> None:
    pictures = Pictures(Sight(n_bytes=100 << 20))
    for i in range(20):
        asked = (Message("user", "", pictures=(Picture(data=b"%d" % i),)),)
        pictures.marked(asked, lambda: False, lambda _: None)
    assert len(pictures._kept) == 2
