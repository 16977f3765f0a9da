"""The checks of an installation: what ``localspec doctor`` runs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType

from localspec.doctor import build, examiner, network, pair, storage, system
from localspec.doctor.findings import BACKEND, LIBRARY, Examine, Finding

__all__ = ["Finding", "diagnose", "examiner"]


def diagnose(
    *,
    offline: bool = False,
    examine: Examine = examiner.apart,
    by_interface: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Finding]:
    """All findings, each as soon as it is made; the slow ones come last.

    A check that cannot be made because of an earlier finding says so in a note: one cause gets one
    fix. ``offline`` forbids connections, as the variables and the user's settings do.
    ``examine`` makes the checks that run llama.cpp. ``by_interface`` has the errors of settings
    that the interface refuses, which nothing below it can check.
    """
    yield from system.check()
    yield system.terminal()
    sound = yield from build.check()
    library = sound and (yield from _library(examine))
    folders = yield from storage.check(by_interface)
    yield from network.check(offline=offline)
    yield from pair.check(examine, library=library, folders=folders)


def _library(examine: Examine) -> Generator[Finding, None, bool]:
    """The findings about llama.cpp; whether it can be used."""
    usable = True
    for finding in examine(BACKEND):
        usable = usable and not (finding.topic == LIBRARY and finding.status == "broken")
        yield finding
    return usable
