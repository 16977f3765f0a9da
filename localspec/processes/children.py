"""Starting modules of this package in a Python process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError

_PATIENCE = 60.0
"""Seconds; a driver that starts up can take several."""
_HOME = str(Path(__file__).resolve().parents[2])
"""The folder that holds this package."""


def command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs one of our modules with this Python, and its environment.

    -P and an explicit path: a folder called localspec in the working directory is not ours.
    """
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([_HOME, inherited] if inherited else [_HOME])
    return [sys.executable, "-P", "-m", module, *arguments], os.environ | {"PYTHONPATH": path}


def ask(module: str, *arguments: str) -> Any:
    """The JSON that a module prints. Blocks until it ends.

    Raises:
        LocalspecError: it failed; the message is the last line of its stderr.
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
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1].removeprefix("localspec: ") if lines else f"exit status {done.returncode}"
    raise LocalspecError(reason)
