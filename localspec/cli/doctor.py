"""``localspec doctor``: what is right, what is wrong, and one fix for each problem."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from typing import Literal

import click

from localspec import __version__, config
from localspec.cli.models import size
from localspec.cli.texts import write
from localspec.errors import LocalspecError

_WRITABLE = "set LOCALSPEC_HOME to a folder that you may write to"
Status = Literal["ok", "note", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    topic: str
    status: Status
    text: str
    fix: str | None = None


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of text.")
def command(*, as_json: bool) -> int:
    """Check Python, llama.cpp, devices, memory, folders and the embedded pair."""
    findings = [_python(), *_llama(), *_folders(), *_pair(), _terminal()]
    broken = any(f.status == "broken" for f in findings)
    if as_json:
        write(json.dumps({"ok": not broken, "findings": [dataclasses.asdict(f) for f in findings]}))
        write("\n")
    else:
        marks = {"ok": "✓", "note": "·", "broken": "✗"}
        for f in findings:
            write(f"{marks[f.status]} {f.topic:<9} {f.text}\n")
            if f.fix:
                write(f"  {'':<9} fix: {f.fix}\n")
    return 1 if broken else 0


def _python() -> Finding:
    text = f"localspec {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Finding("python", "ok", text)


def _llama() -> list[Finding]:
    try:
        from localspec.llama import devices, library
    except Exception as error:  # noqa: BLE001 - whatever keeps the native library from loading
        text = f"llama-cpp-python cannot be loaded: {error}"
        fix = "build it again: delete .venv and start scripts/localspec"
        return [Finding("llama.cpp", "broken", text, fix)]
    backend = devices.backend()
    found = [
        Finding("llama.cpp", "ok", f"llama-cpp-python {library.version()}, built for {backend}"),
        Finding("cpu", "ok", f"{devices.physical_cores()} physical cores, {_features()}"),
    ]
    found.extend(
        Finding(
            "device", "ok", f"{d.name} ({d.description}): {size(d.free)} of {size(d.total)} free"
        )
        for d in devices.devices()
    )
    if backend == "cpu":
        found.append(_unused_gpu())
    return found


def _features() -> str:
    from localspec.llama import library

    words = library.system_info().replace("|", " ").split()
    on = [words[i] for i in range(len(words) - 2) if words[i + 1 : i + 3] == ["=", "1"]]
    return " ".join(on) or "no CPU features reported"


def _unused_gpu() -> Finding:
    rebuild = "LOCALSPEC_BACKEND={} scripts/localspec doctor"
    if shutil.which("nvidia-smi"):
        text = "an NVIDIA GPU is here, but this build computes on the CPU"
        return Finding("gpu", "note", text, rebuild.format("cuda"))
    if sys.platform == "darwin" and platform.machine() == "arm64":
        text = "this Mac has Metal, but this build computes on the CPU"
        return Finding("gpu", "note", text, rebuild.format("metal"))
    return Finding("gpu", "ok", "none found: models run on the CPU")


def _folders() -> list[Finding]:
    findings = []
    for name, folder in (
        ("config", config.config_dir()),
        ("data", config.data_dir()),
        ("state", config.state_dir()),
        ("cache", config.cache_dir()),
    ):
        try:
            config.make(folder)
        except LocalspecError as error:
            findings.append(Finding(name, "broken", str(error), _WRITABLE))
            continue
        if not os.access(folder, os.W_OK):
            findings.append(Finding(name, "broken", f"{folder} is not writable", _WRITABLE))
            continue
        free = shutil.disk_usage(folder).free
        findings.append(Finding(name, "ok", f"{folder} ({size(free)} free on its disk)"))
    try:
        config.settings()
    except LocalspecError as error:
        findings.append(Finding("settings", "broken", str(error), "correct or delete that file"))
    return findings


def _pair() -> list[Finding]:
    try:
        from localspec.events import Finished, Message
        from localspec.options import Options
        from localspec.runtime import Runtime
        from localspec.sampling import GREEDY

        with Runtime.open(Options(model="demo", require_draft=True)) as runtime:
            *_, last = runtime.reply([Message("user", "Hello!")], sampling=GREEDY, max_tokens=32)
            assert isinstance(last, Finished)
            stats, info = last.reply.stats, runtime.info
    except LocalspecError as error:
        fix = "install localspec again: the embedded pair is part of it"
        return [Finding("demo", "broken", str(error), fix)]
    text = (
        f"the embedded pair ({size(info.target_bytes + info.draft_bytes)}) loads and answers: "
        f"{stats.tokens_per_second:.0f} tok/s, acceptance {stats.acceptance:.0%}, "
        f"{info.threads} thread{'s' if info.threads > 1 else ''}"
    )
    return [Finding("demo", "ok", text)]


def _terminal() -> Finding:
    if not sys.stdout.isatty():
        return Finding("terminal", "note", "stdout is no terminal: chat would read lines")
    columns, rows = shutil.get_terminal_size()
    colour = "no colour" if os.environ.get("NO_COLOR") else os.environ.get("COLORTERM") or "256"
    encoding = sys.stdout.encoding
    return Finding("terminal", "ok", f"{columns}×{rows}, colours: {colour}, {encoding}")
