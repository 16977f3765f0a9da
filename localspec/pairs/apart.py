"""Questions that are answered in a process of their own.

An interface asks them so: what llama.cpp and numpy bring with them, and a graphics driver above
all, stays out of its process, and its loop waits for nothing.

``python -m localspec.pairs.apart memory`` prints what memory there is, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.pairs.memory import Gpu, Memory, host_only, look

_PATIENCE = 60.0
"""Seconds; a driver that starts up can take several."""
_HOME = str(Path(__file__).resolve().parent.parent.parent)


def command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """What runs one of our modules with this Python, and its environment.

    -P and an explicit path: a folder called localspec in the working directory is not ours.
    """
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([_HOME, inherited] if inherited else [_HOME])
    return [sys.executable, "-P", "-m", module, *arguments], os.environ | {"PYTHONPATH": path}


def ask(module: str, *arguments: str) -> Any:
    """The JSON that a module prints. Waits; to be called in a thread.

    Raises:
        LocalspecError: it failed; its last line says why.
    """
    line, environment = command(module, *arguments)
    try:
        done = subprocess.run(
            line,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise LocalspecError(f"no answer within {_PATIENCE:.0f} seconds") from None
    except (OSError, ValueError) as error:
        raise LocalspecError(f"no answer: {error}") from None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = said[-1].removeprefix("localspec: ") if said else f"exit status {done.returncode}"
    raise LocalspecError(reason)


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
