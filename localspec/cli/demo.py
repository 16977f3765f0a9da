"""``localspec demo``: the race of drafting against plain decoding."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from localspec.cli import interface
from localspec.cli.interface import note_race
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import in_terminal, say_over, write, write_line
from localspec.core.options import Options
from localspec.core.sampling_params import Sampling
from localspec.core.units import size

if TYPE_CHECKING:
    from localspec.demo.race import Lane, Race

_REFRESH_S = 0.1


@click.command("demo")
@click.option("--plain", is_flag=True, help="Plain lines instead of the full-screen interface.")
def command(*, plain: bool) -> int:
    """Show what drafting does: one prompt answered without and with it, and both speeds.

    The embedded pair is grown to the cost of a large model, by weights that are zero: the same
    text, about 15 tokens per second. Its files are deleted afterwards.
    """
    if not plain and in_terminal():
        screen = interface.module("in_terminal")
        note_race()  # the first chat need not show it again
        code: int = screen.run(Options(), Sampling(), race=True)
        return code
    with CtrlC() as ctrl_c:
        return asyncio.run(_in_lines(ctrl_c))


async def _in_lines(ctrl_c: CtrlC) -> int:
    """The race as text: each side as it arrives, then the result."""
    from localspec.demo.race import PROMPT, Race

    race = Race()
    task = asyncio.create_task(race.run())

    def stop() -> None:
        task.cancel()

    ctrl_c.on_first = stop
    try:
        write_line(f"> {PROMPT}")
        for lane in (race.plain, race.drafted):
            await _follow(race, lane)
        while not race.over:
            await _wait(race)
        say_over("")
    finally:
        task.cancel()
        await asyncio.wait([task])
    if ctrl_c.pressed:
        return 130
    if race.failure is not None:
        raise race.failure
    _conclude(race)
    return 0


async def _wait(race: Race) -> None:
    say_over(race.status)
    await asyncio.sleep(_REFRESH_S)


async def _follow(race: Race, lane: Lane) -> None:
    """Write the first reply of a side."""
    while not (lane.tokens or race.over):
        await _wait(race)
    say_over("")
    if not lane.tokens:
        return
    write_line(f"\n{lane.name}, {size(race.n_bytes)} of weights:")
    shown = 0
    while lane.reply is None or shown < len(lane.tokens):
        if race.over and shown == len(lane.tokens):
            break
        new = lane.tokens[shown:]
        write("".join(token.text for token in new))
        shown += len(new)
        if not new:
            await asyncio.sleep(_REFRESH_S)
    write("\n")


def _conclude(race: Race) -> None:
    """The result, and what to do next."""
    from localspec.demo.speeds import advice

    plain, drafted = (race.speed(draft=draft) for draft in (False, True))
    if race.sure:
        write(f"\nplain decoding {plain:.1f} tokens/s, with drafting {drafted:.1f} tokens/s")
    again = "; `localspec demo` tries again" if race.doubtful else ""
    write_line(f"\n{race.status}{again}")
    write_line(advice(race.best, race.n_bytes, race.kernels))
    if race.best is not None:
        name = race.best.offer.name
        verb = "uses" if race.best.offer.installed else "downloads"
        does = "chat" if race.best.offer.installed else "pull"
        write_line(f"localspec {does} {name} {verb} it; localspec models lists all others.")
