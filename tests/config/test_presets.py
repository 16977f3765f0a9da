"""Presets: named sets of a system prompt and settings in config.toml."""

import json

import click
import pytest

from localspec import cli
from localspec.cli import flags
from localspec.config import allow_tools, presets
from localspec.config import settings as config_settings
from localspec.core.errors import UsageError
from localspec.core.files import paths

CALM = """\
temperature = 0.9
top_k = 7

[presets.calm]
system = "Be brief."
temperature = 0
draft_max = 3
"""


def configured(text=CALM):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    config_settings.settings.cache_clear()


@click.command()
@flags.preset_flag
@flags.model_flags
@flags.sampling_flags
def command(**values):
    asked = flags.sort_flags(None, values)
    preset = flags.chosen_preset()
    click.echo(
        json.dumps(
            [
                asked.sampling.temperature,
                asked.sampling.top_k,
                asked.options.draft_max,
                asked.options.model,
                preset.system if preset else None,
            ]
        )
    )


def asked(capsys, *words):
    command.main(list(words), standalone_mode=False)
    return json.loads(capsys.readouterr().out)


def test_a_preset_may_name_tools_in_the_form_of_allow_tools():
    configured('[presets.git]\ntools = "git/*, wiki/search"\n[presets.alone]\ntools = "none"\n')
    found = presets.presets()
    assert allow_tools.offered(found["git"].values) == ("git/*", "wiki/search")
    assert allow_tools.offered(found["alone"].values) == ()
    assert allow_tools.offered({}) is allow_tools.offered({"tools": "all"}) is None
    configured('[presets.git]\ntools = "git"\n')
    with pytest.raises(UsageError, match=r"'git' names no tool.*tools of preset git"):
        presets.presets()


def test_a_preset_comes_between_flags_and_the_file(capsys, monkeypatch):
    configured()
    assert asked(capsys) == [0.9, 7, None, "demo", None]
    assert asked(capsys, "--preset", "calm") == [0, 7, 3, "demo", "Be brief."]
    assert asked(capsys, "-t", "0.5", "--preset", "calm") == [0.5, 7, 3, "demo", "Be brief."]
    monkeypatch.setenv("LOCALSPEC_TEMPERATURE", "0.4")
    assert asked(capsys, "--preset", "calm")[0] == 0.4
    monkeypatch.setenv("LOCALSPEC_PRESET", "calm")
    assert asked(capsys)[2] == 3


def test_a_preset_may_name_the_model(capsys):
    configured('model = "usual"\n[presets.big]\nmodel = "big"\n')
    assert asked(capsys)[3] == "usual"
    assert asked(capsys, "--preset", "big")[3] == "big"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presets = 1", "must be tables"),
        ("[presets]\nx = 1", "x must be a table"),
        ("[presets.x]\ntemprature = 1", "did you mean temperature"),
        ("[presets.x]\ntemperature = 'hot'", "temperature must be a number"),
        ("[presets.x]\ntop_k = 1.5", "top_k must be a whole number"),
        ("[presets.x]\ntop_k = true", "top_k must be a whole number"),
        ("[presets.x]\ndraft_max = 'many'", "draft_max must be a whole number or auto"),
        ("[presets.x]\nsystem = 1", "system must be a text"),
    ],
)
def test_a_wrong_preset_is_named_with_its_place(text, message):
    configured(text)
    with pytest.raises(UsageError, match=message):
        presets.presets()


def test_a_preset_that_is_not_there_names_those_that_are(capfd):
    configured()
    assert cli.call(["run", "--preset", "clam", "hi"]) == 2
    assert capfd.readouterr().err == "localspec: no preset called 'clam'; known are calm\n"


def test_auto_is_a_value_of_a_preset():
    configured("[presets.x]\ndraft_max = 'auto'\n")
    assert presets.called("x").values == {"draft_max": "auto"}


def test_run_answers_with_the_presets_system_message(capfd, monkeypatch):
    configured()
    seen = []
    from localspec.runtime import Runtime

    submit = Runtime.submit

    def watched(self, request, interrupt=None):
        seen.append((request.messages, request.sampling.temperature))
        return submit(self, request, interrupt)

    monkeypatch.setattr(Runtime, "submit", watched)
    assert cli.call(["run", "--preset", "calm", "-n", "2", "hello"]) == 0
    ((messages, temperature),) = seen
    assert [m.content for m in messages] == ["Be brief.", "hello"]
    assert temperature == 0
