"""Describes the crash of a process in native code: signal, step, and what to try."""

from __future__ import annotations

import signal

_MOST = 300
"""Characters of a native message that are repeated."""
DUMP = "Fatal Python error"
"""Begins what faulthandler writes after a native message."""


def signal_name(number: int) -> str:
    """The signal as in ``signal 11 (SIGSEGV)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def visible(text: str) -> str:
    """The text with control characters as readable escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """The text on one line, with control characters visible, and not too long."""
    shown = visible(text)
    return shown if len(shown) <= _MOST else shown[: _MOST - 1] + "…"


def last_words(native: str) -> str:
    """The last line of native code before it aborted, such as a failed assertion; or ""."""
    lines = [line.strip() for line in native.partition(DUMP)[0].splitlines()]
    return harmless(next((line for line in reversed(lines) if line), ""))


def explain(number: int, doing: str, native: str = "") -> str:
    """What happened and when: ``llama.cpp crashed with signal 6 (SIGABRT) while loading a.gguf:
    GGML_ASSERT(...) failed``. ``native`` is what native code wrote to stderr.
    """
    name = signal_name(number)
    at = f" while {harmless(doing)}" if doing else ""
    if number == signal.SIGKILL:
        return f"the process was killed with {name}{at}"
    # Other signals come without a message: earlier output has other reasons.
    message = last_words(native) if number == signal.SIGABRT else ""
    return f"llama.cpp crashed with {name}{at}{': ' if message else ''}{message}"


def advice(number: int, doing: str) -> str:
    """Advice for the user."""
    if number == signal.SIGKILL:
        return "if memory ran out, try a smaller model or a smaller --ctx"
    if number == signal.SIGILL:
        return "llama.cpp was built for another processor; `localspec doctor` says what to do"
    if doing.startswith("loading") and number == signal.SIGABRT:
        return "the file may be damaged: fetch it again, or try `localspec doctor`"
    return "try `localspec doctor`"
