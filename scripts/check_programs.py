"""Tries programs of others with `localspec serve demo`, and prints the table of docs/programs.md.

    scripts/check_programs                        all of them
    scripts/check_programs "openai (npm)" Codex   some

Each is installed from PyPI or npm, in its newest version, into an environment of its own below the
folder, and does one task (`programs.toml`) with a server on a free port: the embedded pair with
a tiny embedding model and a tiny reranker, or scripted replies (`scripted_server.py`) where a file
is edited. Exit code 1 if a task failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.shared.servers import answers, free_port, own_environment, started

from localspec.core.files.paths import cache_dir

_ROOT = Path(__file__).resolve().parents[1]
_INSTALL_S, _TASK_S = 900, 180
_NEEDED = ("PATH", "LANG", "SSL_CERT_FILE", "TMPDIR", "XDG_CONFIG_DIRS")
_NODE_CERTIFICATES = "NODE_EXTRA_CA_CERTS"


@dataclass(frozen=True, slots=True)
class Program:
    """One program and its task."""

    name: str
    packages: tuple[str, ...]
    """The first is that whose version is shown; npm's where ``node``."""
    done: str
    """What the task does, for the table."""
    code: str = ""
    """The task, for Python or Node."""
    command: tuple[str, ...] = ()
    """The task as a command of the package, instead."""
    node: bool = False
    edits: bool = False
    """Whether it edits ``notes.txt``, with scripted replies."""
    environ: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Files that it reads."""


_GIVEN = tomllib.loads((_ROOT / "scripts" / "programs.toml").read_text(encoding="utf-8"))


def _program(given: dict[str, Any]) -> Program:
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    head = _GIVEN["head"] if "code" in given and not given.get("node") else ""
    return Program(**given | lists | {"code": head + given.get("code", "")})


PROGRAMS = tuple(map(_program, _GIVEN["program"]))


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a task."""

    program: Program
    version: str
    problem: str
    """"" where all went well."""

    def row(self) -> str:
        """A row of the table."""
        result = "ok" if not self.problem else f"failed: {self.problem}"
        cells = (self.program.name, self.version, self.program.done, result)
        return f"| {' | '.join(cell.replace('|', ' ') for cell in cells)} |"


class Installed:
    """A program in an environment of its own."""

    def __init__(self, program: Program, folder: Path) -> None:
        """Install it, unless it is there.

        Raises:
            subprocess.SubprocessError: that failed, or took too long.
        """
        self.program = program
        name = "-".join("".join(c if c.isalnum() else " " for c in program.name).split()).lower()
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        done = self.folder / "installed"
        if not done.exists():
            self._install()
            done.touch()

    def _install(self) -> None:
        packages = self.program.packages
        if self.program.node:
            (self.folder / "package.json").write_text('{"private": true}', encoding="utf-8")
            self._run(["npm", "install", "--no-audit", "--no-fund", "--silent", *packages])
            return
        self._run([shutil.which("python3") or sys.executable, "-m", "venv", str(self.folder)])
        self._run([self._python, "-m", "pip", "install", "-q", *packages])

    def _run(self, command: Sequence[str]) -> None:
        subprocess.run(
            command, cwd=self.folder, check=True, capture_output=True, timeout=_INSTALL_S
        )

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def version(self) -> str:
        """The version of its first package."""
        package = self.program.packages[0]
        if self.program.node:
            path = self.folder / "node_modules" / package / "package.json"
            return str(json.loads(path.read_text(encoding="utf-8"))["version"])
        ask = f"from importlib.metadata import version; print(version({package!r}))"
        done = subprocess.run([self._python, "-c", ask], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def workplace(self) -> Path:
        """An empty folder, where the task begins."""
        place = self.folder / "work"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "notes.txt").write_text("one\n", encoding="utf-8")
        return place

    def task(self, url: str, place: Path) -> str:
        """Do the task; what went wrong, or "".

        The environment has nothing of the user's: no keys, no settings, another home.
        """
        program = self.program
        environ = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        environ |= {"HOME": str(place), "URL": url, "TERM": "dumb", "NO_COLOR": "1"}
        if _NODE_CERTIFICATES in os.environ:
            environ[_NODE_CERTIFICATES] = os.environ[_NODE_CERTIFICATES]
        for name, value in program.environ.items():
            environ[name] = value.replace("$URL", url).replace("$HERE", str(place))
        for name in program.files:
            text = _GIVEN["files"][name].replace("$URL", url)
            (place / name).write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [part.replace("$URL", url) for part in self._command()],
                cwd=place,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {_TASK_S} s"
        said = f"{done.stdout}\n{done.stderr}"
        (self.folder / "task.log").write_text(said, encoding="utf-8")
        if program.edits:
            text = (place / "notes.txt").read_text(encoding="utf-8")
            return "" if text.strip() == "two" else f"the file is unchanged: {_last(said)}"
        return "" if done.returncode == 0 else f"exit code {done.returncode}: {_last(said)}"

    def _command(self) -> list[str]:
        program = self.program
        if program.command:
            inside = "node_modules/.bin" if program.node else "bin"
            return [str(self.folder / inside / program.command[0]), *program.command[1:]]
        if not program.node:
            return [self._python, "-c", program.code]
        task = self.folder / "task.mjs"  # beside node_modules, where imports are looked for
        task.write_text(program.code, encoding="utf-8")
        return ["node", str(task)]


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "nothing was said"


@contextlib.contextmanager
def serving(command: Sequence[str], log: Path) -> Iterator[str]:
    """The address of a server that runs meanwhile; ``{port}`` is replaced."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    words = [part.replace("{port}", str(port)) for part in command]
    ready = lambda _: answers(url, "/v1/models")  # noqa: E731
    with started(words, ready, own_environment(), log):
        yield url


def real_server(folder: Path) -> list[str]:
    """The command of the server of the embedded pair, with tiny models for vectors and ranks."""
    sys.path.insert(0, str(_ROOT / "tests" / "helpers"))
    import gguf_tools

    embedder, reranker = folder / "embedder.gguf", folder / "reranker.gguf"
    gguf_tools.write_embedder(embedder)
    gguf_tools.write_embedder(reranker, pooling=4)
    return [
        *(sys.executable, "-P", "-m", "localspec", "serve", "demo", "--port", "{port}"),
        *("--embedding", str(embedder), "--reranker", str(reranker), "--no-pull"),
    ]


def attempt(program: Program, folder: Path, url: str) -> Tried:
    """Install a program and have it do its task."""
    try:
        installed = Installed(program, folder)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or b""
        return Tried(program, "—", f"not installed: {_last(said.decode(errors='replace'))}")
    place = installed.workplace()
    if not program.edits:
        return Tried(program, installed.version, installed.task(url, place))
    script = str(_ROOT / "scripts" / "scripted_server.py")
    command = [sys.executable, script, "{port}", str(place)]
    with serving(command, installed.folder / "server.log") as scripted:
        return Tried(program, installed.version, installed.task(scripted, place))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [program.name for program in PROGRAMS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--folder", type=Path, default=cache_dir() / "programs")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in names]:
        parser.error(f"no such program: {', '.join(unknown)}; there are: {', '.join(names)}")
    chosen = [program for program in PROGRAMS if not asked.names or program.name in asked.names]
    asked.folder.mkdir(parents=True, exist_ok=True)
    with serving(real_server(asked.folder), asked.folder / "server.log") as url:
        print("| program | version | did | result |\n|---|---|---|---|")
        failed = False
        for program in chosen:
            tried = attempt(program, asked.folder, url)
            failed = failed or bool(tried.problem)
            print(tried.row(), flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
