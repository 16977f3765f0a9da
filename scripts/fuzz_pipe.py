"""Fuzz the engine's pipe: ``python scripts/fuzz_pipe.py --cases 500 --seed 1``."""

import sys

from faults.pipe import main

if __name__ == "__main__":
    sys.exit(main())
