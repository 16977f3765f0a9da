"""The output of `localspec bench`: rows as they are measured, details, JSON, a plot."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.cli.output import in_lines, json_line, write
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import whole_file

if TYPE_CHECKING:
    from localspec.bench.history import Past
    from localspec.bench.peers import Compared
    from localspec.bench.speedup import Bench, Measured
    from localspec.cli.containment import Unfinished
    from localspec.cli.working import Working
    from localspec.core.events import ModelInfo

HEAD = "WORKLOAD     TEMP × PLAIN (MIN-MAX)    TOK/S ACCEPTED TOK/ROUND  K BOUND OUTSIDE"


def report(
    result: Bench,
    info: ModelInfo,
    compared: Sequence[Compared],
    past: Past | None,
    *,
    complete: bool = True,
) -> dict[str, Any]:
    """The object that ``bench --json`` prints; not ``complete`` where it ended before its time."""
    return {
        "complete": complete,
        "results": [dataclasses.asdict(m) | {"ratio": m.ratio} for m in result.results],
        "mean_ratio": result.mean_ratio,
        "spread": result.spread,
        "noisy": result.noisy,
        "notices": list(result.notices),
        "curve": dict(result.curve),
        "draft_costs": dict(result.draft_costs),
        "peers": [dataclasses.asdict(c) for c in compared],
        "last": None
        if past is None
        else {
            "when": past.when,
            "threads": past.threads,
            "ratios": [
                {"workload": w, "temperature": t, "ratio": ratio}
                for (w, t), ratio in past.ratios.items()
            ],
        },
        "model": {"target": info.target, "draft": info.draft, "backend": info.backend},
        "threads": info.threads,
    }


def closing(result: Bench) -> list[str]:
    """The conclusion from the rows."""
    if result.mean_ratio is None:
        return ["nothing was measured"]
    lines = [
        f"on average {result.mean_ratio:.2f} times plain decoding; BOUND: the best K for all rounds"
    ]
    lines.append(
        f"plain speed varied by {result.spread:.0%} between equal runs"
        + ("; nothing can be concluded, run it again on a quiet machine" if result.noisy else "")
    )
    lines += [
        f"{m.workload}, temperature {m.temperature:g}: the grammar forced {m.forced:.0%} of the "
        f"tokens; {m.guessed:.0%} of the other drafted ones were accepted"
        for m in result.results
        if m.forced
    ]
    lines += [f"meanwhile: {text}" for text in dict.fromkeys(result.notices)]
    return lines


def row(m: Measured) -> str:
    """One workload at one temperature."""
    drafted = [k for k, rounds in m.lengths.items() if k for _ in range(rounds)]
    usual = str(drafted[len(drafted) // 2]) if drafted else "-"
    return (
        f"{m.workload:<12} {m.temperature:>4g} {m.ratio:>7.2f} "
        f"({min(m.ratios):.2f}-{max(m.ratios):.2f}) {m.speed:>6.0f} {m.acceptance:>8.0%} "
        f"{m.tokens_per_round:>9.2f} {usual:>2} {m.bound:>5.2f} {m.outside:>7.0%}"
    )


def details(result: Bench) -> list[str]:
    """Further figures, four lines for each workload."""
    lines = []
    for m in result.results:
        positions = " ".join(f"{a:.0%}" for a in m.per_position) or "none judged"
        lengths = " ".join(f"{k}:{n}" for k, n in m.lengths.items())
        lines += [
            f"{m.workload}, temperature {m.temperature:g}:"
            f" prompt read in {m.first_token * 1000:.0f} ms"
            + (", parked at the end" if m.parked else ""),
            f"  acceptance by position: {positions}",
            f"  rounds by draft length: {lengths}; best for all: {m.bound_length}",
            f"  tokens of a round with a draft: {m.observed:.2f}, by formula {m.predicted:.2f}",
        ]
    return lines


def changes(result: Bench, past: Past | None, threads: int) -> list[str]:
    """Comparison with the last run, one line for each workload that both have."""
    if past is None:
        return ["no earlier run"]
    other = f", on {past.threads} threads (now {threads})"
    differs = past.threads not in {None, threads}
    lines = [f"against the run of {past.when} UTC{other if differs else ''}:"]
    for m in result.results:
        was = past.ratios.get((m.workload, m.temperature))
        if was is not None:
            lines.append(
                f"  {m.workload:<13} {m.temperature:>4g} {was:>6.2f} -> {m.ratio:.2f}"
                f"  {m.ratio / was - 1:+.0%}"
            )
    return lines


PEER_HEAD = "PEER                     WORKLOAD     TEMP × PLAIN  OURS TOK/ROUND  OURS  SAME"
PEER_CLOSING = (
    "× PLAIN: decoding speed by that of our plain decoding, measured in turns;",
    "SAME: prompts with the same answer as ours, to be expected at temperature 0",
)


def peer_row(c: Compared) -> str:
    """One peer on one workload at one temperature."""
    rounds = "-" if c.tokens_per_round is None else f"{c.tokens_per_round:.2f}"
    return (
        f"{c.peer:<24} {c.workload:<12} {c.temperature:>4g} {c.ratio:>7.2f} {c.ours:>5.2f} "
        f"{rounds:>9} {c.our_tokens_per_round:>5.2f}  {c.same}/{c.prompts}"
    )


class TextRows:
    """Prints a table row by row."""

    def __init__(
        self,
        unfinished: Unfinished,
        working: Working,
        *,
        expected: int,
        details: bool,
        history: bool,
        threads: int,
    ) -> None:
        """``expected`` is the number of rows in all."""
        self._unfinished, self._working = unfinished, working
        self._expected, self._threads = expected, threads
        self._details, self._history = details, history
        self._rows = 0
        self._peers = 0

    def grown(self, so_far: Bench) -> None:
        """Print new rows; more are to come."""
        head = [] if self._rows else [HEAD]
        rows = so_far.results[self._rows :]
        if rows:
            self._print([*head, *map(row, rows)])
        self._rows += len(rows)
        count = f"incomplete: {self._rows} of {self._expected} rows"
        self._unfinished.hold(in_lines([count, *closing(so_far)]))

    def done(self, result: Bench, past: Past | None) -> None:
        """Print the conclusion from all rows."""
        self.grown(result)
        lines = closing(result)
        if self._details:
            lines += ["", *details(result)]
        if self._history:
            lines += ["", *changes(result, past, self._threads)]
        self._unfinished.hold("")
        self._print(lines)

    def compared(self, rows: Sequence[Compared]) -> None:
        """Print new rows of peers."""
        head = [] if self._peers else ["", PEER_HEAD]
        self._print([*head, *map(peer_row, rows[self._peers :])])
        self._peers = len(rows)
        self._unfinished.hold(in_lines(["incomplete: not all rows of peers", *PEER_CLOSING]))

    def end(self) -> None:
        """Print what follows the last row."""
        self._working.clear()
        self._unfinished.hold("")
        if self._peers:
            write(in_lines(PEER_CLOSING))

    def _print(self, lines: Sequence[str]) -> None:
        self._working.clear()
        write(in_lines(lines))


class JsonRows:
    """Prints one JSON object at the end; called as `TextRows` is."""

    def __init__(self, unfinished: Unfinished, working: Working, info: ModelInfo) -> None:
        """``info`` describes the model in the object."""
        self._unfinished, self._working, self._info = unfinished, working, info
        self._result: Bench | None = None
        self._past: Past | None = None
        self._peers: tuple[Compared, ...] = ()

    def grown(self, so_far: Bench) -> None:
        """See `TextRows`."""
        self._result = so_far
        self._unfinished.hold(self._line(complete=False))

    def done(self, result: Bench, past: Past | None) -> None:
        """See `TextRows`."""
        self._past = past
        self.grown(result)

    def compared(self, rows: Sequence[Compared]) -> None:
        """See `TextRows`."""
        self._peers = tuple(rows)
        self._unfinished.hold(self._line(complete=False))

    def end(self) -> None:
        """See `TextRows`."""
        self._working.clear()
        line = self._line(complete=True)
        self._unfinished.hold("")
        write(line)

    def _line(self, *, complete: bool) -> str:
        assert self._result is not None, "a benchmark has at least one step"
        found = report(self._result, self._info, self._peers, self._past, complete=complete)
        return json_line(found)


def require_matplotlib() -> None:
    """Before anything is measured.

    Raises:
        UsageError: matplotlib is missing.
    """
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib; install it with `pip install 'localspec[plot]'`")


def plot(result: Bench, path: Path) -> None:
    """Three panels: speed-up by workload, t(n) with the lengths chosen, acceptance by position.

    Raises:
        LocalspecError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    speeds, costs, positions = figure.subplots(1, 3)
    names = [f"{m.workload} {m.temperature:g}" for m in result.results]
    speeds.barh(names, [m.ratio for m in result.results], color="#3b7dd8")
    speeds.plot([m.bound for m in result.results], names, "|", color="#333333", label="bound")
    speeds.axvline(1.0, color="#999999", linewidth=1)
    speeds.invert_yaxis()
    speeds.set(xlabel="times plain decoding (workload, temperature)")
    speeds.legend(frameon=False)
    widths = sorted(result.curve)
    if widths:
        seconds = [1000 * result.curve[n] for n in widths]
        costs.plot(widths, seconds, "o-", color="#333333", label="t(n)")
        chosen: dict[int, int] = {}
        for m in result.results:
            for k, n in m.lengths.items():
                chosen[k + 1] = chosen.get(k + 1, 0) + n
        share = costs.twinx()
        share.bar(list(chosen), list(chosen.values()), alpha=0.3, color="#3b7dd8")
        share.set(ylabel="rounds of this width")
    costs.set(xlabel="tokens in a pass of the target", ylabel="milliseconds")
    judged = [m for m in result.results if m.per_position]
    for m in judged:
        label = f"{m.workload} {m.temperature:g}"
        positions.plot(range(1, len(m.per_position) + 1), m.per_position, label=label)
    positions.set(xlabel="position in the draft", ylabel="acceptance where judged", ylim=(0, 1.03))
    if judged:
        positions.legend(frameon=False, fontsize=6)
    try:
        with whole_file.replacing(path, mode=0o644) as file:
            figure.savefig(file, format=path.suffix.removeprefix(".") or "png")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LocalspecError(f"cannot write the picture {path}: {reason}") from None
