"""Commands as the shell starts them, and what tests ask of their errors."""

from __future__ import annotations

from conftest import Files


def pair(files: Files) -> list[str]:
    """On one thread, so that a busy machine is nothing to tell."""
    model = ["-m", str(files.target), "-d", str(files.draft)]
    return [*model, "--draft-max", "3", "--threads", "1"]


def one_line(err: str) -> str:
    """The only line on stderr, which is no traceback."""
    (line,) = [x for x in err.splitlines() if x.strip()]
    assert line.startswith("localspec: ")
    assert "Traceback" not in err
    return line
