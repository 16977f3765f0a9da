"""Programs whose ``doctor`` measures the embedded pair with one reply: else it takes seconds of all
processors, up to three times.
"""

from __future__ import annotations

from pathlib import Path

_CUSTOM = """
import importlib.abc, importlib.util, sys


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "localspec.doctor.pair":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def brief(module):
            execute(module)
            assert {"SPEED_CHECK_S", "_REPEATS"} <= vars(module).keys()
            module.SPEED_CHECK_S = module._REPEATS = 0

        spec.loader.exec_module = brief
        return spec


sys.meta_path.insert(0, Finder())
"""


def write(folder: Path) -> None:
    """Into a folder, on the path of the program: Python runs it before anything else."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_CUSTOM, encoding="utf-8")
