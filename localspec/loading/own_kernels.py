"""Whether our own kernels compute the models of this process: compiled, proved, and faster.

What crashed, hung, was wrong or slower in the proof (`localspec.loading.kernel_proof`) is not
used, and `doctor` says so. ``python -m localspec.loading.own_kernels`` compiles and proves.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.compiling import cxx, own_build
from localspec.config import settings as config
from localspec.core.errors import LocalspecError, NoKernelError
from localspec.core.files import native
from localspec.core.safe_text import safe_line
from localspec.kernels import build
from localspec.kernels.build import Built
from localspec.kernels.compiler import RefusedError
from localspec.kernels.instruction_sets import title
from localspec.loading import kernel_proof
from localspec.loading.kernel_proof import Proved
from localspec.models.catalog.links import is_offline

OWN, LLAMA = "own", "llama"
"""Values of ``--kernels`` beside auto."""
_HOUR_S, _DAY_S = 3600.0, 86400.0
"""For how long a failure to compile is remembered: one of the network or the disk, and one of the
compiler, which may take a minute to refuse, and may lack a header that is installed later."""
_COMPILING = "compiling kernels for this processor, once; it may take a minute"


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernels for models of this process."""

    unit: str
    """Instruction set of ours, "" for llama.cpp's own kernels."""
    why: str
    asked: bool = False
    """Whether the user asked for ours: layers on the host then have them beside a GPU too."""

    @property
    def text(self) -> str:
        """For users."""
        if not self.unit:
            return f"llama.cpp's kernels: {self.why}"
        return f"own kernels, {title(self.unit)}"


NOT_WANTED = Choice("", "--kernels llama")


def engage(
    wanted: str | None,
    on_start: Callable[[str], None] | None = None,
    *,
    make: bool = True,
    offline: bool = False,
) -> Choice:
    """Let our kernels compute this process's models, if they can; compiled and proved now, after
    ``on_start`` with what is done, where that was not done yet and ``make`` says so; ``offline``,
    only from what is on this machine.

    Raises:
        LocalspecError: ``wanted`` is `OWN`, and they cannot be used; with the reason.
    """
    if wanted == LLAMA:
        return NOT_WANTED
    try:
        built, found = _ready(wanted, on_start, make=make, offline=offline)
        if found.slower and wanted is None:
            return Choice("", _slower(found))
        return Choice(_registered(built, found.units), "", asked=wanted == OWN)
    except LocalspecError as error:
        if wanted == OWN:
            raise LocalspecError(f"--kernels own is not possible: {error}") from None
        return Choice("", str(error))


def _registered(built: Built, units: Sequence[str]) -> str:
    """The first instruction set that this process may use: a system may refuse AMX's tiles to one
    process and not to another.

    Raises:
        LocalspecError: there is none.
    """
    from localspec.llama import own_kernels

    for name in units[:-1]:
        with contextlib.suppress(NoKernelError):
            return own_kernels.register(built.path, kernel_proof.libraries(), name)
    return own_kernels.register(built.path, kernel_proof.libraries(), units[-1])


