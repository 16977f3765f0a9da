"""Settings by flag, variable and file, and how a wrong one is refused."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
from command_runs import one_line, pair
from conftest import Files

from localspec import cli
from localspec.cli import flags
from localspec.config import settings as config


def test_the_persons_own_catalogue_adds_pairs(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'[mine]\nabout = "my pair"\ntarget = {{ file = "{files.target}" }}\n')
    assert cli.call(["models"]) == 0
    assert "my pair" in capfd.readouterr().out
    assert cli.call(["run", "x", "-m", "mine", "-n", "3"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mine", "not valid TOML"),
        ('[mine]\nabout = "x"', "needs a 'target'"),
        ('mine = "x"', "must be a table"),
        ("[mine]\ntarget = { file = 3 }", "'file'"),
    ],
)
def test_a_damaged_catalogue_is_named(
    text: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    assert cli.call(["models"]) == 2
    line = one_line(capfd.readouterr().err)
    assert words in line
    assert str(own) in line


def test_settings_come_from_flag_then_variable_then_file(
    files: Files, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'model = "{files.target}"\nmax_tokens = 5\nseed = 77\n')

    def ran(*flags: str) -> tuple[int, int]:
        assert cli.call(["run", "x", "-t", "0", "--json", *flags]) == 0
        found = json.loads(capfd.readouterr().out)
        return found["seed"], len(found["tokens"])

    assert ran() == (77, 5)
    monkeypatch.setenv("LOCALSPEC_MAX_TOKENS", "4")
    assert ran() == (77, 4)
    assert ran("-n", "3") == (77, 3)
    own.write_text("model = [")
    from localspec.config import settings as config

    config.settings.cache_clear()
    assert cli.call(["run", "x"]) == 2
    assert "config.toml" in one_line(capfd.readouterr().err)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("seed = [1]", "a whole number"),
        ('temperature = "hot"', "a number"),
        ("temperature = true", "a number"),
        ("top_k = 1.5", "a whole number"),
        ("require_draft = 7", "true or false"),
        ("draft = 3", "a text"),
        ("draft_max = 2.7", "a whole number or auto, not 2.7"),
        ("seed = 1.0", "a whole number or auto, not 1.0"),
        ("model = {a = 1}", "a text"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named_with_its_file(
    line: str, wanted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(line)
    assert cli.call(["run", "x"]) == 2
    said = one_line(capfd.readouterr().err)
    name = line.split(maxsplit=1)[0]
    assert f"{name} must be {wanted}" in said
    assert said.endswith(f"(set by {name} in {own})")
    assert said.count("set by") == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("LOCALSPEC_TEMPERATURE", "hot", "temperature must be a number, not 'hot'"),
        ("LOCALSPEC_TOP_P", "7", "top_p must be between"),
        ("LOCALSPEC_CTX", "-5", "ctx must be"),
        ("LOCALSPEC_MAX_TOKENS", "0", "max_tokens must be"),
    ],
)
def test_a_value_from_a_variable_that_cannot_be_meant_is_refused_by_the_variables_name(
    name: str,
    value: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert cli.call(["run", "x"]) == 2
    said = one_line(capfd.readouterr().err)
    assert name in said
    assert told in said


def test_a_value_on_the_command_line_is_refused_without_naming_a_variable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_TOP_P", "7")
    assert cli.call(["run", "x", "--top-p", "8"]) == 2
    assert "LOCALSPEC" not in one_line(capfd.readouterr().err)
    assert cli.call(["run", "x", "--top-p", "0.9", "-t", "hot"]) == 2
    assert one_line(capfd.readouterr().err).endswith("temperature must be a number, not 'hot'")


def test_an_unknown_name_in_the_settings_is_told_with_the_one_that_may_be_meant(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("temprature = 0.5\n")
    config.settings.cache_clear()
    assert cli.call(["run", "x", *pair(files), "-n", "1"]) == 0
    said = one_line(capfd.readouterr().err)
    assert "unknown setting 'temprature'" in said
    assert "did you mean 'temperature'?" in said


def test_every_flag_that_reads_the_settings_is_a_known_name() -> None:
    for name in cli.COMMANDS:
        command = importlib.import_module(f"localspec.cli.{name.replace('-', '_')}").command
        for param in command.params:
            if (param.envvar or "") == f"LOCALSPEC_{(param.name or '').upper()}":
                assert param.name == "preset" or param.name in config.KNOWN


def test_the_name_that_others_have_for_the_temperature_is_taken(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["run", "x", *pair(files), "-n", "1", "--temp", "0"]) == 0
    assert cli.call(["run", "x", "--temp", "-1"]) == 2
    assert "temperature must be" in capfd.readouterr().err


def test_limits_of_a_setting_are_shown_whole(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["run", "x", "--seed", str(10**20)]) == 2
    assert f"and {2**64 - 1}, not {10**20}" in one_line(capfd.readouterr().err)


def test_a_model_before_the_prompt_is_told_where_it_goes(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.call(["run", "qwen3-4b", "tell", "me"]) == 2
    said = one_line(capfd.readouterr().err)
    assert "The model goes with -m: localspec run -m qwen3-4b 'tell me'" in said


def test_without_a_command_the_help_keeps_its_lines(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call([]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: localspec")
    assert any(line.split()[:1] == ["doctor"] for line in lines)


def test_a_model_can_be_set_by_variable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_MODEL", "nowhere.gguf")
    assert cli.call(["run", "x"]) == 3
    assert "nowhere.gguf" in one_line(capfd.readouterr().err)


def test_a_home_of_a_user_who_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", "~no-such-user")
    assert cli.call(["run", "x"]) == 2
    assert "no such user" in one_line(capfd.readouterr().err)


def test_a_path_in_the_home_of_a_user_who_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["show", "~no-such-user/x.gguf"]) == 3
    one_line(capfd.readouterr().err)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix")
def test_a_named_pipe_is_not_waited_for(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipe = str(tmp_path / "pipe.gguf")
    os.mkfifo(pipe)
    for args in (["show", pipe], ["run", "x", "-m", pipe], ["run", "x", *pair(files), "-d", pipe]):
        assert cli.call(args) == 7
        assert "pipe" in one_line(capfd.readouterr().err)


def write_settings(text: str) -> None:
    own = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "config.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)
    config.settings.cache_clear()


def jobs_of(*args: str) -> int:
    """How many replies at a time a command that would rather have 4 is to have."""

    @click.command()
    @flags.model_flags
    @flags.sampling_flags
    def command(**given: Any) -> int:
        return flags.with_jobs(flags.sort_flags("demo", given).options, 4).parallel

    found: int = command.main([*args], standalone_mode=False)
    return found


def test_a_number_of_jobs_in_the_settings_holds_also_where_it_is_the_default() -> None:
    assert jobs_of() == 4
    write_settings("jobs = 1\n")
    assert jobs_of() == 1
    assert jobs_of("--jobs", "3") == 3


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("chat", "what fits"),
        ("serve", "what fits"),
        ("run", "1; --parallel: up to 4"),
        ("verify", "128"),
        ("verify", "0, 0.7 and 1"),
        ("bench", "96"),
        ("bench", "0 and 1"),
    ],
)
def test_help_shows_what_a_command_does_where_nothing_is_set(
    name: str, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call([name, "--help"]) == 0
    assert f"[default: {shown}]" in " ".join(capfd.readouterr().out.split())


def test_help_shows_what_the_settings_say_in_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    write_settings("jobs = 7\n")
    assert cli.call(["serve", "--help"]) == 0
    assert "easily. [default: 7]" in " ".join(capfd.readouterr().out.split())
