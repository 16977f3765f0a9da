"""Proofs that this build of llama.cpp computes correctly on this processor; results are saved.

A compiler can break a kernel, and a library built natively for one processor can run on another.
Before the first model is loaded, `localspec.llama.proof` runs in a separate process, and again
whenever the library's files or the processor have changed. Where weights that are repacked for the
processor fail (llama.cpp's "extra buffers", AMX among them) and plain ones do not, models are
loaded without repacking from then on. This module does not load the library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.compiling.own_build import rebuild_command
from localspec.core import codec
from localspec.core.errors import LocalspecError, UnsoundBuildError
from localspec.core.files import closed, defects, measured, paths
from localspec.core.processes import crash
from localspec.core.processes.children import command, last_line
from localspec.loading import library

PROOF = "localspec.llama.proof"
PATIENCE_S = 3600.0
"""Time limit of one proof, which takes a second or two; a slow device that compiles kernels takes
many minutes, once. A step that hangs ends earlier, by its own alarm."""
_FILE = "llama-proof.json"
_MOST_PROOFS = 8
"""Results that are kept: with other cards, or none, the same files are another build."""
_WRONG = 3
_IN_PART = 4
"""Exit statuses of a proof."""
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals from outside, which say nothing about the build; the system kills without memory."""

_UNCHECKED = "cannot check that llama.cpp computes right here"
_CLOSE_OTHERS = {
    crash.OUT_OF_MEMORY: (
        "close other programs that use it, or hide it with CUDA_VISIBLE_DEVICES=-1"
    ),
    crash.OUT_OF_HOST_MEMORY: "close other programs",
}
_NO_ROOM = re.compile(r"No space left|quota exceeded|requested and \d+ written|enough free space")
"""What Python and numpy say where models cannot be written."""


@dataclass(frozen=True, slots=True)
class Soundness:
    """Results of proving one build on one processor."""

    extra_buffers: bool
    """Whether weights may be repacked for the processor."""
    failed: str = ""
    """The failure with repacked weights; "" if there was none."""
    failed_plain: str = ""
    """The failure with weights as they are in the file; the build is unsound then."""
    seconds: float = 0.0
    digest: str = ""
    """SHA-256 of the library's files."""
    in_part: bool = False
    """Whether cards were left out, since other programs fill them; it is not saved then."""

    @property
    def sound(self) -> bool:
        """Whether models can be loaded in some way."""
        return not self.failed_plain


@dataclass(frozen=True, slots=True)
class Prover:
    """Runs proofs of the installed library, each in a separate process."""

    line: tuple[str, ...]
    """Command line of a proof; ``--plain-buffers`` may be appended."""
    environment: dict[str, str]
    patience: float = PATIENCE_S

    def soundness(self) -> Soundness:
        """Prove the build with repacked weights, and with plain ones if that fails.

        Raises:
            LocalspecError: there is no result: killed from outside, no memory, no library.
        """
        began = time.monotonic()
        failed, in_part = self._proof()
        failed_plain = ""
        if failed:
            failed_plain, in_part = self._proof("--plain-buffers")
        seconds = round(time.monotonic() - began, 2)
        return Soundness(not failed, failed, failed_plain, seconds, in_part=in_part)

    def failure(self, *arguments: str) -> str:
        """The failure of one proof; "" if it passed.

        Raises:
            LocalspecError: see `soundness`.
        """
        return self._proof(*arguments)[0]

    def _proof(self, *arguments: str) -> tuple[str, bool]:
        """The failure of one proof, and whether it was made in part."""
        try:
            with (
                # Of this process, since a proof that crashes cannot remove its models.
                tempfile.TemporaryDirectory(prefix="localspec-") as folder,
                subprocess.Popen(
                    [*self.line, *arguments],
                    env=self.environment | {"TMPDIR": folder},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is ours to act on
                ) as process,
            ):
                try:
                    out, err = process.communicate(timeout=self.patience)
                except subprocess.TimeoutExpired:
                    process.kill()
                    out, _ = process.communicate()
                    return f"no answer within {self.patience:.0f} s, {_place(_reports(out))}", False
                except BaseException:
                    process.kill()
                    raise
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise _full(tempfile.gettempdir()) from None
            raise LocalspecError(f"{_UNCHECKED}: {defects.why(error)}") from None
        status = process.returncode
        failed = _judged(status, _reports(out), err.decode("utf-8", "replace"))
        return failed, status == _IN_PART


