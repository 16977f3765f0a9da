"""Pictures of strangers: decoded as a viewer would show them, or refused in one sentence."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import picture_files
import pytest
from PIL import Image

from localspec.core.errors import Interrupted, MediaError
from localspec.core.picture import LARGEST_FILE, Picture
from localspec.core.processes.bounded import BoundedProcess
from localspec.media import decode_child, decoding
from localspec.media.decode_child import RefusedError, decoded


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width: int, height: int) -> bytes:
    """A PNG of that size by its header, of a few bytes."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_process_decodes_and_says_the_size() -> None:
    found = decoding.decoded(picture_files.png(), "a.png")
    assert (found.width, found.height) == (96, 64)
    assert found.rgb == picture_files.drawn().tobytes()
    assert found.digest == decoding.decoded(picture_files.png(), "other.png").digest


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_the_known_kinds_are_decoded(form: str) -> None:
    assert decoded(picture_files.png(format=form)).size == (96, 64)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello", "of no known kind"),
        (b"", "of no known kind"),
        (b"%PDF-1.7", "of no known kind"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "of no known kind"),
        (picture_files.png()[:200], "is damaged"),
        (picture_files.png(format="JPEG")[:700], "is damaged"),
        (picture_files.png(format="TIFF"), "of no known kind"),
        (bomb(60_000, 60_000), "has 60000 x 60000 pixels"),
        (bomb(20_000, 2), "has 20000 x 2 pixels"),
        (bomb(0, 9), "of no known kind"),
    ],
)
def test_what_is_no_picture_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        decoded(data)


def test_a_picture_is_turned_as_its_exif_says() -> None:
    image = Image.new("RGB", (40, 20), "blue")
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decoded(picture_files.png(image, format="JPEG", exif=exif)).size == (20, 40)


def test_what_is_transparent_is_white() -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert decoded(picture_files.png(image)).getpixel((1, 1)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    made = decoded(picture_files.png(palette, format="GIF", transparency=0))
    assert made.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("mode", "colour", "form", "wanted"),
    [
        ("CMYK", (0, 0, 0, 255), "JPEG", (0, 0, 0)),
        ("L", 128, "PNG", (128, 128, 128)),
        ("I;16", 128 * 256, "PNG", (128, 128, 128)),
        ("1", 1, "PNG", (255, 255, 255)),
        ("LA", (10, 255), "PNG", (10, 10, 10)),
    ],
)
def test_other_modes_become_rgb(
    mode: str, colour: object, form: str, wanted: tuple[int, int, int]
) -> None:
    image = Image.new(mode, (8, 8), colour)  # type: ignore[arg-type]
    found = decoded(picture_files.png(image, format=form)).getpixel((4, 4))
    assert isinstance(found, tuple)
    assert all(abs(a - b) <= 2 for a, b in zip(found, wanted, strict=True))


def test_of_an_animation_the_first_frame_is_seen() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = picture_files.png(frames[0], format="GIF", save_all=True, append_images=frames[1:])
    assert decoded(data).getpixel((2, 2)) == (255, 0, 0)


def test_a_large_picture_is_made_smaller() -> None:
    image = Image.new("RGB", (4000, 3000), "green")
    width, height = decoded(picture_files.png(image)).size
    assert width * height <= decode_child.KEPT_PIXELS
    assert abs(width / height - 4 / 3) < 0.01


def test_a_refusal_names_the_file() -> None:
    with pytest.raises(
        MediaError, match=r"^holiday.png is damaged or of no known kind: there are PNG, "
    ):
        decoding.decoded(b"hello", "holiday.png")


def test_a_picture_that_takes_too_much_ends_its_process_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "never_answers.py").write_text("import sys\nsys.stdin.read()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(decoding, "_MEMORY", 1)
    bounds = decoding._process()._bounds
    process = BoundedProcess("never_answers", "decodes pictures", bounds)
    monkeypatch.setattr(decoding, "_pool", lambda: process)
    try:
        with pytest.raises(MediaError, match="cannot be decoded: it takes more than"):
            decoding.decoded(picture_files.png(), "a.png")
    finally:
        process.close()


def test_nobody_waits_for_a_picture_that_is_not_wanted_any_more() -> None:
    pool = decoding._process()
    try:
        with pytest.raises(Interrupted):
            pool.ask({"data": ""}, lambda: True)
    finally:
        pool.close()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"nowhere\.png cannot be read: No such file"):
        decoding.file_of(Picture(path=str(tmp_path / "nowhere.png")))
    with pytest.raises(MediaError, match="cannot be read"):
        decoding.file_of(Picture(path="a\0b"))
    (tmp_path / "empty.png").write_bytes(b"")
    with pytest.raises(MediaError, match="is empty"):
        decoding.file_of(Picture(path=str(tmp_path / "empty.png")))
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(MediaError, match="larger than 32 MB"):
        decoding.file_of(Picture(path=str(large)))


def test_a_pipe_in_place_of_a_picture_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(MediaError, match="no regular file"):
        decoding.file_of(Picture(path=str(tmp_path / "a.png"), name="a.png"))
