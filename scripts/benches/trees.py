"""Chains against trees of equal depth: tokens per round, as a Markdown table.

The demo target with its draft model, its EAGLE-3 head and its block for multi-token prediction, on
the held-out prompts of the demo corpus. Every round drafts K deep; trees have up to three nodes for
each level. On one thread, since a second one slows so small a model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heads.compose import compose_mtp

from localspec import Finished, Message, Options, Runtime, Sampling, Stats
from localspec.core.files.paths import DEMO_DIR

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "data"
_TARGET = DEMO_DIR / "target.gguf"
_SETTINGS = (("match", 0.0), ("match", 1.0), ("rejection", 1.0))


@dataclass(frozen=True)
class Pair:
    """A target and its drafter."""

    chain: str
    """Its drafter of chains; that of trees is called ``tree`` for all."""
    target: Path
    draft: str | None


def pairs(folder: Path) -> Iterator[Pair]:
    """All pairs; the composed target is written to the folder."""
    heads = _TESTS / "heads"
    carrying = folder / "carrying.gguf"
    compose_mtp(_TARGET, heads / "mtp-block.gguf", carrying)
    yield Pair("model", _TARGET, str(DEMO_DIR / "draft.gguf"))
    yield Pair("eagle3", _TARGET, str(heads / "eagle3.gguf"))
    yield Pair("mtp", carrying, None)


def prompts(stride: int) -> Iterator[str]:
    """The first question of every held-out conversation."""
    for entry in json.loads((_TESTS / "demo" / "heldout.json").read_text("utf-8"))[::stride]:
        yield entry["messages"][0]["content"]


@dataclass
class Sums:
    """Sums over all replies of one setting."""

    emitted: int = 0
    rounds: int = 0
    drafted: int = 0
    seconds: float = 0.0

    def add(self, stats: Stats) -> None:
        """Count a reply."""
        self.emitted += stats.emitted
        self.rounds += stats.rounds
        self.drafted += stats.drafted
        self.seconds += sum(used.seconds for used in stats.by_drafter.values())


def measured(runtime: Runtime, temperature: float, stride: int, n: int) -> Sums:
    """Replies to all prompts."""
    sums, sampling = Sums(), Sampling(temperature=temperature)
    for seed, prompt in enumerate(prompts(stride)):
        said = [Message("user", prompt)]
        *_, end = runtime.reply(said, sampling=sampling, seed=seed, max_tokens=n)
        assert isinstance(end, Finished)
        sums.add(end.reply.stats)
    return sums


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-k", type=int, default=4, help="depth of a draft")
    parser.add_argument("-n", type=int, default=64, help="tokens of a reply, at most")
    parser.add_argument("--stride", type=int, default=1, help="use every N-th prompt")
    parser.add_argument("--only", help="one drafter of chains by name")
    given = parser.parse_args()
    print("| tokens per round | drafter | chain | tree | nodes a round | drafting, ms a round |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs(Path(folder)):
            if given.only not in {None, pair.chain}:
                continue
            for verifier, temperature in _SETTINGS:
                found = []
                for drafter in (pair.chain, "tree"):
                    options = Options(
                        str(pair.target),
                        pair.draft,
                        drafter=(drafter,),
                        draft_max=given.k,
                        verifier=verifier,
                        threads=1,
                    )
                    with Runtime.open(options) as runtime:
                        found.append(measured(runtime, temperature, given.stride, given.n))
                rates = " | ".join(f"{sums.emitted / sums.rounds:.2f}" for sums in found)
                lasts = ", ".join(f"{1e3 * sums.seconds / sums.rounds:.2f}" for sums in found)
                nodes = found[1].drafted / found[1].rounds
                print(
                    f"| `{verifier}`, T = {temperature:g} | `{pair.chain}` | {rates} "
                    f"| {nodes:.1f} | {lasts} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
