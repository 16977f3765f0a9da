"""How far logits move when llama.cpp reads the same text in other parts, not in strict mode.

The embedded target and rewritten copies of it: 330 tokens of prompt, then 48 tokens. First those
are read in passes of other widths after the same prompt, then one by one after a prompt in other
parts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benches.strict import WEIGHTS
from localspec.core.files.paths import DEMO_DIR
from localspec.core.values import Logits
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model

_PROMPT, _MORE = 330, 48
WIDTHS = (2, 4, 8, 16, 48)
PARTS = {
    "cut three tokens before its end": (_PROMPT - 3,),
    "its last 30 tokens one by one": tuple(range(300, _PROMPT)),
    "parts of 100": tuple(range(100, _PROMPT, 100)),
    "parts of 63": tuple(range(63, _PROMPT, 63)),
    "parts of 7": tuple(range(7, _PROMPT, 7)),
}


def rows(context: Context, ids: Sequence[int], cuts: Sequence[int], width: int) -> Logits:
    """Logits of the tokens after the prompt."""
    context.truncate(0, 0)
    for start, end in zip((0, *cuts), (*cuts, _PROMPT), strict=True):
        context.forward([(0, ids[start:end], 0)])
    found = []
    for at in range(_PROMPT, _PROMPT + _MORE, width):
        part = ids[at : min(at + width, _PROMPT + _MORE)]
        found.append(context.forward([(0, part, len(part))])[0].copy())
    return np.concatenate(found)


def compare(name: str, path: Path) -> None:
    """Print the largest differences of one file."""
    model = Model(path)
    context = Context(model, n_ctx=512, threads=1)
    ids = model.tokenize((DEMO_DIR / "MODEL_CARD.md").read_text("utf-8"))[: _PROMPT + _MORE]
    right = rows(context, ids, (), 1)
    print(f"{name}: logits deviate by {right.std():.2g}")
    for width in WIDTHS:
        moved = np.abs(rows(context, ids, (), width) - right).max()
        print(f"  passes of {width:2d}: {moved:.2g}")
    for what, cuts in PARTS.items():
        moved = np.abs(rows(context, ids, cuts, 1) - right).max()
        print(f"  prompt, {what}: {moved:.2g}")
    context.close()
    model.close()


def main() -> None:
    """All of them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    source = DEMO_DIR / "target.gguf"
    compare("as it is", source)
    with tempfile.TemporaryDirectory() as folder:
        for name, file_type in WEIGHTS.items():
            path = Path(folder) / f"{name}.gguf"
            params = c_api.llama_model_quantize_default_params()
            params.allow_requantize, params.ftype = True, file_type
            if c_api.llama_model_quantize(str(source).encode(), str(path).encode(), params):
                raise SystemExit(f"{name} cannot be made")
            compare(name, path)


if __name__ == "__main__":
    main()
