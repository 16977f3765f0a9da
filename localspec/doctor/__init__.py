"""What is right and what is wrong with an installation: the checks behind ``localspec doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.doctor import backend, build, network, pair, storage, system
from localspec.doctor.findings import Finding

__all__ = ["Finding", "diagnose"]


def diagnose(*, offline: bool = False) -> Iterator[Finding]:
    """All findings, each as soon as it is made; the slow ones come last.

    A check that cannot be made because of an earlier finding says so in a note: one cause gets one
    fix. ``offline`` forbids connections, as the variables and the person's settings do.
    """
    yield from system.check()
    yield system.terminal()
    sound = yield from build.check()
    library = sound and (yield from backend.check())
    folders = yield from storage.check()
    yield from network.check(offline=offline)
    yield from pair.check(library=library, folders=folders)
