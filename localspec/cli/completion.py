"""``localspec completion``: completion of commands, flags and names in bash, zsh and fish."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from localspec.cli.output import tell, write
from localspec.core.errors import LocalspecError
from localspec.core.files import paths, whole_file

_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}
_VARIABLE = "_LOCALSPEC_COMPLETE"
_MARK = "# completion of localspec"


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.option("--install", is_flag=True, help="Have this shell load it from its next start on.")
def command(shell: str, *, install: bool) -> int:
    """Print the script that completes commands, flags and names in SHELL: bash, zsh or fish."""
    root = click.get_current_context().find_root().command
    found = _SHELLS[shell](root, {}, "localspec", _VARIABLE)
    text = found.source_template % found.source_vars()
    if not install:
        write(text.strip() + "\n")
        return 0
    try:
        for line in _install(shell, text):
            tell(line)
    except OSError as error:
        what = error.filename or "the script"
        raise LocalspecError(
            f"cannot write {what}: {error.strerror}; without --install the script is printed, to "
            "be stored elsewhere"
        ) from None
    return 0


def _install(shell: str, text: str) -> list[str]:
    """Store the script where the shell finds it; returns what was done, one line each."""
    if shell == "fish":
        file = _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "localspec.fish"
        _write(file, text)
        return [f"written to {file}; a new fish completes localspec"]
    if shell == "zsh":
        start = Path(os.environ.get("ZDOTDIR") or paths.home()) / ".zshrc"
    else:
        start = paths.home() / ".bashrc"
    file = paths.make(paths.data_dir()) / f"completion.{shell}"
    _write(file, text)
    done = [f"written to {file}"]
    before = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if _MARK not in before:
        quoted = shlex.quote(str(file))
        with start.open("a", encoding="utf-8") as lines:
            end = "" if not before or before.endswith("\n") else "\n"
            lines.write(f"{end}[ -r {quoted} ] && . {quoted}  {_MARK}\n")
        done.append(f"one line was added to {start}, which loads it")
    return [*done, f"a new {shell} completes localspec"]


def _folder(variable: str, default: str) -> Path:
    named = os.environ.get(variable)
    return Path(named) if named else paths.home() / default


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    whole_file.replace(file, [text.strip().encode("utf-8"), b"\n"], mode=0o644)
