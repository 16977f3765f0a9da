"""Our own kernels on this processor: proved, timed beside llama.cpp's, and the result kept.

Products are compared with numpy's for each instruction set (`localspec.kernels.prove`), whole
models likewise (`localspec.llama.proof`), both in processes of their own; then passes are timed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import cxx
from localspec.core import codec
from localspec.core.errors import LocalspecError
from localspec.core.files import measured, native, paths
from localspec.core.processes import neighbours
from localspec.core.processes.children import ask
from localspec.kernels import build
from localspec.kernels.build import Built
from localspec.loading import library, soundness
from localspec.loading.soundness import prover_by

_PRODUCTS, _MODELS, _SPEED = (
    "localspec.kernels.prove",
    "localspec.llama.proof",
    "localspec.llama.kernel_speed",
)
_EDITION = 3
"""Raised when a proof changes."""
_FILE = "own-kernels.json"
_PATIENCE_S = 600.0
_TURNS = 2
_SLOWER = 1.05
"""Mean time of passes, in that of llama.cpp's kernels, from which on those are used instead."""
_PLAIN = 1.25
"""Factor either way from which on one turn of both kernels is enough to know which are faster."""
_BUSY = "other programs kept the processor busy"


@dataclass(frozen=True, slots=True)
class Proved:
    """The results of proving one library on one processor."""

    failed: dict[str, str]
    """The failure of each instruction set that the processor has, "" for none; the best first."""
    of_width: dict[str, float]
    """Seconds of passes over so many tokens in those of llama.cpp's kernels, means of some formats;
    empty where they are not known."""
    untimed: str = ""
    """Why they are not known."""

    @property
    def units(self) -> tuple[str, ...]:
        """The instruction sets that are right, the best first."""
        return tuple(name for name, why in self.failed.items() if not why)

    @property
    def unit(self) -> str:
        """The best of them; "" if there is none."""
        return next(iter(self.units), "")

    @property
    def times(self) -> float | None:
        """Mean seconds of passes in those of llama.cpp's; None where they are not known."""
        return _mean(self.of_width.values()) if self.of_width else None

    @property
    def slower(self) -> bool:
        """Whether llama.cpp's kernels are faster here."""
        return self.times is not None and self.times > _SLOWER


def prove(built: Built) -> Proved:
    """Prove every instruction set of a library that this processor has, and save the result.

    Raises:
        LocalspecError: there is no result: killed from outside, or no memory.
    """
    folder = libraries()
    failed = {}
    for unit in _units(built, folder):
        arguments = [str(built.path), str(folder), unit]
        products = prover_by(_PRODUCTS, *arguments, patience=_PATIENCE_S)
        models = prover_by(_MODELS, "--own-kernels", *arguments, patience=_PATIENCE_S)
        failed[unit] = products.failure() or models.failure()
    return timed(built, Proved(failed, {}))


def timed(built: Built, found: Proved) -> Proved:
    """The result with times beside llama.cpp's, saved. A busy machine is not timed: whoever waits
    for the first start would wait the longer, and for times that say nothing.
    """
    if found.unit and neighbours.busy_now():
        found = dataclasses.replace(found, untimed=_BUSY)
    elif found.unit:
        others = neighbours.Neighbours()
        try:
            of_width = _times(built, libraries(), found.unit)
            if others.busy:
                found = dataclasses.replace(found, untimed=_BUSY)
            else:
                found = dataclasses.replace(found, of_width=of_width, untimed="")
        except (LocalspecError, OSError) as error:
            found = dataclasses.replace(found, untimed=str(error))
    save({"identity": identity(built), "proved": codec.encode(found)})
    return found


def libraries() -> Path:
    """The folder of llama.cpp's libraries.

    Raises:
        LocalspecError: llama-cpp-python is not installed.
    """
    found = cxx.library_folder()
    if found is None:
        raise LocalspecError("llama-cpp-python is not installed")
    return found


def _units(built: Built, libraries: Path) -> list[str]:
    """Asked in a process of its own, which may crash."""
    found = ask("localspec.kernels.library", str(built.path), str(libraries))
    return [str(name) for name in found]


def _times(built: Built, libraries: Path, unit: str) -> dict[str, float]:
    """Seconds of passes by their number of tokens, in those of llama.cpp's own; means of formats.

    Raises:
        LocalspecError: passes failed, or took too long.
        OSError: no models can be written.
    """
    least: dict[bool, dict[tuple[str, str], float]] = {True: {}, False: {}}
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        for _ in range(_TURNS):
            for own in (True, False):
                more = [str(built.path), str(libraries), unit] if own else []
                for kind, curve in ask(_SPEED, folder, *more).items():
                    for width, seconds in curve.items():
                        place = (width, kind)
                        least[own][place] = min(seconds, least[own].get(place, seconds))
            found = _of_width(least[True], least[False])
            if not 1 / _PLAIN < _mean(found.values()) < _PLAIN:
                break
    return found


def _of_width(
    own: dict[tuple[str, str], float], llama: dict[tuple[str, str], float]
) -> dict[str, float]:
    ratios: dict[str, list[float]] = {}
    for place, seconds in own.items():
        ratios.setdefault(place[0], []).append(seconds / llama[place])
    return {width: _mean(of_formats) for width, of_formats in ratios.items()}


def _mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def identity(built: Built) -> str:
    """Digest of the library, llama.cpp's files and the processor.

    Raises:
        LocalspecError: llama-cpp-python is not installed.
    """
    facts = [_EDITION, build.key(), native.recorded(built.path), library.identity()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _saved(wanted: str) -> dict[str, object] | None:
    for place in soundness.places(_FILE):
        try:
            saved = measured.parsed(place)
            if saved["identity"] == wanted:
                return dict(saved)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def recorded(built: Built) -> Proved | None:
    """The saved result for this library, llama.cpp and processor; None if there is none."""
    saved = _saved(identity(built))
    try:
        found = codec.decode(Proved, saved["proved"]) if saved is not None else None
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    damaged = found is not None and not all(0 < t < math.inf for t in found.of_width.values())
    return None if damaged else found


def failed_before() -> str:
    """Why compiling the same source by the same compiler failed; "" if it did not, or if it is time
    to try it again.
    """
    saved = _saved(build.key())
    try:
        if saved is None or saved["compiler"] != _compiler():
            return ""
        left = float(str(saved["until"])) - time.time()
        return str(saved["unbuilt"]) if 0 < left <= float(str(saved["seconds"])) else ""
    except (KeyError, ValueError):
        return ""


def save_failure(why: str, seconds: float) -> None:
    """Remember for so long why compiling failed, where that is possible."""
    until = {"until": time.time() + seconds, "seconds": seconds, "compiler": _compiler()}
    save({"identity": build.key(), "unbuilt": why, **until})


def _compiler() -> list[str]:
    """The compiler: its command, and what changes when it is exchanged or updated."""
    line = cxx.command()
    program = shutil.which(line[0]) if line is not None else None
    if line is None or program is None:
        return []
    facts = Path(program).stat()
    return [*line, str(facts.st_size), str(facts.st_mtime_ns)]


def save(facts: dict[str, object]) -> None:
    """Keep a result, where that is possible."""
    for place in soundness.places(_FILE):
        try:
            if not place.is_relative_to(sys.prefix):
                paths.make_parent(place)
            measured.write(place, facts, mode=0o644)
        except OSError:  # another user's folder, or a full disk: proved at every start
            continue
        return
