"""Models that compute what a small one computes and cost what a large one costs.

`localspec.models.gguf.growth` says how they are made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from localspec.core.files.paths import DEMO_DIR, cache_dir
from localspec.models.gguf.growth import SmallModel


def main() -> None:
    """Grow the embedded pair, or another, into the cache."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=1.0, help="target's weights, in 10^9 bytes")
    parser.add_argument(
        "--draft-gb", type=float, default=0.06, help="draft's weights, in 10^9 bytes"
    )
    parser.add_argument(
        "--target", type=Path, default=DEMO_DIR / "target.gguf", help="small target"
    )
    parser.add_argument("--draft", type=Path, default=DEMO_DIR / "draft.gguf", help="small draft")
    parser.add_argument(
        "--out", type=Path, default=cache_dir() / "bench", help="folder to write to"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    gb, draft_gb = arguments.gb, arguments.draft_gb
    made = make(arguments.target, arguments.out / f"target-{gb:g}gb.gguf", gb)
    draft = make(arguments.draft, arguments.out / f"draft-{draft_gb:g}gb.gguf", draft_gb)
    print(f"try: scripts/localspec chat {made} --draft {draft}")


def make(small: Path, out: Path, gb: float) -> Path:
    """Grow one file to about ``gb``; it appears under its name only once it is whole."""
    source = SmallModel(small)
    shape = source.shape_for(int(gb * 1e9))
    partial = out.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    source.grow(shape, partial)
    partial.replace(out)
    print(f"{out}: {source.n_bytes(shape) / 1e9:.2f} GB, {shape}")
    return out


if __name__ == "__main__":
    main()
