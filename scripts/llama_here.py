"""Builds llama.cpp for this machine beside an installation, into the user's cache.

`localspec build-llama` starts this, in the installation's Python. The last line on stdout is the
folder of the libraries, which are proved, as JSON; all else goes to stderr.
"""

import json
import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path

import llama_backend
import llama_choice
import llama_wheel
from bootstrap_steps import interrupt, locked, outcome, say
from llama_check import load_failure, prove
from llama_engine import Place, make_sound
from llama_ladder import Ladder

from localspec.core.files import private

LIBRARIES = "llama_cpp/lib"
PACKAGES = Path(private.__file__).parents[3]
"""Where localspec is imported from."""


class Beside(Place):
    """A folder in the cache with the libraries of one wheel."""

    def __init__(self, folder: Path) -> None:
        self.libraries = folder / "lib"
        self.log = folder.with_name("build.log")

    @property
    def filled(self) -> bool:
        return self.libraries.is_dir()

    def fill(self, wheel: Path) -> None:
        scratch = self.libraries.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        llama_wheel.make_folder(scratch)
        with zipfile.ZipFile(wheel) as bundle:
            for name in bundle.namelist():
                place, _, short = name.rpartition("/")
                if place == LIBRARIES and short:
                    copy = scratch / short
                    with bundle.open(name) as packed, copy.open("xb") as file:
                        shutil.copyfileobj(packed, file)
                    copy.chmod(0o600)
        scratch.rename(self.libraries)

    def clear(self) -> None:
        shutil.rmtree(self.libraries, ignore_errors=True)

    def load_failure(self) -> str:
        return load_failure(Path(sys.executable), self.libraries)

    def prove(self) -> dict[str, object]:
        return prove(Path(sys.executable), PACKAGES, self.log, self.libraries)


def build() -> Path:
    """The folder of libraries that are proved on this machine.

    Raises:
        Failure: there is none; says what to do.
    """
    machine = llama_backend.this_machine()
    cache = llama_wheel.make_folder(llama_wheel.cache_directory(os.environ, machine.system))
    backend = llama_choice.backend_for(machine, os.environ, cache)
    source = llama_wheel.read_source(llama_wheel.ROOT / "requirements" / "llama.lock")
    options = llama_backend.OPTIONS_FILE.read_text(encoding="utf-8")
    key = llama_wheel.wheel_key(source, backend, machine, os.environ, options)
    folder = cache / key
    with locked(folder.with_name(f"{key}.lock"), "another start builds llama.cpp; waiting for it"):
        place = Beside(folder)
        rung = make_sound(place, source, backend, folder)
        shutil.rmtree(llama_wheel.work_folder(folder), ignore_errors=True)
    failed = Ladder(folder, ()).failed
    say(
        f"llama.cpp, built {rung.name} for {backend.upper()}"
        + "".join(f"; {name} failed: {why}" for name, why in failed.items())
    )
    return place.libraries


def main() -> int:
    signal.signal(signal.SIGTERM, interrupt)
    return outcome(
        lambda: print(json.dumps(str(build()))),  # its path may have lines
        "interrupted; the next start of `localspec build-llama` carries on from here",
    )


if __name__ == "__main__":
    sys.exit(main())
