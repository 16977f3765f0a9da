"""Reads the memory of this machine in a separate process.

So llama.cpp, numpy and above all a graphics driver stay out of an interface's process, and its
event loop is not blocked.

``python -m localspec.models.memory.ask_machine memory`` prints what memory there is, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from localspec.core.errors import LocalspecError
from localspec.core.processes.children import ask
from localspec.models.memory.machine import Gpu, Memory, host_only, read_memory


def memory() -> Memory:
    """The memory of this machine; only the host's where llama.cpp cannot be loaded. Blocks."""
    try:
        found = ask(__name__, "memory")
        return Memory(**{**found, "gpus": tuple(Gpu(**gpu) for gpu in found["gpus"])})
    except (LocalspecError, TypeError, KeyError):  # `doctor` reports the reason
        return host_only()


if __name__ == "__main__":
    if sys.argv[1:] != ["memory"]:
        sys.exit("usage: ask_machine memory")
    sys.stdout.write(json.dumps(dataclasses.asdict(read_memory())))
