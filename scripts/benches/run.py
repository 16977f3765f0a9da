"""Runs the program NAME of this folder, or lists all of them."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_IMPORTED = [FOLDER.parent, FOLDER.parents[1]]
"""Where the programs find each other and localspec."""


SUBJECTS = {
    "models that cost what large ones cost": ("make_pair",),
    "whole replies": ("gain", "peers"),
    "passes": ("kernels",),
    "the server": ("serve", "hostile"),
    "the controller": ("policy",),
    "the interface": ("interface",),
}


def programs() -> dict[str, str]:
    """The first sentence of each program, by name."""
    found = {}
    for name in (name for some in SUBJECTS.values() for name in some):
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        doc = ast.get_docstring(ast.parse(text)) or ""
        found[name] = " ".join(doc.split("\n\n")[0].split())
    return found


def main(arguments: list[str]) -> int:
    """Run or list."""
    known = programs()
    if not arguments or arguments[0] in {"-h", "--help"}:
        print("scripts/bench NAME [ARGUMENTS]; NAME is one of")
        for subject, names in SUBJECTS.items():
            print(f"{subject}:")
            for name in names:
                print(f"  {name:16} {known[name]}")
        return 0
    name, *rest = arguments
    if name not in known:
        print(f"bench: there is no {name!r}; it has {', '.join(known)}", file=sys.stderr)
        return 2
    for path in _IMPORTED:
        sys.path.insert(0, str(path))
    # A program may start itself again in a process of its own.
    others = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, _IMPORTED), *others])
    sys.argv = [str(FOLDER / f"{name}.py"), *rest]
    from localspec.core.errors import LocalspecError

    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except LocalspecError as error:
        sys.exit(f"bench {name}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
