"""Stand-ins for a llama.cpp that crashes: a process that dies of a signal at a chosen call.

Python runs the ``sitecustomize`` of a folder on PYTHONPATH before anything else. The one written
here waits until a module of ours is imported, and wraps one function of it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_CUSTOM = """
import importlib.abc, importlib.util, os, signal, sys

MODULE, NAME, NUMBER, CALL, WORDS = {module!r}, {name!r}, {number}, {call}, {words!r}
calls = 0


def crash():
    open(os.path.join(os.path.dirname(__file__), "reached"), "w").close()
    os.write(2, WORDS)
    signal.raise_signal(NUMBER)  # of this thread, which goes no further


def wrapped(original):
    def function(*args, **kwargs):
        global calls
        calls += 1
        if calls == CALL:
            crash()
        return original(*args, **kwargs)
    return function


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def patched(module):
            execute(module)
            owner, attribute = module, NAME
            while "." in attribute:
                first, attribute = attribute.split(".", 1)
                owner = getattr(owner, first)
            setattr(owner, attribute, wrapped(getattr(owner, attribute)))

        spec.loader.exec_module = patched
        return spec


sys.meta_path.insert(0, Finder())
"""


def reached(folder: Path) -> Path:
    """The file that is there once the call was reached."""
    return folder / "crashing" / "reached"


def crashing(
    folder: Path,
    function: str,
    *,
    number: int = signal.SIGSEGV,
    call: int = 1,
    words: str = "",
) -> dict[str, str]:
    """Variables for a Python process that dies at a call of ``function``, named as
    ``module:name``, after it wrote ``words`` to its stderr and made the file `reached`.

    Signal 0 does nothing: the process goes on.
    """
    module, _, name = function.partition(":")
    place = reached(folder).parent
    place.mkdir(exist_ok=True)
    text = _CUSTOM.format(
        module=module, name=name, number=int(number), call=call, words=words.encode()
    )
    (place / "sitecustomize.py").write_text(text, encoding="utf-8")
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(place), inherited] if inherited else [str(place)])
    return {"PYTHONPATH": path}
