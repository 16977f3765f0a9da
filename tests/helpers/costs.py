"""What a piece of work costs, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import json, time
{setup}

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

before, since = peak(), time.thread_time()
try:
    {work}
    said = ""
except Exception as error:
    said = str(error)
print(json.dumps([time.thread_time() - since, peak() - before, said]))
"""


@dataclass(frozen=True)
class Cost:
    """What was measured."""

    seconds: float
    """Seconds of processor time."""
    megabytes: float
    """Most memory beyond what there was before."""
    said: str
    """The error that it raised."""


def cost(setup: str, work: str) -> Cost:
    """The cost of a line of Python after others; memory needs Linux."""
    program = _PROGRAM.format(setup=setup, work=work)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
    return Cost(*json.loads(done.stdout))
