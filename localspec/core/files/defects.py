"""The log of faults of localspec itself, whatever they end: a command or a part of the chat."""

from __future__ import annotations

_LONGEST_SUMMARY = 500
"""Characters of a defect in a line of the log."""


def report(error: BaseException) -> str:
    """Write a fault of localspec to a log; the message for the user."""
    import traceback  # here, as below: only a fault needs them

    from localspec.core.files import paths, whole_file
    from localspec.core.files.private import without_secrets

    said = f"this is a bug in localspec: {type(error).__name__}: {error}".splitlines()[0]
    summary = said[:_LONGEST_SUMMARY]  # it may quote all that a client of the server sent
    try:
        log = paths.make(paths.state_dir()) / "defect.log"
        trace = without_secrets("".join(traceback.format_exception(error)))
        whole_file.replace(log, [trace.encode("utf-8", "replace")])
    except Exception:  # noqa: BLE001 - whatever it is, it must not hide the first fault
        return f"{summary}; please report it"
    return f"{summary}; please report it with {log}"
