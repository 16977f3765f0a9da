"""``localspec build-llama``: a llama.cpp built for this machine, beside an installation by pip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click

import localspec
from localspec.cli.output import tell
from localspec.compiling import own_build
from localspec.core.errors import UsageError
from localspec.core.processes.children import environment

_SCRIPT = Path(localspec.__file__).parent / "bootstrap" / "scripts" / "llama_here.py"
"""In an installation; a checkout has its own at its top."""


@click.command("build-llama")
@click.option("--remove", is_flag=True, help="Use the llama.cpp that pip installed again.")
def command(*, remove: bool) -> int:
    """Build llama.cpp for this machine's processor and GPU, into the cache, and use it.

    For an installation by pip, pipx or uv whose llama.cpp was built for any processor, or without
    the GPU; `localspec doctor` says whether it was. Takes minutes, a C++ compiler and the network,
    once. LOCALSPEC_BACKEND=cpu, cuda, metal or vulkan chooses what for.
    """
    if not _SCRIPT.is_file():
        raise UsageError(
            "a checkout builds llama.cpp by itself: LOCALSPEC_BACKEND=cpu|cuda|metal|vulkan "
            "scripts/localspec doctor"
        )
    if remove:
        was = own_build.forget()
        tell("the llama.cpp that pip installed is used" + (" again" if was else ""))
        return 0
    # Neither -I nor -P, which hide the scripts beside it, nor -s, which hides the user's packages.
    line = [sys.executable, str(_SCRIPT)]
    with subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        return process.returncode
    folder = Path(json.loads(said.strip().splitlines()[-1]))
    elsewhere = None if own_build.used() else os.environ.get(own_build.VARIABLE)
    own_build.note(folder)
    if elsewhere:
        tell(f"built: {folder}; {own_build.VARIABLE} goes first, and names {elsewhere}: unset it")
    else:
        tell(f"used from now on: {folder}; `localspec build-llama --remove` undoes it")
    return 0
