"""Questions that are answered in a process of their own.

An interface asks them so: what llama.cpp and numpy bring with them, and a graphics driver above
all, stays out of its process, and its loop waits for nothing.

``python -m localspec.models.memory.ask_machine memory`` prints what memory there is, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from localspec.errors import LocalspecError
from localspec.models.memory.machine import Gpu, Memory, host_only, look
from localspec.processes.children import ask


def memory() -> Memory:
    """What memory there is; the host's alone where llama.cpp cannot be asked. Waits."""
    try:
        found = ask(__name__, "memory")
        return Memory(**{**found, "gpus": tuple(Gpu(**gpu) for gpu in found["gpus"])})
    except (LocalspecError, TypeError, KeyError):  # `doctor` says what is wrong with it
        return host_only()


if __name__ == "__main__":
    if sys.argv[1:] != ["memory"]:
        sys.exit("say: memory")
    sys.stdout.write(json.dumps(dataclasses.asdict(look())))
