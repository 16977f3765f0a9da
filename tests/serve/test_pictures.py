"""Pictures in requests: bytes that come along are taken, addresses are noted."""

from __future__ import annotations

import base64

import pytest
from picture_files import png
from sound_files import wav

from localspec.core.errors import MediaError
from localspec.core.picture import Picture
from localspec.serve.requests.pictures import joined, picture_at, picture_of, sound_of

DATA = b"\x89PNG\r\n..."
CODED = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{CODED}",
        f"data:image/png;name=a.png;base64,{CODED}",
        f"data:IMAGE/PNG;base64,{CODED}",
        "data:image/png,%89PNG%0D%0A...",
    ],
)
def test_a_data_uri_is_a_picture(url: str) -> None:
    assert picture_at(url).data == DATA


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b.png",
        "/etc/passwd",
        "a.png",
        "",
        "https://a/" + 9000 * "a",
        "data:image/png;base64",
        " data:image/png;base64,",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(MediaError, match=r"this server fetches nothing .*data:image/png;base64"):
        picture_at(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("data:text/html;base64,AAAA", "text/html is no picture"),
        ("data:;base64,AAAA", "text/plain is no picture"),
        ("data:image/png;base64,???", "not in base64"),
        ("data:image/png;base64,", "is empty"),
    ],
)
def test_what_is_no_picture_is_refused(url: str, why: str) -> None:
    with pytest.raises(MediaError, match=why):
        picture_at(url)


def test_the_stated_kind_must_be_a_picture() -> None:
    assert picture_of(CODED, "image/jpeg").data == DATA
    with pytest.raises(MediaError, match="application/pdf is no picture"):
        picture_of(CODED, "application/pdf")


def test_parts_are_put_together_with_pictures_on_lines_of_their_own() -> None:
    a, b = Picture(b"a"), Picture(b"b")

    def found(*parts: str | Picture) -> tuple[str, list[tuple[bytes, int]]]:
        text, pictures = joined(parts)
        return text, [(p.data, p.at) for p in pictures]

    assert found("one", "two") == ("onetwo", [])
    assert found(a, "What?") == ("\nWhat?", [(b"a", 0)])
    assert found("What?", a) == ("What?\n", [(b"a", 6)])
    assert found("From", a, "to", b, "?") == ("From\n\nto\n\n?", [(b"a", 5), (b"b", 9)])
    assert found(a, b) == ("", [(b"a", 0), (b"b", 0)])
    assert found(a, "", "What?") == ("\nWhat?", [(b"a", 0)])


def test_sounds_are_bytes_in_base64() -> None:
    found = sound_of(base64.b64encode(wav()).decode())
    assert found.data == wav()
    for data, why in {
        "": "the sound is empty",
        "?": "the sound is not in base64",
        base64.b64encode(png()).decode(): "of no known kind; send WAV, MP3 or FLAC",
    }.items():
        with pytest.raises(MediaError, match=why):
            sound_of(data)
