"""Check localspec on the device of this machine: CUDA, Metal, Vulkan, or none.

The checks: every drafter with layers and KV cache fully, partly and not on the device; interrupts;
resuming; memory planned against memory allocated; a device that is too small; and what passes cost.
Each group runs in a separate process, so a crash of the driver does not lose the report. The report
names the machine and nothing about its user: please send it to us.

llama.cpp uses a software device (llvmpipe) only with GGML_VK_VISIBLE_DEVICES=0 set.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device import exactness, machine, memory, passes, sessions
from device.rows import Row, finding, markdown, skipped

Group = Callable[..., Iterator[Row]]
_GROUPS: dict[str, Group] = {
    "exactness": exactness.rows,
    "verify": exactness.verified,
    "memory": memory.rows,
    "sessions": sessions.rows,
    "passes": passes.rows,
}
_SILENCE_S = 1800.0
"""Seconds without a row after which a device is taken to hang; a program as device compiles for
minutes.
"""
_MARKS = {"ok": "ok", "finding": "FINDING", "not checkable here": "-"}


def main() -> int:
    """Exit code 1 if there is a finding."""
    arguments = _parsed()
    if arguments.group:
        return _run_group(arguments)
    # Ended from outside, it ends its child and reports what it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    facts = machine.facts()
    if not machine.on_device():
        print("device_check: this build computes on the processor alone", file=sys.stderr)
    rows: list[Row] = []
    interrupted = False
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or _GROUPS:
            try:
                for row in _rows_of(name, Path(folder), quick=arguments.quick):
                    rows.append(row)
                    print(
                        f"{_MARKS[row.status]:8} {row.what}: {row.figures}",
                        file=sys.stderr,
                        flush=True,
                    )
            except KeyboardInterrupt:
                rows.append(skipped("This run", name, "interrupted"))
                interrupted = True
                break
    rows += [skipped("By hand", what, "no part of this script") for what in _BY_HAND]
    seconds = time.monotonic() - began
    facts += [("run", f"{'quick' if arguments.quick else 'full'}, {seconds / 60:.1f} min")]
    report = markdown("Device check", facts, rows)
    if arguments.out:
        arguments.out.write_text(report, encoding="utf-8")
    else:
        print(report)
    if interrupted:
        return 130
    return 1 if any(row.status == "finding" for row in rows) else 0


_BY_HAND = ("the build in an empty cache, and with an old nvcc first on PATH",)
"""Checks of a new device that nobody but a user can make."""


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="device_check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes on a usual GPU")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the report, instead of stdout")
    parser.add_argument(
        "--only", action="append", choices=tuple(_GROUPS), help="one group; may be repeated"
    )
    parser.add_argument("--group", choices=tuple(_GROUPS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_group(arguments: argparse.Namespace) -> int:
    """Run in a child process: print a row of JSON for each check."""
    for row in _GROUPS[arguments.group](arguments.folder, quick=arguments.quick):
        print(json.dumps(row.as_json()), flush=True)
    return 0


def _rows_of(name: str, folder: Path, *, quick: bool) -> Iterator[Row]:
    """The rows of a group as they arrive, and one more if its process failed."""
    own = folder / name
    own.mkdir()
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--group", name]
    command += ["--folder", str(own), *(["--quick"] if quick else [])]
    # Measurements and settings of the user are neither used nor changed.
    environ = {**os.environ, "LOCALSPEC_HOME": str(folder / "home")}
    environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent))
    log = folder / f"{name}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        hung = False
        try:
            for row in _read(child):
                if row is None:
                    hung = True
                else:
                    yield row
        except BaseException:  # interrupted, or its reader is gone
            child.kill()
            raise
        if hung:
            child.kill()
    if hung:
        yield finding("This run", f"group {name}", f"no output for {_SILENCE_S:.0f} s")
    elif child.returncode:
        why = _reason(child.returncode, log.read_text(encoding="utf-8", errors="replace"))
        yield finding("This run", f"group {name}", why)


def _read(child: subprocess.Popen[str]) -> Iterator[Row | None]:
    """Rows of a child; None, as the last value, if it prints nothing for too long."""
    lines: queue.Queue[str | None] = queue.Queue()
    assert child.stdout is not None
    stdout = child.stdout

    def pump() -> None:
        for line in stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_SILENCE_S)
        except queue.Empty:
            yield None
            return
        if line is None:
            return
        yield Row(**json.loads(line))


def _reason(code: int, log: str) -> str:
    last = ([line for line in log.splitlines() if line.strip()] or ["no output"])[-1]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return f"ended by {name}; its last line: {last}"
    return f"ended with status {code}; its last line: {last}"


if __name__ == "__main__":
    sys.exit(main())