def _ready(
    wanted: str | None, on_start: Callable[[str], None] | None, *, make: bool, offline: bool = False
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
    if built is None and make and (wanted == OWN or own_build.build() is None):
        known = kernel_proof.failed_before()
        if known and wanted != OWN:
            raise LocalspecError(known)
        try:
            built = build.obtain(offline=offline, on_start=lambda: _tell(on_start, _COMPILING))
        except LocalspecError as error:
            if offline or cxx.command() is None:
                raise  # which takes no time, and ends with the flag or with a compiler
            raise LocalspecError(_remembered(error)) from None
    if built is None:
        raise LocalspecError(f"they are not compiled; run {command_line()}")
    found = kernel_proof.recorded(built)
    if found is None and make:
        native.trusted(built.path)  # else each start would say that they are checked, once
        _tell(on_start, "checking kernels on this processor, once")
        found = kernel_proof.prove(built)
    if found is None:
        raise LocalspecError(f"they are not proved here; run {command_line()}")
    if not found.unit:
        none = "the processor has none of their instruction sets"
        raise LocalspecError("; ".join(_failures(found)) or none)
    return built, found


def _remembered(error: LocalspecError) -> str:
    """What is said of a failure to compile until it is tried again, by itself or by the user."""
    refused = isinstance(error, RefusedError)
    again = f"tried again in {'a day' if refused else 'an hour'}, or at once by {command_line()}"
    kernel_proof.save_failure(f"{error}; {again}", _DAY_S if refused else _HOUR_S)
    return f"{error}; {again}"


def _tell(on_start: Callable[[str], None] | None, what: str) -> None:
    if on_start is not None:
        on_start(what)


def command_line() -> str:
    """The command that compiles and proves them."""
    return f"`{shlex.quote(sys.executable)} -m localspec.loading.own_kernels`"


def _failures(found: Proved) -> list[str]:
    return [f"{title(name)} failed: {why}" for name, why in found.failed.items() if why]


def _left_out(built: Built) -> list[str]:
    found = [f"{title(name)} was left out: {why}" for name, why in built.left_out.items()]
    return [*found, f"delete {built.path.parent} to compile again"] if found else []


def _slower(found: Proved) -> str:
    return f"ours take {found.times:.2f} times as long on this machine"


def _known() -> tuple[Built, Proved]:
    """The library and its proof where they may compute; nothing is compiled or proved for it.

    Raises:
        LocalspecError: they may not, or there is none.
    """
    given = os.environ.get("LOCALSPEC_KERNELS")
    if given == LLAMA:
        raise LocalspecError("LOCALSPEC_KERNELS is llama")
    if not given and config.settings().get("kernels") == LLAMA:
        raise LocalspecError(f"{config.place('kernels')} is llama")
    return _ready(None, None, make=False)


def state() -> str:
    """One line about the kernels for ``doctor``; nothing is compiled or proved for it."""
    try:
        built, found = _known()
    except LocalspecError as error:
        return f"llama.cpp's kernels: {error}"
    if found.slower:
        return f"llama.cpp's kernels: {_slower(found)}"
    text = f"own kernels, {title(found.unit)}, agree with numpy in every format and width"
    if found.of_width:
        each = ", ".join(f"{1 / t:.1f} for {width}" for width, t in found.of_width.items())
        text += f"; times the speed of llama.cpp's by tokens in a pass: {each}"
    elif found.untimed:
        text += f"; not timed beside llama.cpp's: {found.untimed}"
    return "; ".join([text, *_failures(found), *_left_out(built)])


def gain() -> str:
    """What our kernels gain beside llama.cpp's on this machine, as a sentence; "" where they are
    not used, or were not timed.
    """
    try:
        found = _known()[1]
    except LocalspecError:
        return ""
    one, four = (found.of_width.get(width) for width in ("1", "4"))
    if found.slower or one is None or four is None:
        return ""
    return (
        f"Both sides use localspec's own kernels: beside those of llama.cpp, a pass over one token "
        f"is {1 / one:.1f}× as fast here, one over four tokens {1 / four:.1f}×."
    )


def without_making() -> str | None:
    """What to ask `engage` for where nothing may be compiled or proved, as in a check that has a
    limit: our kernels only if they are there and wanted.
    """
    try:
        _known()
    except LocalspecError:
        return LLAMA
    return None


def main() -> int:
    """Entry point for scripts/bootstrap.py and users: compile and prove; one line of the result."""
    try:
        built, found = _ready(OWN, None, make=True, offline=is_offline())
        if found.times is None:
            kernel_proof.timed(built, found)
        sys.stdout.write(safe_line(state()) + "\n")
    except LocalspecError as error:
        sys.stderr.write(safe_line(str(error)) + "\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
