"""The archives that pip, pipx, uv and package indexes get, and a program installed from them."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import brief_doctor
import known_speed
import portable_wheel
import pytest
from bootstrap_steps import Failure
from llama_wheel import unpack

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
METADATA = f"localspec-{VERSION}.dist-info"

pytestmark = pytest.mark.slow


def build(target: str, source: Path, destination: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", destination]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (built,) = destination.iterdir()
    return built


def tracked(*folders: str) -> set[str]:
    command = ["git", "ls-files", "-z", "--", *folders]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip("not a git checkout")
    return set(filter(None, result.stdout.split("\0")))


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The folder of the source archive and of the wheel that an installer makes of it."""
    folder = tmp_path_factory.mktemp("archives")
    archive = build("sdist", ROOT, folder / "sdist")
    unpack(archive, folder / "unpacked")
    built = build("wheel", folder / "unpacked", folder / "wheel")
    (folder / "both").mkdir()
    for file in (archive, built):
        shutil.copy(file, folder / "both")
    return folder


@pytest.fixture
def wheel(archives):
    (archive,) = (archives / "wheel").iterdir()
    with zipfile.ZipFile(archive) as bundle:
        yield bundle


@pytest.fixture
def sdist(archives):
    """The source archive, unpacked."""
    return archives / "unpacked"


def test_the_wheel_carries_both_packages_whole_and_only_localspec_at_its_top(wheel):
    names = set(wheel.namelist())
    ours = {name for name in tracked("localspec", "tui") if (ROOT / name).is_file()}
    wanted = {f"localspec/{name}" if name.startswith("tui/") else name for name in ours}
    assert not wanted - names
    assert {name.split("/")[0] for name in names} == {"localspec", METADATA}


def test_the_wheel_carries_the_catalogue_the_embedded_pair_and_the_mark_of_its_types(wheel):
    names = wheel.namelist()
    assert wheel.read("localspec/models.toml") == (ROOT / "models.toml").read_bytes()
    assert "localspec/demo/MODEL_CARD.md" in names
    pair = [n for n in names if n.startswith("localspec/demo/") and n.endswith(".gguf")]
    assert len(pair) >= 2
    assert "localspec/py.typed" in names


def test_the_wheel_carries_what_builds_llama_cpp(wheel, sdist):
    for path in sorted((ROOT / "scripts").glob("llama_*")):
        packed = wheel.read(f"localspec/bootstrap/scripts/{path.name}")
        assert packed == path.read_bytes() == (sdist / "scripts" / path.name).read_bytes()


def test_the_wheel_starts_the_command_line(wheel):
    entry_points = wheel.read(f"{METADATA}/entry_points.txt").decode()
    assert "localspec = localspec.__main__:main" in entry_points.splitlines()


def test_the_description_begins_with_an_install_command_and_its_links_are_absolute(wheel):
    head, _, text = wheel.read(f"{METADATA}/METADATA").decode().partition("\n\n")
    assert "\nProject-URL: " in head
    assert text.startswith("```sh\npipx install localspec")
    links = re.findall(r"\]\(([^)\s]+)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    assert re.search(r"!\[[^]]+\]\(https://\S+\.svg\)", text)
    address = re.search(r"^Project-URL: Homepage, (\S+)$", head, re.MULTILINE)[1]
    for file in re.findall(rf"{re.escape(address)}/blob/main/([^)#]+)", text):
        assert (ROOT / file).exists(), file
    shown = re.findall(r"```(?:sh|shell)\n(.*?)```", text, re.DOTALL)
    assert not [block for block in shown if "scripts/localspec" in block]


def test_the_source_archive_installs_by_its_script_and_leaves_the_laboratory_out(sdist):
    for name in ("LICENSE", "CHANGELOG.md", "README.md", "models.toml", "requirements/dev.lock"):
        assert (sdist / name).is_file(), name
    assert (sdist / "scripts" / "localspec").stat().st_mode & 0o111
    shell = (ROOT / "scripts/environment.sh").read_text() + (ROOT / "scripts/localspec").read_text()
    for name in set(re.findall(r"scripts/([\w.]+\.(?:py|sh))", shell)):
        assert (sdist / "scripts" / name).is_file(), name
    for script in (sdist / "scripts").glob("*.py"):
        for name in re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.MULTILINE):
            beside = (ROOT / "scripts" / f"{name}.py").is_file()
            assert not beside or (sdist / "scripts" / f"{name}.py").is_file(), name
    left_out = {*ROOT.glob("scripts/bench*"), *ROOT.glob("scripts/train*"), ROOT / "tests"}
    assert left_out
    for path in left_out:
        assert not (sdist / path.relative_to(ROOT)).exists(), path


