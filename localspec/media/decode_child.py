"""Decodes pictures and sounds within limits of time and memory.

Started as ``python -m localspec.media.decode_child``. One JSON object a line on stdin, one on
stdout: ``{"data"}`` has a file in base64, and is answered by ``{"width", "height", "rgb"}``, for a
sound by ``{"samples"}`` of ``{"rate"}``, or by ``{"refused": reason}``; with ``{"within": [width,
height]}`` a picture is made that small. A request that exceeds a limit ends the process; so does
the end of stdin.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

from PIL import Image, ImageOps

from localspec.core.picture import is_sound
from localspec.core.processes.bounded_child import answer_lines, limit_memory

MEMORY = 1 << 30
"""Bytes of address space."""
SECONDS = 15.0
"""Longest time for one picture."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MOST_PIXELS = 64_000_000
"""Of a file, as its header has them: what phones take has 50 million."""
KEPT_PIXELS = 4_000_000
"""Larger pictures are made smaller: encoders read fewer pixels than that."""
MOST_SECONDS = 1200
"""Longest sound."""
_LONGEST_SIDE = 16_384
Image.MAX_IMAGE_PIXELS = None  # we look ourselves, before anything is decoded


def main() -> None:
    """Answer requests until stdin ends."""
    limit_memory(MEMORY)
    warnings.simplefilter("ignore")
    answer_lines(_answer, SECONDS, computing=False)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    data = base64.b64decode(request["data"])
    try:
        if is_sound(data[:12]):
            sound = heard(data, request.get("rate"))
            return {"samples": base64.b64encode(sound).decode("ascii")}
        made = decoded(data)
        if request.get("within"):
            made.thumbnail(tuple(request["within"]))
    except RefusedError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": f"decoding it takes more than {MEMORY >> 20} MB of memory"}
    rgb = base64.b64encode(made.tobytes()).decode("ascii")
    return {"width": made.width, "height": made.height, "rgb": rgb}


class RefusedError(Exception):
    """The file cannot be decoded, or is too large; the text completes "the picture ..."."""


def heard(data: bytes, rate: int | None) -> bytes:
    """The sound in a file as float32 of one channel, with ``rate`` samples of a second.

    Raises:
        RefusedError: it cannot be decoded, or is too long; or there is no rate: nobody hears it.
    """
    if not rate:
        raise RefusedError("is a sound, which this model does not hear")
    import miniaudio  # type: ignore[import-untyped]  # as llama.cpp's own tools decode

    try:
        made = miniaudio.decode(data, miniaudio.SampleFormat.FLOAT32, 1, rate)
    except miniaudio.MiniaudioError:
        raise RefusedError("is damaged or of no known kind: there are WAV, MP3 and FLAC") from None
    samples = bytes(made.samples)
    if not samples:
        raise RefusedError("has no samples")
    if len(samples) > 4 * rate * MOST_SECONDS:
        raise RefusedError(f"lasts longer than {MOST_SECONDS // 60} minutes, which is the most")
    return samples


def decoded(data: bytes) -> Image.Image:
    """The picture in a file as RGB: the first frame, turned as its EXIF says, on white where it is
    transparent, and no larger than `KEPT_PIXELS`.

    Raises:
        RefusedError: it cannot be decoded, or is too large.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except (OSError, ValueError, SyntaxError):
        raise RefusedError(
            f"is damaged or of no known kind: there are {', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
        ) from None
    width, height = image.size
    if width < 1 or height < 1:
        raise RefusedError("has no pixels")
    if max(width, height) > _LONGEST_SIDE:
        raise RefusedError(
            f"has {width} x {height} pixels, and {_LONGEST_SIDE:,} is the longest side"
        )
    if width * height > MOST_PIXELS:
        raise RefusedError(
            f"has {width} x {height} pixels, and {MOST_PIXELS // 1_000_000} million are the most"
        )
    try:
        if image.format == "JPEG":  # decodes to a half, a quarter ... where that is enough
            image.draft(None, _scaled(width, height))
        image.load()
        made = _rgb(ImageOps.exif_transpose(image))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - decoders raise what they like about damaged files
        raise RefusedError(f"is damaged: {str(error) or type(error).__name__}"[:200]) from None
    size = _scaled(*made.size)
    return made if size == made.size else made.resize(size, Image.Resampling.LANCZOS)


def _scaled(width: int, height: int) -> tuple[int, int]:
    """The size that a picture is kept in."""
    if width * height <= KEPT_PIXELS:
        return width, height
    factor = (KEPT_PIXELS / (width * height)) ** 0.5
    return max(1, int(width * factor)), max(1, int(height * factor))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":  # 16 bits of grey
        image = image.point(lambda value: value / 256).convert("L")
    if image.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in image.info:
        layer = image.convert("RGBA")
        below = Image.new("RGBA", layer.size, "white")
        image = Image.alpha_composite(below, layer)
    return image.convert("RGB")


if __name__ == "__main__":
    main()
