"""What is right and what is wrong with an installation: the checks behind ``localspec doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.doctor import build, network, pair, storage, system
from localspec.doctor.examiner import Apart, Examiner, Here
from localspec.doctor.findings import Finding

__all__ = ["Apart", "Examiner", "Finding", "Here", "diagnose"]


def diagnose(*, offline: bool = False, examiner: Examiner | None = None) -> Iterator[Finding]:
    """All findings, each as soon as it is made; the slow ones come last.

    A check that cannot be made because of an earlier finding says so in a note: one cause gets one
    fix. ``offline`` forbids connections, as the variables and the person's settings do.
    ``examiner`` makes the checks that run llama.cpp: without one in processes of their own.
    """
    examiner = Apart() if examiner is None else examiner
    yield from system.check()
    yield system.terminal()
    sound = yield from build.check()
    library = sound and (yield from examiner.backend())
    folders = yield from storage.check()
    yield from network.check(offline=offline)
    yield from pair.check(examiner, library=library, folders=folders)