def _judged(status: int, reports: list[dict[str, Any]], stderr: str) -> str:
    """The failure, by the exit status and output of the process; "" if the proof passed."""
    last = reports[-1] if reports else {}
    if status in {0, _IN_PART} and "worst" in last:
        return ""
    if status == _WRONG and "wrong" in last:
        return str(last["wrong"])
    failure = crash.device_failure(stderr)
    if advice := _CLOSE_OTHERS.get(failure):  # no fault of the build
        raise LocalspecError(f"{_UNCHECKED}: {failure}; {advice}")
    if status == -signal.SIGALRM:
        return f"no answer for {last.get('limit', 60)} s, {_place(reports)}"
    if status < 0 and -status not in _FROM_OUTSIDE:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"{name}, {_place(reports)}"
    reason = last_line(stderr)
    reason = reason or f"its check ended with status {status}, {_place(reports)}"
    if status > 0 and _NO_ROOM.search(reason):
        raise _full(tempfile.gettempdir())
    raise LocalspecError(f"{_UNCHECKED}: {reason}")


def _full(folder: str) -> LocalspecError:
    return LocalspecError(
        f"{_UNCHECKED}: the disk of {folder} is full; make room there, or set TMPDIR to a folder "
        "on another"
    )


def _reports(out: bytes) -> list[dict[str, Any]]:
    found = []
    for line in out.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # cut off by a crash
    return [report for report in found if isinstance(report, dict)]


def _place(reports: list[dict[str, Any]]) -> str:
    places = [str(report["at"]) for report in reports if "at" in report]
    return f"at {places[-1]}" if places else "before the first model"


def prover_by(module: str, *arguments: str, patience: float = PATIENCE_S) -> Prover:
    """A prover whose proofs are made by ``module`` with the library that this Python has."""
    line, environment = command(module, *arguments)
    # numpy's threads would only disturb each other for so little work.
    return Prover(tuple(line), environment | {"OPENBLAS_NUM_THREADS": "1"}, patience)


def places(name: str) -> list[Path]:
    """Files that may have a result; first that of the environment, where the library is, unless
    others may write to it.
    """
    found = [paths.cache_dir() / name]
    if sys.prefix != sys.base_prefix and closed.is_closed(Path(sys.prefix)):
        found.insert(0, Path(sys.prefix) / name)
    return found


def recorded() -> Soundness | None:
    """The saved result for these files and this processor; None if there is none.

    Raises:
        LocalspecError: llama-cpp-python is not installed.
    """
    wanted = library.identity()
    for place in places(_FILE):
        with contextlib.suppress(KeyError, codec.CodecError):  # else the build is proved again
            found = codec.decode(Soundness, _saved(place)[wanted])
            if found.digest:
                return found
    return None


def digest() -> str:
    """SHA-256 of the contents of the library's files, from when they were proved: two builds of one
    commit by two compilers may compute other bits.

    Raises:
        LocalspecError: llama-cpp-python is not installed, or cannot be read.
    """
    known = recorded()
    return known.digest if known is not None else library.digest()


def _saved(place: Path) -> dict[str, Any]:
    """The results in a file by `library.identity`, the latest one last."""
    try:
        found = measured.parsed(place)["proofs"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _record(soundness: Soundness, wanted: str) -> None:
    made = {wanted: codec.encode(soundness)}
    for place in places(_FILE):
        try:
            paths.make_parent(place)
            known = [*_saved(place).items()][-_MOST_PROOFS + 1 :]
            measured.write(place, {"proofs": dict(known) | made}, mode=0o644)
        except OSError:  # another user's folder, or a full disk: proved at every start
            continue
        return


def proved(prover: Prover | None = None, on_start: Callable[[], None] | None = None) -> Soundness:
    """The saved result, else that of a proof, which takes a few seconds.

    Raises:
        LocalspecError: there is no saved result and no proof could be made.
    """
    known = recorded()
    if known is not None:
        return known
    if on_start is not None:
        on_start()
    wanted = library.identity()  # of before: the first use of a card makes its nodes
    found = (prover or prover_by(PROOF)).soundness()
    found = dataclasses.replace(found, digest=library.digest())
    if not found.in_part:
        _record(found, wanted)
    return found


def required(prover: Prover | None = None, on_start: Callable[[], None] | None = None) -> Soundness:
    """The result of `proved`, for loading models.

    Raises:
        UnsoundBuildError: no way of loading them computes correctly; says what to do.
        LocalspecError: see `proved`.
    """
    found = proved(prover, on_start)
    if not found.sound:
        raise UnsoundBuildError(
            f"this build of llama.cpp is not sound on this processor ({found.failed_plain}); "
            f"build it again: {rebuild_command()}"
        )
    return found


def main() -> int:
    """Entry point for scripts/bootstrap.py: prove if need be, print the result as JSON."""
    try:
        sys.stdout.write(json.dumps(dataclasses.asdict(proved())) + "\n")
    except LocalspecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
