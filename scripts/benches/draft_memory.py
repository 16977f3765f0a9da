"""What the memory of earlier requests wins and costs, on known replies (see replay.py).

First replies whose passages were in the prompt of an earlier request, and are not in their own;
then the same replies behind their own prompts. Each with an empty memory, with the earlier request
alone, and with a memory full of other source files besides. Speeds against plain decoding are those
of the controller with the given seconds of a pass by width. Last, what lookups and learning take.
"""

from __future__ import annotations

import argparse
import random
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benches.replay import CURVE, Pair, Sum, replay, seconds, tokens_of
from benches.shared.replay_texts import texts
from localspec import Options, Runtime
from localspec.core.settings_schema import DRAFT_MEMORY
from localspec.decode.request import DraftRules
from localspec.drafters.lookup.request_memory import RequestMemory
from localspec.drafters.lookup.suffix import Suffix
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

_CURVE = seconds(CURVE)
_BYTES = DRAFT_MEMORY.default * 10**6
_OWNER = "user"


def measured(pairs: Sequence[Pair], remembered: Sequence[list[int]], v: int) -> Sum:
    """The replies with the controller, after requests that are remembered."""
    drafter = Suffix(memory=_BYTES)
    for tokens in remembered:
        drafter.remember(_OWNER, tokens)
    auto = Controller(Knowledge({0: Costs(_CURVE)}), ["suffix"], free=["suffix"])
    rules = DraftRules(recalls=_OWNER)
    return replay(pairs, lambda: drafter, auto, Costs(_CURVE), v, rules)


def others(tokenize: Callable[..., list[int]], most: int) -> list[list[int]]:
    """Source files of the standard library, ``most`` tokens in all."""
    found: list[list[int]] = []
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py"))
    random.Random(1).shuffle(paths)
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="ignore")[:100_000]
        found.append(list(tokenize(text, special=False, bos=False)))
        most -= len(found[-1])
        if most <= 0:
            break
    return found


def shown(sums: Sequence[Sum]) -> str:
    """Tokens per round and speed of each."""
    speeds = (s.tokens * _CURVE[1] / s.seconds for s in sums)
    return "  ".join(
        f"{s.tokens / s.rounds:6.2f} {speed:5.2f}" for s, speed in zip(sums, speeds, strict=True)
    )


def costs(full: Sequence[list[int]]) -> None:
    """Print what a full memory takes."""
    memory = RequestMemory(_BYTES)
    for tokens in full:
        memory.learn(_OWNER, tokens)
    rng = random.Random(2)
    known = [tokens[i : i + 48] for tokens in full[-20:] for i in range(0, len(tokens) - 48, 97)]
    unknown = [[rng.randrange(1 << 17) for _ in range(48)] for _ in range(2000)]
    for name, ends in (("found", known), ("not found", unknown)):
        began = time.perf_counter()
        for end in ends:
            memory.recall(_OWNER, end, 16)
        took = (time.perf_counter() - began) / len(ends)
        print(f"a lookup, {name}: {1e6 * took:.1f} us")
    prompt = [rng.randrange(1 << 17) for _ in range(35_000)]
    for name in ("new", "known"):
        began = time.perf_counter()
        memory.learn(_OWNER, prompt)
        print(f"learning 35,000 {name} tokens: {1e3 * (time.perf_counter() - began):.1f} ms")
    print(f"memory: {memory.n_bytes / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo", help="whose tokens are used")
    parser.add_argument("--each", type=int, default=40, help="texts of each kind")
    parser.add_argument("--fill", type=int, default=1_000_000, help="other tokens in memory")
    args = parser.parse_args()
    with Runtime.open(Options(model=args.model, drafter=("off",))) as runtime:
        model = runtime.pair.target_model
        work = {
            kind: [tokens_of(text, model.tokenize) for text in some]
            for kind, some in texts(args.each).items()
        }
        asked = list(model.tokenize("Now the other one.\n\n", special=False, bos=False))
        full, v = others(model.tokenize, args.fill), model.n_vocab
    head = "  ".join(f"{name:>12}" for name in ("empty", "earlier", "and others", "others"))
    print(f"{'tokens per round, speed':32}{head}")
    for kind, pairs in work.items():
        earlier = [prompt for prompt, _ in pairs]
        if kind == "new text":  # it was in no prompt: an earlier reply
            earlier = [[*prompt, *reply] for prompt, reply in pairs]
        states = ([], earlier, [*full, *earlier], full)
        alone = [(asked, reply) for _, reply in pairs]
        print(f"{kind:32}{shown([measured(alone, known, v) for known in states])}")
        if kind != "new text":
            sums = [measured(pairs, known, v) for known in states]
            print(f"{'  behind its own prompt':32}{shown(sums)}")
    costs(full)


if __name__ == "__main__":
    main()
