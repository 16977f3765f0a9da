"""Checks that the llama.cpp installed in an environment loads and computes correctly."""

import json
import os
import subprocess
from pathlib import Path

from bootstrap_steps import Failure, clean_environment


def load_failure(python: Path, library: Path | None = None) -> str:
    """Why the library does not load; "" if it loads, or crashes (the proof reports that).

    ``library``: the folder of another one than that among the packages of ``python``.
    """
    # Beside an installation, that may be the user's own packages, which -I leaves out.
    alone = "-I" if library is None else "-P"
    check = [str(python), alone, "-c", "import llama_cpp"]
    result = subprocess.run(
        check, capture_output=True, text=True, check=False, env={**os.environ, **_place(library)}
    )
    if result.returncode <= 0:
        return ""
    return (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]


def _place(library: Path | None) -> dict[str, str]:
    return {} if library is None else {"LLAMA_CPP_LIB_PATH": str(library)}


def prove(python: Path, root: Path, log: Path, library: Path | None = None) -> dict[str, object]:
    """The result of localspec.loading.soundness; "failed" is empty for a sound build."""
    result = subprocess.run(
        [str(python), "-P", "-m", "localspec.loading.soundness"],
        env={**clean_environment(os.environ), "PYTHONPATH": str(root), **_place(library)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"\n== checking llama.cpp\n{result.stdout}{result.stderr}")
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]
        raise Failure(f"{reason}; start again [log: {log}]")
    found: dict[str, object] = json.loads(result.stdout)
    return found