def test_two_builds_are_byte_identical(archives, sdist, tmp_path):
    again = tmp_path / "anders wo"
    before = os.umask(0o077)
    try:
        shutil.copytree(sdist, again, copy_function=shutil.copy)  # with the times of now
        for kind in ("sdist", "wheel"):
            (first,) = (archives / kind).iterdir()
            second = build(kind, again, tmp_path / kind)
            assert second.name == first.name
            assert second.read_bytes() == first.read_bytes(), kind
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "judge",
    [("twine", "check", "--strict"), ("check_wheel_contents",)],
    ids=lambda judge: judge[0],
)
def test_the_judges_of_archives_have_nothing_to_say(archives, judge):
    files = sorted((archives / "both").iterdir())
    if judge[0] == "check_wheel_contents":
        files = [file for file in files if file.suffix == ".whl"]
    done = subprocess.run(
        [sys.executable, "-m", *judge, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_table_is_valid():
    command = [sys.executable, "-m", "validate_pyproject", ROOT / "pyproject.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("word", "fits"), [("2_34", True), ("2_28", False)])
def test_a_wheel_for_all_processors_is_named_for_the_systems_that_auditwheel_names(
    tmp_path, monkeypatch, word, fits
):
    program = tmp_path / "auditwheel"
    said = f'x.whl is\nconsistent with the following platform\ntag: "manylinux_{word}_x86_64".'
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wheel = tmp_path / "llama_cpp_python-1-py3-none-manylinux_2_34_x86_64.whl"
    if fits:
        assert portable_wheel.judged(wheel) == "manylinux_2_34_x86_64"
    else:
        with pytest.raises(Failure, match="manylinux_2_28"):
            portable_wheel.judged(wheel)
    monkeypatch.setenv("PATH", "/nowhere")
    assert portable_wheel.judged(wheel) == ""


class Installation:
    """The wheel in an environment of its own, started from / as a user with an own home."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.environment = folder / "Umgebung für Tests"
        venv = [sys.executable, "-m", "venv", "--without-pip", self.environment]
        subprocess.run(venv, check=True, capture_output=True)
        # What the wheel depends on comes from the environment of these tests, with llama.cpp.
        lent = folder / "lent"
        lent.mkdir()
        for path in Path(sysconfig.get_path("platlib")).iterdir():
            if "localspec" not in path.name and path.suffix != ".pth":
                (lent / path.name).symlink_to(path)
        brief_doctor.write(lent)
        (packages,) = (self.environment / "lib").glob("python*/site-packages")
        (packages / "lent.pth").write_text(f"{lent}\n")
        self.packages = packages
        self.environ = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("LOCALSPEC", "PYTHON", "XDG"))
            },
            "HOME": str(folder / "home"),
            "LOCALSPEC_OFFLINE": "1",
            "LOCALSPEC_KERNELS": "llama",  # compiling ours takes a minute
        }
        (folder / "home").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", self.environ["HOME"])
            for name in ("LOCALSPEC_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
                patch.delenv(name, raising=False)
            known_speed.save()
        python = self.environment / "bin" / "python"
        # Installing pip there takes longer than all that it does.
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", archive]
        done = subprocess.run(pip, capture_output=True, text=True, env=self.environ, check=False)
        assert done.returncode == 0, done.stderr

    def __call__(self, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [self.environment / "bin" / "localspec", *arguments],
            cwd="/",
            env=self.environ,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(archives, tmp_path_factory):
    (archive,) = (archives / "wheel").iterdir()
    return Installation(archive, tmp_path_factory.mktemp("installed"))


def test_an_installation_adds_one_package_to_the_environment(installed):
    names = {path.name for path in installed.packages.iterdir()}
    assert "tui" not in names
    assert {"localspec", METADATA} <= names


def test_an_installation_answers_from_anywhere(installed):
    reply = json.loads(installed("run", "--json", "-t", "0", "-n", "16", "What is 2 + 2?"))
    assert reply["text"].strip()
    assert str(installed.packages) in reply["model"]["target"]
    said = installed("chat", "-n", "16", text="Hello!\n")
    assert said.strip()


def test_an_installation_knows_its_catalogue_and_finds_itself_sound(installed):
    assert "qwen3-4b" in installed("models")
    findings = json.loads(installed("doctor", "--json"))
    found = findings["findings"] if isinstance(findings, dict) else findings
    assert [one for one in found if one["status"] == "broken"] == []


def test_an_installation_has_the_interface_and_no_other_tui_can_take_its_place(installed, tmp_path):
    (tmp_path / "tui").mkdir()
    (tmp_path / "tui" / "__init__.py").write_text("raise SystemExit('another tui')")
    code = (
        "from localspec.cli import interface; print(interface.module('in_terminal').__file__); "
        "print(interface.module('serve_view').__file__, interface.module('in_terminal').__file__)"
    )
    done = subprocess.run(
        [installed.environment / "bin" / "python", "-c", code],
        cwd=tmp_path,
        env=installed.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for file in done.stdout.split("\n")[0:1]:
        assert Path(file).is_relative_to(installed.packages / "localspec" / "tui")


def test_an_installation_builds_a_llama_cpp_of_its_own_and_uses_it(installed, tmp_path):
    """The build is there already: its wheel is the one that these tests run with."""
    import llama_backend
    import llama_wheel

    environ = {**installed.environ, "LOCALSPEC_BACKEND": "cpu", "LOCALSPEC_HOME": str(tmp_path)}
    machine = llama_backend.this_machine()
    source = llama_wheel.read_source(ROOT / "requirements" / "llama.lock")
    options = llama_backend.OPTIONS_FILE.read_text()
    key = llama_wheel.wheel_key(source, "cpu", machine, environ, options)
    wheel = tmp_path / "llama_cpp_python-0-py3-none-any.whl"
    libraries = Path(sysconfig.get_path("platlib")) / "llama_cpp" / "lib"
    with zipfile.ZipFile(wheel, "w") as bundle:
        for path in libraries.iterdir():
            if path.is_file():
                bundle.write(path, f"llama_cpp/lib/{path.name}")
    llama_wheel.keep_wheel(wheel, tmp_path / "cache" / "llama-cpp-python" / key)

    def run(*arguments):
        done = subprocess.run(
            [installed.environment / "bin" / "localspec", *arguments],
            cwd="/",
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    said = run("build-llama").stderr
    assert f"used from now on: {tmp_path / 'cache'}" in said
    assert run("run", "--json", "-n", "8", "Hello").stdout.strip()
    code = "from localspec.doctor import build; print(next(build.check()).text)"
    python = [installed.environment / "bin" / "python", "-c", code]
    finding = subprocess.run(
        python, cwd="/", env=environ, capture_output=True, text=True, check=False
    )
    assert "built for this machine by `localspec build-llama`" in finding.stdout, finding.stderr
    assert "is used again" in run("build-llama", "--remove").stderr
