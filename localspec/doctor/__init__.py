"""The checks of an installation: what ``localspec doctor`` runs."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.doctor import build, network, pair, storage, system
from localspec.doctor.examiner import InProcessExaminer, SeparateExaminer
from localspec.doctor.findings import Examiner, Finding

__all__ = ["Examiner", "Finding", "InProcessExaminer", "SeparateExaminer", "diagnose"]


def diagnose(*, offline: bool = False, examiner: Examiner | None = None) -> Iterator[Finding]:
    """All findings, each as soon as it is made; the slow ones come last.

    A check that cannot be made because of an earlier finding says so in a note: one cause gets one
    fix. ``offline`` forbids connections, as the variables and the user's settings do.
    ``examiner`` runs the checks of llama.cpp; the default runs them in separate processes.
    """
    examiner = SeparateExaminer() if examiner is None else examiner
    yield from system.check()
    yield system.terminal()
    sound = yield from build.check()
    library = sound and (yield from examiner.backend())
    folders = yield from storage.check()
    yield from network.check(offline=offline)
    yield from pair.check(examiner, library=library, folders=folders)
