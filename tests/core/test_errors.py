"""The tree of errors is whole: its picture shows every one, and none is defined elsewhere."""

from __future__ import annotations

import importlib
import pkgutil

import localspec
from localspec.core import errors

ELSEWHERE = {"RevisionGoneError", "RefusedError", "PausedError", "NotLoadedError"}
"""A case of `ModelNotFoundError` that never leaves the code that talks with the Hub, a compiler's
refusal, which the code that compiles remembers, and two errors of the server that become a status
of HTTP."""


def every(kind: type[Exception]) -> set[type[Exception]]:
    return {kind, *(found for below in kind.__subclasses__() for found in every(below))}


def test_every_error_is_defined_and_drawn_in_one_place() -> None:
    for module in pkgutil.walk_packages(localspec.__path__, "localspec."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {e for e in every(errors.LocalspecError) if e.__module__.startswith("localspec")}
    found = {e for e in found if e.__name__ not in ELSEWHERE}
    assert {e.__module__ for e in found} == {"localspec.core.errors"}
    for line in (errors.__doc__ or "").splitlines():
        name, *code = [word for word in line.split() if word.isalnum()][:2] or [""]
        if name.endswith("Error") and code and code[0].isdigit():
            assert getattr(errors, name).exit_code == int(code[0])
    drawn = {word for word in (errors.__doc__ or "").split() if word.isalnum()}
    assert {e.__name__ for e in found} <= drawn
