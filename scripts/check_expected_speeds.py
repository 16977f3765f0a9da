"""Compare the speeds that `localspec models` expects with real ones, on pairs made for it.

The embedded pair is grown to the sizes given; each is decoded plainly and with drafting, and both
speeds are printed with the expected ones and their ratios. Run it on a quiet machine.

python scripts/check_expected_speeds.py --gb 1 2.5
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from localspec.config import paths
from localspec.core.events import Message, Round
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import GREEDY
from localspec.engine.client import EngineClient
from localspec.errors import LocalspecError
from localspec.loading.machine_speed import machine_speed
from localspec.loading.options import Options
from localspec.models.memory import ask_machine
from localspec.models.memory.speed import Reads, expected
from localspec.race.pair import GrownPair, grow
from localspec.race.race import PROMPT
from localspec.race.speeds import Speeds

_ACCEPTANCE = 0.95
"""Acceptance of the embedded pair at temperature 0, by its model card."""


async def real(pair: GrownPair, runs: int) -> Speeds:
    """Measure a grown pair: plain decoding and drafting in turns."""
    options = Options(
        model=str(pair.target), draft=str(pair.draft), context=512, remember=False, offline=True
    )
    engine, speeds = EngineClient(options, log_dir=paths.state_dir()), Speeds()
    await engine.open()
    try:
        for _ in range(runs):
            timed = speeds.begin()
            request = ReplyRequest(
                messages=(Message("user", PROMPT),), sampling=GREEDY, seed=0, draft=timed.draft
            )
            async for event in engine.reply(request):
                if isinstance(event, Round):
                    timed.add(event)
    finally:
        await engine.close()
    return speeds


def main() -> None:
    """Read the sizes and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0, 2.5], help="target's sizes")
    parser.add_argument("--runs", type=int, default=6, help="timed replies, half of each kind")
    arguments = parser.parse_args()
    machine = machine_speed()
    if machine is None:
        sys.exit("this machine cannot be measured")
    if machine.disturbed:
        print("other programs were using the processor: expect the figures to be off")
    print("GB     plain: expected  real  ratio    drafted: expected  real  ratio")
    for gb in arguments.gb:
        try:
            pair = grow(int(gb * 1e9))
            try:
                target, draft = (file.stat().st_size for file in (pair.target, pair.draft))
                reads = Reads(target, draft, "Q4_0", acceptance=_ACCEPTANCE)
                wanted = expected(machine, ask_machine.memory(), reads)
                speeds = asyncio.run(real(pair, arguments.runs))
            finally:
                pair.remove()
        except LocalspecError as error:
            sys.exit(f"check_expected_speeds: {error}")
        plain, drafted = speeds.of(draft=False), speeds.of(draft=True)
        print(
            f"{gb:<5} {wanted.plain:16.1f} {plain:5.1f} {wanted.plain / plain:6.2f}"
            f"    {wanted.drafted:17.1f} {drafted:5.1f} {wanted.drafted / drafted:6.2f}"
        )


if __name__ == "__main__":
    main()
