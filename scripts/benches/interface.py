"""The cost of the interface: CPU per token, stalls, memory, start, and decode speed against `run`.

Every measurement runs the real interface in its own pseudo-terminal, which is read as a terminal
would. Streaming replays 2,000 tokens at 200 a second through a fake engine; decode speed uses the
real one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benches.interface_cost import decoding, inside
from benches.interface_cost.replay import KINDS
from benches.interface_cost.terminal import in_terminal, measured

SCRIPT = Path(__file__).resolve()
HISTORIES = (0, 100, 300)


def streaming(kinds: Sequence[str], histories: Sequence[int], times: int) -> None:
    """Print what streaming costs: medians of several runs."""
    print("| text | earlier | CPU ms/token | longest stall ms | its CPU ms | p99 ms | memory MB |")
    print("|---|---|---|---|---|---|---|")
    for kind in kinds:
        for history in histories:
            runs = [measured(SCRIPT, kind, str(history), "") for _ in range(times)]
            found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            print(
                f"| {kind} | {history} | {found['cpu_ms']:.2f} | {found['stall_ms']:.0f} "
                f"| {found['work_ms']:.0f} | {found['p99_ms']:.0f} | {found['memory_mb']:.0f} |",
                flush=True,
            )


def at_once(times: int) -> None:
    """Print what showing much at once costs: medians of several runs."""
    runs = [measured(SCRIPT, "moments", "0", "") for _ in range(times)]
    print("\n| what is shown | longest stall ms | its CPU ms | seconds | memory MB |")
    print("|---|---|---|---|---|")
    for name in runs[0]:
        stall, work, seconds, memory = (
            statistics.median(run[name][key] for run in runs)
            for key in ("stall_ms", "work_ms", "seconds", "memory_mb")
        )
        print(f"| {name} | {stall:.0f} | {work:.0f} | {seconds:.2f} | {memory:.0f} |")


def start(times: int) -> None:
    """Print how long it takes from the command to a composer that can be typed in.

    One start before them has the bytecode compiled and the files in memory.
    """
    command = [sys.executable, "-m", "localspec", "chat"]
    shown = [in_terminal(command, lambda d: b"essage" in d) for _ in range(times + 1)][1:]
    wall, cpu = ([getattr(one, name) for one in shown] for name in ("seconds", "cpu"))
    print(
        f"\nstart to a usable composer: {statistics.median(wall):.2f} s, least {min(wall):.2f}; "
        f"CPU {statistics.median(cpu):.2f} s, least {min(cpu):.2f}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="measure decode speed with the interface and with `run`")
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], choices=KINDS)
    parser.add_argument("--histories", nargs="*", type=int, default=HISTORIES)
    parser.add_argument(
        "--moments", action=argparse.BooleanOptionalAction, default=True, help="long texts at once"
    )
    parser.add_argument("--start", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tokens", type=int, help="tokens of the replies of --model")
    parser.add_argument("--times", type=int, default=3, help="runs of each; medians are printed")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        kind, history, model, result = arguments.inside
        inside.run(kind, int(history), model, Path(result))
        return
    if arguments.kinds:
        streaming(arguments.kinds, arguments.histories, arguments.times)
    if arguments.moments:
        at_once(arguments.times)
    if arguments.start:
        start(2 * arguments.times + 1)
    if arguments.tokens:
        os.environ[decoding.TOKENS] = str(arguments.tokens)
    if arguments.model:
        decoding.compare(SCRIPT, arguments.model, arguments.times)


if __name__ == "__main__":
    main()
