"""models.toml: what is shipped, what a user adds, and lines for what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import own_catalogue
from hypothesis import given
from hypothesis import strategies as st
from locked import lock

from localspec import cli
from localspec.core.errors import UsageError
from localspec.core.files import paths
from localspec.loading import machine_speed
from localspec.models.catalog.catalog import catalog, shipped
from localspec.models.catalog.pair import KINDS, HubFile
from localspec.models.catalog.toml_file import Document
from localspec.models.memory import fit
from localspec.models.memory.machine import Memory

ROOT = Path(__file__).parent.parent.parent


def test_a_catalogue_that_may_not_be_looked_at_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock(monkeypatch, paths.config_dir())
    with pytest.raises(UsageError, match=r"cannot read .*models\.toml: Permission denied"):
        catalog()


def test_the_shipped_catalogue_is_sound() -> None:
    pairs = catalog()
    assert next(iter(pairs)) == "demo"
    assert len(pairs) >= 20
    for pair in pairs.values():
        assert pair.about
        assert len(pair.about) <= 35
        assert pair.drafting in KINDS
        assert (pair.draft is None) == (pair.drafting in {"mtp-embedded", "ngram"})
        for file in (pair.target, pair.draft):
            if isinstance(file, HubFile) and file.revision is not None:
                assert file.sha256 is not None
                assert file.n_bytes is not None
    one_file: dict[str, set[object]] = {}
    for pair in pairs.values():
        for file in (pair.target, pair.draft):
            if isinstance(file, HubFile):
                one_file.setdefault(f"{file.repo}/{file.file}", set()).add(file)
    assert all(len(found) == 1 for found in one_file.values())  # one file, one pin


def test_models_reads_well_in_80_columns(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["models"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "FIT", "TOK/S", "HERE", "FOR"]
    assert lines[0].index("FOR") < 60  # a terminal cuts what is behind its width
    assert len(lines) == len(catalog()) + 1


def test_models_lists_expected_speeds_and_the_best_pair_first(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = {"1": 5e-11, "4": 9e-11, "8": 1.6e-10}
    said = {"host": {"Q4_0": curve, "Q4_K": curve}, "gpu": {}, "disturbed": False}
    monkeypatch.setattr(machine_speed, "ask", lambda *_: said)
    ample = Memory((), 16 * 10**9, 16 * 10**9)
    monkeypatch.setattr(fit, "memory_now", lambda: ample)
    assert cli.call(["models"]) == 0
    first, *rest = capfd.readouterr().out.splitlines()[1:]
    assert "best for this machine: " in first
    assert not any("best for this machine" in line for line in rest)
    large = next(line for line in rest if line.startswith("qwen3-14b"))
    assert "2.2 → " in large
    assert cli.call(["models", "--json"]) == 0
    pairs = {pair["name"]: pair for pair in json.loads(capfd.readouterr().out)}
    assert pairs["qwen3-14b"]["expected_plain"] == 2.22
    assert pairs["qwen3-14b"]["expected_drafted"] > 2.22
    assert pairs["llama3.3-70b"]["expected_plain"] is None  # too big here
    assert [name for name, pair in pairs.items() if pair["best"]] == [first.split()[0]]


def test_show_refuses_a_draft_that_is_not_here_beside_a_pair_that_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.call(["show", "demo", "--draft", "nothing"]) == 3
    assert "no model called 'nothing'" in capfd.readouterr().err


def test_show_tells_what_a_pair_is_before_it_is_here(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["show", "qwen3-8b"]) == 0
    out = capfd.readouterr().out
    for words in ("Qwen/Qwen3-8B-GGUF", "5.0 GB", "apache-2.0", "localspec pull qwen3-8b"):
        assert words in out
    assert cli.call(["show", "qwen3.5-9b"]) == 0
    assert "in the target's file: a layer for multi-token prediction" in capfd.readouterr().out
    for name in catalog():
        assert cli.call(["show", name]) in {0, 3, 7}  # the demo may be missing in a checkout
        out = capfd.readouterr().out
        assert all(len(line) <= 80 for line in out.splitlines() if " : " not in line), out


def test_show_names_the_file_of_a_pair_that_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.gguf"
    own_catalogue(f'[mine]\ntarget = {{ file = "{gone}" }}\ndraft = {{ file = "{gone}" }}\n')
    assert cli.call(["show", "mine"]) == 0
    out = capfd.readouterr().out
    assert out.count(f"{gone}, which is missing") == 2
    assert "None" not in out


def test_a_user_overrides_single_fields() -> None:
    own_catalogue('[qwen3-8b]\nabout = "mine"\ndraft_length = 2\n')
    pair = catalog()["qwen3-8b"]
    assert (pair.about, pair.draft_length) == ("mine", 2)
    assert isinstance(pair.target, HubFile)
    assert pair.target.repo == "Qwen/Qwen3-8B-GGUF"
    assert pair.licence == "apache-2.0"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[a]\ntarget = { file = "x.gguf" }\n[b]\nabout = "no target"\n', 3, "needs a 'target'"),
        ('[a]\ntarget = { file = "x.gguf" }\n\nabout = 3\n', 4, "a text 'about'"),
        ('[a]\ntarget = { file = "x.gguf" }\ncontext = "long"\n', 3, "whole number 'context'"),
        ('[a]\ntarget = { file = "x.gguf" }\ncontext = true\n', 3, "whole number 'context'"),
        ('[a]\ntarget = { file = "x.gguf" }\ndrafts = "x"\n', 3, "did you mean 'draft'"),
        ('[a]\ntarget = { file = "x.gguf" }\ndrafting = "magic"\n', 3, "draft-model"),
        ('[a]\ntarget = { file = "x.gguf" }\ntraps = "x"\n', 3, "list of texts"),
        ('[a]\ntarget = { repo = "u/r", file = "x.bin" }\n', 2, "a .gguf file"),
        ('[a]\ntarget = { repo = "u", file = "x.gguf" }\n', 2, "user/name"),
        ('[a]\ntarget = { repo = "u/r", file = "../x.gguf" }\n', 2, "a .gguf file"),
        ('[a]\ntarget = { repo = "u/r", file = "x.gguf", revision = "main" }\n', 2, "a commit"),
        ('[a]\ntarget = { repo = "u/r", file = "x.gguf", sha256 = "12" }\n', 2, "hexadecimal"),
        ('[a]\ntarget = { repo = "u/r", file = "x.gguf", size = 3 }\n', 2, "unknown 'size'"),
        ('\n\n["a.b"]\ntarget = { repo = 3, file = "x.gguf" }\n', 4, "a text 'repo'"),
        ('[a.target]\nrepo = "u/r"\n', 1, "a text 'file'"),
        ("a = 3\n", 1, "must be a table"),
        ("[a\n", 1, "not valid TOML"),
        ('[a]\n[a]\ntarget = "x"\n', 2, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, words: str) -> None:
    path = own_catalogue(text)
    with pytest.raises(UsageError) as error:
        catalog()
    message = str(error.value)
    assert words in message
    assert str(path) in message
    assert re.search(rf"line {line}\b", message), message


def test_files_on_disk_are_relative_to_their_catalogue(tmp_path: Path) -> None:
    path = own_catalogue('[mine]\ntarget = "models/my mödel.gguf"\n')
    target = catalog()["mine"].target
    assert target.where == str((path.parent / "models" / "my mödel.gguf").resolve())
    assert catalog()["mine"].drafting == "ngram"


@given(st.text('[]{}="\n a.b', max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        import tomllib

        document = Document(Path("models.toml"), text, tomllib.loads(text))
        for name in document.names:
            document.pair(name)
    except (UsageError, tomllib.TOMLDecodeError) as error:
        assert "\n" not in str(error).replace("\\n", "")  # noqa: PT017


def test_the_documentation_has_the_table_of_the_catalogue() -> None:
    script = ROOT / "scripts" / "catalogue_table.py"
    pages = [str(ROOT / "docs" / "models.md"), str(ROOT / "README.md")]
    command = [sys.executable, str(script), "--check", *pages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shipped() == ROOT / "models.toml"
