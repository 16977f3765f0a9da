"""Sizes, durations and speeds as text, and a size that planning and computing share."""

from __future__ import annotations

CUDA_KERNELS = 256 << 20
"""Bytes that CUDA takes for kernels and its libraries when a pass first uses them: 0.2 GB beside a
proof's models on an H200, where it aborts the process if they are not there."""


def size(n: int) -> str:
    """Bytes in decimal units: 5.7 MB."""
    value = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the loop returns")


def size_text(n: int) -> str:
    """Bytes as `size`, with two digits where sizes of models are compared: 4.61 GB."""
    if n >= 1e8:
        return f"{n / 1e9:.2f} GB"
    return f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e3:.0f} kB"


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: 3:05 or 1:02:09."""
    whole = int(seconds + 0.5)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def seconds(of: float) -> str:
    """Seconds with two digits that say something: 12.3 s, 0.04 s; never none at all."""
    digits = 1 if of >= 0.095 else 2
    return f"{max(of, 0.01):.{digits}f} s"


def speed(per_second: float) -> str:
    """Tokens per second, with a digit more below ten: 62 or 0.5."""
    return f"{per_second:.{1 if per_second < 9.95 else 0}f}"
