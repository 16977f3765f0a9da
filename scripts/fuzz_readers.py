"""Fuzz every reader: ``python scripts/fuzz_readers.py --cases 2000 --seed 1 [--only gguf]``."""

import sys

from faults.readers import main

if __name__ == "__main__":
    sys.exit(main())
