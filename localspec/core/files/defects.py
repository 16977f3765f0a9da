"""Errors that nobody expected, as one line for the user: what the machine lacks, what the system
said, or a fault of localspec, which is logged.
"""

from __future__ import annotations

import errno

from localspec.core.errors import LocalspecError, OutOfMemoryError

_LONGEST_SUMMARY = 500
"""Characters of a defect in a line of the log."""
NO_THREADS = "no more processes and threads may be started here"
MORE_THREADS = (
    "end other programs, or raise the limit (ulimit -u, or the pids limit of a container)"
)
_NO_PROC = (
    "/proc is not there, where Linux tells of memory and processors; mount it (mount -t proc proc "
    "/proc), or have the container do so"
)


def told(error: Exception) -> LocalspecError:
    """An error of any kind as one for the user, with its exit code."""
    if isinstance(error, LocalspecError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError("out of memory; choose a smaller model or a smaller --ctx")
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        return LocalspecError(lacking(error) or why(error) + place)
    return LocalspecError(report(error))


def why(error: OSError) -> str:
    """What the system said, or what this machine lacks where that is the reason."""
    return lacking(error) or error.strerror or str(error)


def lacking(error: BaseException) -> str:
    """What this machine lacks, and what to do, where that is the reason of an error; else ""."""
    refused = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    if isinstance(error, OSError):
        from pathlib import Path  # help and version start faster without it

        refused = error.errno == errno.EAGAIN and error.filename is None  # of fork
        if str(error.filename).startswith("/proc/") and not Path("/proc/self").exists():
            return _NO_PROC
    return f"{NO_THREADS}; {MORE_THREADS}" if refused else ""


def report(error: BaseException) -> str:
    """Write an error to a log; the message for the user. What the machine lacks is no fault of
    localspec.
    """
    import traceback  # here, as below: only a fault needs them

    from localspec.core.files import paths, whole_file
    from localspec.core.files.private import without_secrets

    lacks = lacking(error)
    said = f"this is a bug in localspec: {type(error).__name__}: {error}".splitlines()[0]
    summary = said[:_LONGEST_SUMMARY]  # it may quote all that a client of the server sent
    try:
        log = paths.make(paths.state_dir()) / "defect.log"
        trace = without_secrets("".join(traceback.format_exception(error)))
        whole_file.replace(log, [trace.encode("utf-8", "replace")])
    except Exception:  # noqa: BLE001 - whatever it is, it must not hide the first fault
        return lacks or f"{summary}; please report it"
    return lacks or f"{summary}; please report it with {log}"
