"""Compare the speeds that `localspec models` expects with real ones, on pairs made for it.

The embedded pair is grown to the sizes given; each is decoded plainly and with drafting, and both
speeds are printed with the expected ones and their ratios. Run it on a quiet machine.

What was measured of the machine earlier is measured anew, since it may have been measured beside
other programs. The exit code is 1 where a speed is off by more than a quarter.

python scripts/check_expected_speeds.py --gb 1 2.5
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from localspec.config import paths
from localspec.core.events import Message, Round
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import GREEDY
from localspec.engine.client import EngineClient
from localspec.errors import LocalspecError
from localspec.loading.machine_speed import SPEED_FILE, machine_speed
from localspec.loading.options import Options
from localspec.models.memory import ask_machine
from localspec.models.memory.speed import MachineSpeed, Reads, expected
from localspec.race.pair import GrownPair, grow
from localspec.race.race import PROMPT
from localspec.race.speeds import Speeds

_TOLERANCE = 0.25
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


def measured_anew(patience: float) -> MachineSpeed:
    """Measure the machine, again and again while other programs disturb it; ends the script where
    that is not possible.
    """
    (paths.cache_dir() / SPEED_FILE).unlink(missing_ok=True)
    end = time.monotonic() + patience
    while (machine := machine_speed()) is not None and machine.disturbed:
        if time.monotonic() >= end:
            print("other programs were using the processor: expect the figures to be off")
            return machine
    if machine is None:
        sys.exit("this machine cannot be measured; `localspec doctor` may say why")
    return machine


def main() -> None:
    """Read the sizes and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0, 2.5], help="target's sizes")
    parser.add_argument("--runs", type=int, default=6, help="timed replies, half of each kind")
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds to wait for a quiet machine"
    )
    arguments = parser.parse_args()
    machine = measured_anew(arguments.patience)
    print("GB     plain: expected  real  ratio    drafted: expected  real  ratio")
    off = False
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
        ratios = wanted.plain / plain, wanted.drafted / drafted
        off |= any(abs(ratio - 1) > _TOLERANCE for ratio in ratios)
        print(
            f"{gb:<5} {wanted.plain:16.1f} {plain:5.1f} {ratios[0]:6.2f}"
            f"    {wanted.drafted:17.1f} {drafted:5.1f} {ratios[1]:6.2f}",
            flush=True,
        )
    sys.exit(off)


if __name__ == "__main__":
    main()
