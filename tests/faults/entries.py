"""How a case reads what it damaged: by a function, by a command in this process, or by the real
command in a process of its own; and what is a proper end.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

CODES = {0, 1, 2, 3, 4, 5, 6, 7, 130}
_MOST_LINES = 6
"""Notices about settings may come before the line that says why a command failed."""
_SECONDS = 100
"""Wall-clock seconds that a command may take on a busy machine; `limits` bounds CPU time."""


class _Entry:
    real = False


def use_real_command() -> None:
    """From now on, `command` starts ``python -m localspec``."""
    _Entry.real = True


def is_real() -> bool:
    """Whether `command` starts processes."""
    return _Entry.real


def outcome(read: Callable[[], object], *also: type[Exception]) -> str | None:
    """The fault in how a reader ended."""
    from localspec.core.errors import LocalspecError

    try:
        read()
    except LocalspecError as error:
        if error.exit_code not in CODES:
            return f"exit code {error.exit_code}"
        return None if str(error).strip() else f"{type(error).__name__} without a word"
    except also:
        return None
    return None


def command(*words: str, typed: str = "") -> str | None:
    """The fault in how a command ended; ``typed`` is its standard input."""
    code, err = _real(words, typed) if _Entry.real else _here(words)
    name = " ".join(words[:2])
    if code not in CODES:
        return f"`{name}` ended with {code}: {err[-200:]!r}"
    if "defect" in err or "Traceback" in err:
        log = Path(os.environ["LOCALSPEC_HOME"]) / "state" / "defect.log"
        trace = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        return f"`{name}`: {err.strip()[:300]} {' | '.join(trace[-5:])[:600]}"
    lines = err.splitlines()
    if code and not (lines and len(lines) <= _MOST_LINES):
        return f"`{name}` ended with {code} and {len(lines)} lines: {err[:300]!r}"
    return None


def _here(words: tuple[str, ...]) -> tuple[int, str]:
    from localspec.cli import call

    if words[0] in {"models", "show"}:
        _measure_no_machine()
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call(list(words))
        err.flush()
    return code, err.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


def _measure_no_machine() -> None:
    """Measuring takes seconds in each new home, and no case damages it."""
    from localspec.core.errors import LocalspecError
    from localspec.loading import machine_speed
    from localspec.models.memory import fit

    def unknown(*_: object) -> object:
        raise LocalspecError("not measured in a search")

    machine_speed.ask = unknown
    fit.free_cores = lambda cores: cores


def _real(words: tuple[str, ...], typed: str) -> tuple[int, str]:
    from localspec.core.processes.children import command as line

    run, environment = line("localspec", *words)
    try:
        done = subprocess.run(
            run,
            env=environment,
            input=typed.encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end within {_SECONDS} s"
    return done.returncode, done.stderr.decode("utf-8", "replace")


def fresh(folder: Path) -> Path:
    """A home of its own, and nothing cached of another."""
    from localspec.config import settings as config
    from localspec.models.catalog import catalog

    home = folder / "home"
    os.environ["LOCALSPEC_HOME"] = str(home)
    os.environ["HF_HOME"] = str(folder / "hf")
    for cached in (config.settings, catalog.catalog):
        cached.cache_clear()
    (home / "config").mkdir(parents=True, mode=0o700)
    return home
