"""What native code printed to the log of an engine before it ended the process.

Earlier engines printed to the same file, and running ones do. So it is what is behind the last
record of ours, and before the stack that faulthandler writes of an abort.
"""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core.files import checked

CONTINUED = "| "
"""Begins every further line of a record."""
_RECORD = re.compile(
    rf"^\d{{4}}-\d\d-\d\d \S+ \d+ [A-Z]+ .*\n?(?:^{re.escape(CONTINUED)}.*\n?)*", re.MULTILINE
)
_STACK = re.compile(r"  File |Extension modules")
"""Begins the last line of an earlier crash."""
_TAIL = 1 << 16


def words(log: Path, status: int) -> str:
    """What the engine that ended with ``status`` printed; "" where the log cannot be read."""
    from localspec.core.processes import crash  # rarely needed, and it compiles expressions

    try:
        with checked.opened(log) as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    before, crashed, after = text.rpartition(crash.DUMP)
    latest = before if crashed and status < 0 else after
    return _RECORD.split(latest.rpartition(crash.DUMP)[2])[-1]


def last(log: Path, status: int) -> str:
    """The last line of `words`; "" without one."""
    from localspec.core.processes import crash

    line = crash.last_words(words(log, status))
    return "" if _STACK.match(line) else line
