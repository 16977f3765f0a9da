"""Look for faults at random, for minutes or hours; `faults.registry` lists the searches.

Seeds count up from where the last run ended (kept in the folder given with --state), so a run that
was stopped is resumed by starting it again. Every fault is printed with its seed and the smallest
case that still shows it. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))  # the Hub
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))  # small models, tables
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.registry import SEARCHES
from faults.runner import Runner, Seeds
from localspec.core.files import paths


def main() -> int:
    """Search, or repeat one case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--search", action="append", choices=[*SEARCHES], help="all by default")
    parser.add_argument("--seed", type=int, help="only this case of each search named")
    parser.add_argument("--state", type=Path, help="where the next seeds are kept")
    given = parser.parse_args()
    state = given.state or paths.make(paths.state_dir()) / "search_faults.json"
    names = given.search or [*SEARCHES]
    with tempfile.TemporaryDirectory(prefix="localspec-faults-") as folder:
        searches = {name: SEARCHES[name](Path(folder)) for name in names}
        runner = Runner(searches, functools.partial(print, flush=True))
        try:
            if given.seed is not None:
                for name in names:
                    runner.one(name, given.seed)
            else:
                runner.run(60 * given.minutes, Seeds(state))
        except KeyboardInterrupt:
            print("stopped; the next run goes on from here")
        finally:
            for line in runner.summary():
                print(line)
            for search in searches.values():
                search.close()
    return 1 if runner.faults else 0


if __name__ == "__main__":
    sys.exit(main())
