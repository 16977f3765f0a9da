"""Whether our own kernels compute the models of this process: compiled, proved, and faster.

A build is proved once on a processor: products against numpy for each instruction set
(`localspec.kernels.prove`), whole models likewise (`localspec.llama.proof`), both in processes of
their own, and then passes are timed beside llama.cpp's. What crashed, hung, was wrong or slower is
not used, and `doctor` says so. ``python -m localspec.loading.own_kernels`` compiles and proves.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import cxx
from localspec.config import paths
from localspec.core import codec
from localspec.core.safe_text import safe_line
from localspec.errors import LocalspecError
from localspec.files import whole_file
from localspec.kernels import build
from localspec.kernels.build import Built
from localspec.kernels.instruction_sets import title
from localspec.loading import build_record, soundness
from localspec.loading.soundness import Prover
from localspec.processes import neighbours
from localspec.processes.children import ask, command

OWN, LLAMA = "own", "llama"
"""Values of ``--kernels`` beside auto."""
_PRODUCTS, _MODELS, _SPEED = (
    "localspec.kernels.prove",
    "localspec.llama.proof",
    "localspec.llama.kernel_speed",
)
_EDITION = 1
"""Raised when a proof changes."""
_FILE = "own-kernels.json"
_PATIENCE_S = 600.0
_TURNS = 2
_SLOWER = 1.05
"""Mean time of passes, in that of llama.cpp's kernels, from which on those are used instead."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The results of proving one library on one processor."""

    failed: dict[str, str]
    """The failure of each instruction set that the processor has, "" for none; the best first."""
    times: float | None
    """Mean seconds of passes in those of llama.cpp's; None: the machine was too busy to tell."""

    @property
    def unit(self) -> str:
        """The best instruction set that is right; "" if there is none."""
        return next((name for name, why in self.failed.items() if not why), "")

    @property
    def slower(self) -> bool:
        """Whether llama.cpp's kernels are faster here."""
        return self.times is not None and self.times > _SLOWER


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernels for models of this process."""

    unit: str
    """Instruction set of ours, "" for llama.cpp's own kernels."""
    why: str

    @property
    def text(self) -> str:
        """For users."""
        if not self.unit:
            return f"llama.cpp's kernels: {self.why}"
        return f"own kernels, {title(self.unit)}"


NOT_WANTED = Choice("", "--kernels llama")


def engage(
    wanted: str | None, on_start: Callable[[str], None] | None = None, *, make: bool = True
) -> Choice:
    """Let our kernels compute this process's models, if they can; compiled and proved now, after
    ``on_start`` with what is done, where that was not done yet and ``make`` says so.

    Raises:
        LocalspecError: ``wanted`` is `OWN`, and they cannot be used; with the reason.
    """
    if wanted == LLAMA:
        return NOT_WANTED
    try:
        built, found = _ready(wanted, on_start, make=make)
        if found.slower and wanted is None:
            return Choice("", f"ours take {found.times:.2f} times as long on this machine")
        from localspec.llama import own_kernels

        return Choice(own_kernels.register(built.path, _libraries(), found.unit), "")
    except LocalspecError as error:
        if wanted == OWN:
            raise LocalspecError(f"--kernels own is not possible: {error}") from None
        return Choice("", str(error))


def _ready(
    wanted: str | None, on_start: Callable[[str], None] | None, *, make: bool
) -> tuple[Built, Proved]:
    """The library and its proof.

    Raises:
        LocalspecError: there is none, and none can be made.
    """
    why = build.impossible()
    if why:
        raise LocalspecError(why)
    built = build.stored()
    # scripts/localspec compiles them with llama.cpp; an installation by pip does when it starts.
    if built is None and make and (wanted == OWN or build_record.build() is None):
        known = _failed_before()
        if known and wanted != OWN:
            raise LocalspecError(known)
        try:
            built = build.obtain(on_start=lambda: _tell(on_start, "compiling kernels, once"))
        except LocalspecError as error:
            _save({"identity": build.key(), "unbuilt": str(error)})
            raise
    if built is None:
        raise LocalspecError(f"they are not compiled; run {command_line()}")
    found = recorded(built)
    if found is None and make:
        _tell(on_start, "kernels, checked once on this processor")
        found = prove(built)
    if found is None:
        raise LocalspecError(f"they are not proved here; run {command_line()}")
    if not found.unit:
        raise LocalspecError(_failures(found))
    return built, found


def _tell(on_start: Callable[[str], None] | None, what: str) -> None:
    if on_start is not None:
        on_start(what)


def command_line() -> str:
    """The command that compiles and proves them."""
    return f"`{sys.executable} -m {__name__ if __name__ != '__main__' else _MODULE}`"


_MODULE = "localspec.loading.own_kernels"


def _failures(found: Proved) -> str:
    if not found.failed:
        return "the processor has none of their instruction sets"
    return "; ".join(f"{title(name)} failed: {why}" for name, why in found.failed.items())


