"""Gets a build of llama.cpp that is sound on this machine to the place where it is used."""

import os
import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path

import llama_backend
import llama_ladder
import llama_wheel
from bootstrap_steps import Failure, say
from llama_ladder import Ladder, Rung
from llama_wheel import Source


class Place(ABC):
    """Where a build is used: the environment of a checkout, or a folder beside an installation."""

    log: Path
    """What is done there."""

    @property
    @abstractmethod
    def filled(self) -> bool:
        """Whether the wanted build is there."""

    @abstractmethod
    def fill(self, wheel: Path) -> None:
        """Put a build there."""

    @abstractmethod
    def clear(self) -> None:
        """Take the build away."""

    @abstractmethod
    def load_failure(self) -> str:
        """Why the library there does not load; "" if it does."""

    @abstractmethod
    def prove(self) -> dict[str, object]:
        """See `llama_check.prove`."""


def make_sound(place: Place, source: Source, backend: str, folder: Path) -> Rung:
    """Fill a place with the fastest build that is proved on this processor, from its ``folder`` in
    the cache, whose lock the caller holds; built if necessary.

    Returns its step of the ladder.

    Raises:
        Failure: there is none; says what to do.
    """
    machine = llama_backend.this_machine()
    if not place.filled:
        llama_wheel.adopt(folder, llama_wheel.usual_cache(os.environ, machine.system) / folder.name)
    ladder = Ladder(folder, llama_ladder.rungs(machine))
    while (rung := ladder.rung) is not None:
        if not place.filled:
            place.fill(
                llama_wheel.obtain_wheel(
                    source, backend, rung, folder, Path(sys.executable), place.log
                )
            )
        _require_loading(place, backend, folder)
        proof = place.prove()
        why = str(proof["failed"])
        if not why or (rung == ladder.last and not proof["failed_plain"]):
            return rung  # localspec loads models without repacked weights where only those fail
        if backend != "cpu" and f" on {backend}," in why:
            raise Failure(
                f"llama.cpp does not compute right on this {backend.upper()} device ({why}); "
                "update its driver, or start with LOCALSPEC_BACKEND=cpu"
            )
        place.clear()
        ladder.fail(rung, why)
        following = ladder.rung
        then = f"; building it {following.name}" if following is not None else ""
        say(f"llama.cpp, built {rung.name}, is not sound on this processor ({why}){then}")
    ladder.forget()
    raise Failure(
        "no build of llama.cpp is sound on this processor; please report it with the log, "
        f"or try another compiler with CC and CXX [log: {place.log}]"
    )


def _require_loading(place: Place, backend: str, folder: Path) -> None:
    reason = place.load_failure()
    if reason:
        shutil.rmtree(folder, ignore_errors=True)
        place.clear()
        raise Failure(
            f"llama.cpp was built for {backend.upper()} but does not load ({reason}); start "
            "again to build it, or set LOCALSPEC_BACKEND=cpu"
        )
