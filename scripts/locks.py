"""Writes requirements/*.lock, or checks that they were made from today's pyproject.toml.

uv resolves once for every platform and Python; pip installs from the result and checks each hash.
No lock names an index, so that pip asks whichever one the machine is configured for.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
ENGINE = "llama-cpp-python"

# In this order: the widest set is resolved first and holds the pins of the narrower ones.
LOCKS: dict[str, list[str]] = {
    "dev": ["pyproject.toml", "requirements/checkout.in", "--group", "dev"],
    "runtime": ["pyproject.toml", "requirements/checkout.in", "-c", "requirements/dev.lock"],
    "build": ["requirements/build.in"],
    # Separate from the others: it is the one package that is built here, from its source archive.
    "llama": ["-", "--no-deps", "--no-binary", ENGINE],
}


def inputs_digest(root: Path = ROOT) -> str:
    """SHA-256 of everything that the resolution reads, and nothing else of pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    inputs = {
        "requires-python": project["project"]["requires-python"],
        "dependencies": project["project"]["dependencies"],
        "dev": project["dependency-groups"]["dev"],
        "files": {
            path.name: path.read_text(encoding="utf-8")
            for path in sorted((root / "requirements").glob("*.in"))
        },
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def digest_line(root: Path = ROOT) -> str:
    return f"# inputs: sha256:{inputs_digest(root)}"


def stale_locks(root: Path = ROOT) -> list[str]:
    """Names of the locks that are missing or were made from other inputs."""
    expected = digest_line(root)
    stale = []
    for name in LOCKS:
        path = root / "requirements" / f"{name}.lock"
        if not path.is_file() or expected not in path.read_text(encoding="utf-8").splitlines()[:5]:
            stale.append(path.name)
    return stale


def engine_requirement() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dependencies: list[str] = project["project"]["dependencies"]
    return next(line for line in dependencies if line.startswith(ENGINE))


def compile_lock(uv: str, name: str, *, upgrade: bool) -> None:
    path = REQUIREMENTS / f"{name}.lock"
    command = [uv, "pip", "compile", *LOCKS[name], "--quiet", "--universal"]
    command += ["--python-version", "3.11", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "--no-emit-index-url", "--no-config"]
    if name != "llama":
        # Wheels only: bootstrap.py installs with --only-binary, so that nothing else gets built.
        command += ["--only-binary", ":all:", "--no-binary", ENGINE]
        command += ["--no-emit-package", ENGINE]
    if upgrade:
        command.append("--upgrade")
    output = path.with_suffix(".lock.new")
    if path.is_file():
        shutil.copyfile(path, output)  # uv keeps the pins it finds in the file it writes
    subprocess.run(
        [*command, "-o", str(output)],
        cwd=ROOT,
        check=True,
        input=engine_requirement() if name == "llama" else None,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    head = f"# Made by scripts/lock for Python 3.11 to 3.14, any platform.\n{digest_line()}\n\n"
    pins = "".join(
        line
        for line in output.read_text(encoding="utf-8").splitlines(keepends=True)
        if not line.startswith("#")
    )
    output.write_text(head + pins, encoding="utf-8")
    output.replace(path)


def install_uv(folder: Path) -> str:
    print("scripts/lock: uv is not on PATH, installing it for this run", file=sys.stderr)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    return str(folder / "bin" / "uv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only check that the locks are current"
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="move every pin to the newest release"
    )
    options = parser.parse_args()
    if options.check:
        stale = stale_locks()
        if stale:
            print(f"{', '.join(stale)}: not made from today's pyproject.toml; run scripts/lock")
        return 1 if stale else 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            uv = shutil.which("uv") or install_uv(Path(folder))
            for name in LOCKS:
                print(f"scripts/lock: {name}", file=sys.stderr)
                compile_lock(uv, name, upgrade=options.upgrade)
    except subprocess.CalledProcessError as error:
        print(f"scripts/lock: {Path(error.cmd[0]).name} failed, see above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