def prove(built: Built) -> Proved:
    """Prove every instruction set of a library that this processor has, and save the result.

    Raises:
        LocalspecError: there is no result: killed from outside, or no memory.
    """
    libraries = _libraries()
    failed = {}
    for unit in _units(built, libraries):
        arguments = [str(built.path), str(libraries), unit]
        failed[unit] = _failure(_PRODUCTS, *arguments) or _failure(
            _MODELS, "--own-kernels", *arguments
        )
    unit = next((name for name, why in failed.items() if not why), "")
    found = Proved(failed, _times(built, libraries, unit) if unit else None)
    _save({"identity": identity(built), "proved": codec.encode(found)})
    return found


def _libraries() -> Path:
    found = cxx.library_folder()
    if found is None:
        raise LocalspecError("llama-cpp-python is not installed")
    return found


def _units(built: Built, libraries: Path) -> list[str]:
    """Asked in a process of its own, which may crash."""
    found = ask("localspec.kernels.library", str(built.path), str(libraries))
    return [str(name) for name in found]


def _failure(module: str, *arguments: str) -> str:
    line, environment = command(module, *arguments)
    environment = environment | {"OPENBLAS_NUM_THREADS": "1"}
    return Prover(tuple(line), environment, _PATIENCE_S).failure([])


def _times(built: Built, libraries: Path, unit: str) -> float | None:
    """Mean seconds of passes, in those of llama.cpp's own; None where that cannot be told."""
    others = neighbours.Neighbours()
    least: dict[bool, dict[str, float]] = {True: {}, False: {}}
    try:
        with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
            for _ in range(_TURNS):
                for own in (True, False):
                    more = [str(built.path), str(libraries), unit] if own else []
                    found = ask(_SPEED, folder, *more)
                    for kind, curve in found.items():
                        for width, seconds in curve.items():
                            place = f"{kind} {width}"
                            least[own][place] = min(seconds, least[own].get(place, seconds))
    except (LocalspecError, OSError):
        return None
    if others.busy:
        return None
    ratios = [least[True][place] / least[False][place] for place in least[True]]
    return math.exp(statistics.fmean(map(math.log, ratios)))


def identity(built: Built) -> str:
    """Digest of the library, llama.cpp's files and the processor.

    Raises:
        LocalspecError: llama-cpp-python is not installed.
    """
    try:
        record = built.path.with_name(f"{built.path.name}.sha256").read_text(encoding="ascii")
    except (OSError, ValueError):
        record = ""
    facts = [_EDITION, build.key(), record.strip(), soundness.identity()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _saved(wanted: str) -> dict[str, object] | None:
    for place in _places():
        try:
            saved = json.loads(place.read_text(encoding="utf-8"))
            if saved["identity"] == wanted:
                return dict(saved)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def recorded(built: Built) -> Proved | None:
    """The saved result for this library, llama.cpp and processor; None if there is none."""
    saved = _saved(identity(built))
    try:
        return codec.decode(Proved, saved["proved"]) if saved is not None else None
    except (KeyError, ValueError, TypeError):
        return None


def _failed_before() -> str:
    """Why compiling the same source failed; "" if it did not."""
    saved = _saved(build.key())
    if saved is None or cxx.command() is None:
        return ""
    return str(saved.get("unbuilt", ""))


def _places() -> list[Path]:
    places = [paths.cache_dir() / _FILE]
    if sys.prefix != sys.base_prefix:
        places.insert(0, Path(sys.prefix) / _FILE)
    return places


def _save(facts: dict[str, object]) -> None:
    for place in _places():
        try:
            if not place.is_relative_to(sys.prefix):
                paths.make_parent(place)
            whole_file.replace(place, [json.dumps(facts).encode()])
        except OSError:  # another user's folder, or a full disk: proved at every start
            continue
        return


def state() -> str:
    """One line about the kernels for ``doctor``; nothing is compiled or proved for it."""
    try:
        if os.environ.get("LOCALSPEC_KERNELS") == LLAMA:
            return "llama.cpp's kernels: LOCALSPEC_KERNELS is llama"
        _, found = _ready(None, None, make=False)
    except LocalspecError as error:
        return f"llama.cpp's kernels: {error}"
    if found.slower:
        return f"llama.cpp's kernels: ours take {found.times:.2f} times as long on this machine"
    text = f"own kernels, {title(found.unit)}, agree with numpy in every format and width"
    if found.times is not None:
        text += f"; {1 / found.times:.2f} times the speed of llama.cpp's"
    wrong = [f"{title(name)} failed: {why}" for name, why in found.failed.items() if why]
    return "; ".join([text, *wrong])


def main() -> int:
    """Entry point for scripts/bootstrap.py and users: compile and prove; one line of the result."""
    try:
        choice_of, _ = _ready(OWN, None, make=True)
        for name, why in choice_of.left_out.items():
            sys.stderr.write(safe_line(f"left out {title(name)}: {why}") + "\n")
        sys.stdout.write(safe_line(state()) + "\n")
    except LocalspecError as error:
        sys.stderr.write(safe_line(str(error)) + "\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
