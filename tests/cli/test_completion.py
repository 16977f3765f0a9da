"""Completion by the shell, and flags of other programs."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from localspec import cli
from localspec.chats.store import ChatStore
from localspec.chats.values import started
from localspec.cli import foreign
from localspec.cli import run as run_command
from localspec.cli import serve as serve_command
from localspec.config import settings as config_settings
from localspec.core.files import paths, whole_file


def completed(*words: str) -> list[str]:
    """The completions of the last word."""
    shell = ShellComplete(cli.cli, {}, "localspec", "_LOCALSPEC_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture(autouse=True)
def _fresh_settings():
    config_settings.settings.cache_clear()
    yield
    config_settings.settings.cache_clear()


def test_models_choices_presets_and_chats_are_completed():
    assert "demo" in completed("chat", "de")
    assert "demo" in completed("run", "-m", "")
    assert "none" in completed("run", "-d", "no")
    assert completed("bench", "--verifier", "m") == ["match"]
    assert completed("run", "--drafter", "model,lookup,su") == ["model,lookup,suffix"]
    folder = paths.make(paths.config_dir())
    (folder / "config.toml").write_text("[presets.calm]\ntemperature = 0.1\n")
    config_settings.settings.cache_clear()
    assert completed("run", "--preset", "") == ["calm"]
    assert completed("chats", "show", "") == []
    info = started()
    with ChatStore() as store:
        store.put([info], [])
    assert completed("chats", "show", "") == completed("chat", "--resume", "") == [info.id[:8]]


def test_completing_names_imports_neither_numpy_nor_the_hub():
    probe = (
        "import sys; from click.shell_completion import ShellComplete; from localspec import cli; "
        "shell = ShellComplete(cli.cli, {}, 'localspec', 'X'); "
        "assert shell.get_completions(['run', '-m'], 'de'); "
        "sys.exit(str({'numpy', 'llama_cpp', 'huggingface_hub', 'textual'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False)
    assert done.stderr.decode().strip() == "set()"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_once(shell, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    start = tmp_path / f".{shell}rc"
    start.write_text("alias a=b")
    for _ in range(2):
        assert cli.call(["completion", shell, "--install"]) == 0
    file = Path(capsys.readouterr().err.split("written to ")[1].split("\n")[0].split(";")[0])
    assert "_LOCALSPEC_COMPLETE" in file.read_text()
    if shell == "fish":
        assert start.read_text() == "alias a=b"
        assert file == tmp_path / ".config/fish/completions/localspec.fish"
        return
    first, line = start.read_text().splitlines()
    assert first == "alias a=b"
    assert str(file) in line


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_script():
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "completion", "bash"], capture_output=True, check=True
    )
    checked = subprocess.run(["bash", "-n"], input=done.stdout, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("--n-predict 5 hi", "--max-tokens 5 hi"),
        ("--ctx-size=512 hi", "--ctx=512 hi"),
        ("-p hi -ngl 3 -c 512", "hi --gpu-layers 3 --ctx 512"),
        ("--stop -ngl hi", "--stop -ngl hi"),
        ("-- -ngl", "-- -ngl"),
        ("--nonsense -t 1", "--nonsense -t 1"),
        ("-np 2 --max-model-len 512", "--jobs 2 --ctx 512"),
    ],
)
def test_flags_of_other_programs_are_taken_as_ours(typed, taken):
    assert foreign.ours(run_command.command, typed.split()) == taken.split()


def test_a_flag_that_a_command_has_keeps_its_meaning():
    from localspec.cli import chat

    assert foreign.ours(chat.command, ["-c", "-ngl", "0"]) == ["-c", "--gpu-layers", "0"]


def test_every_foreign_flag_leads_to_one_of_ours():
    commands = (run_command.command, serve_command.command)
    own = {name for command in commands for p in command.params for name in p.opts}
    assert set(foreign.NAMES.values()) <= own


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "-t", "8"], "-t is the temperature 8; threads are --threads 8"),
        (["run", "-t", "0.8"], ""),
        (["run", "-t", "2"], ""),
        (["run", "-s", "42"], "-s is the system message 42; a seed is --seed 42"),
        (["run", "-s", "Be brief."], ""),
        (["run", "--stop", "-t", "8"], ""),
        (["run", "--", "-t", "8"], ""),
        (["run", "--draft", "16"], "the length of drafts is --draft-max 16"),
        (["run", "-c", "4096"], ""),
        (["chat", "-c", "4096"], "-c continues the last chat; a context is --ctx 4096"),
        (["chat", "-c"], ""),
        (["chats", "export", "--format", "json"], ""),
    ],
)
def test_a_value_that_looks_otherwise_meant_is_told_what_the_flag_means(capsys, args, told):
    name, *rest = args
    command = cli.cli.get_command(None, name)
    foreign.advise(command, foreign.ours(command, rest))
    said = capsys.readouterr().err
    assert (told in said) if told else said == ""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "hi", "-no-cnv"], "`run` answers once"),
        (["run", "hi", "--format", "json"], "--json-object"),
        (["run", "hi", "--keepalive", "5m"], "serve --keep-alive"),
        (["ls"], "`localspec models`"),
        (["stop", "qwen3-4b"], "--keep-alive"),
        (["info", "demo"], "`localspec show NAME`"),
        (["version"], "`localspec --version`"),
    ],
)
def test_commands_and_flags_of_other_programs_are_told_what_is_here(capsys, args, told):
    assert cli.call(args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_no_command_of_other_programs_is_one_of_ours():
    assert not set(foreign.COMMANDS) & set(cli.COMMANDS)


def test_a_shell_that_completes_gets_no_advice(capsys):
    assert "--threads" in completed("run", "-t", "8", "--format", "json", "--thr")
    assert capsys.readouterr().err == ""


def test_completion_that_cannot_be_written_says_so(monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(whole_file, "replace", full)
    assert cli.call(["completion", "bash", "--install"]) == 1
    assert "cannot write the script: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_without_a_home_installing_the_script_is_refused(shell, monkeypatch, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cli.call(["completion", shell, "--install"]) == 2
    assert "there is no home folder; set HOME" in capsys.readouterr().err
