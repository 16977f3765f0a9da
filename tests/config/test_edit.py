"""Settings are written into a file that people write by hand as well."""

import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import allow_tools, edit, settings
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths

MINE = """\
# My settings.
temperature = 0.2   # calm
odd = [1, 2]        # nobody knows it

[keys]
"chat.compare" = "f12"

[presets.brief]
system = "Be brief."
"""


def written(text=MINE):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    settings.settings.cache_clear()
    return path


def test_values_change_and_everything_else_stays_as_it_was_written():
    path = written()
    assert edit.save({("temperature",): 0.5, ("top_k",): 7}) == path
    lines = path.read_text().splitlines()
    assert lines[:3] == [
        "# My settings.",
        "temperature = 0.5   # calm",
        "odd = [1, 2]        # nobody knows it",
    ]
    assert '"chat.compare" = "f12"' in lines
    assert settings.settings()["top_k"] == 7
    assert settings.settings()["presets"] == {"brief": {"system": "Be brief."}}


def test_none_takes_a_value_out_and_may_name_what_is_not_there():
    path = written()
    edit.save({("temperature",): None, ("seed",): None, ("presets", "no", "top_k"): None})
    assert "temperature" not in path.read_text()
    assert "no" not in settings.settings()["presets"]


def test_a_file_that_is_not_there_is_made_for_its_owner_only():
    path = edit.save({("presets", "short", "max_tokens"): 40})
    assert tomllib.loads(path.read_text()) == {"presets": {"short": {"max_tokens": 40}}}
    assert path.stat().st_mode & 0o077 == 0


def test_a_link_stays_a_link(tmp_path):
    path = written()
    real = tmp_path / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    edit.save({("top_k",): 3})
    assert path.is_symlink()
    assert "top_k = 3" in real.read_text()


@pytest.mark.parametrize("text", ["temperature = \n", "a = 1\na = 2\n", "\0"])
def test_a_damaged_file_is_refused_and_stays(text):
    path = written(text)
    with pytest.raises(UsageError, match=r"config\.toml is not valid TOML"):
        edit.save({("top_k",): 3})
    assert path.read_text() == text


def test_a_place_that_holds_something_else_is_refused():
    path = written("presets = 3\n")
    with pytest.raises(UsageError, match="presets"):
        edit.save({("presets", "x", "top_k"): 3})
    assert path.read_text() == "presets = 3\n"


def test_a_folder_that_cannot_be_made_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    with pytest.raises(LocalspecError, match="LOCALSPEC_HOME"):
        edit.save({("top_k",): 3})


names = st.text("abc é.\"'\n", min_size=1, max_size=4)
values = st.none() | st.integers(-5, 5) | st.booleans() | st.text(max_size=8)


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from("ab")) | st.tuples(st.just("t"), names), values, max_size=4
        ),
        max_size=3,
    )
)
def test_whatever_is_saved_is_read_again(rounds):
    (paths.config_dir() / "config.toml").unlink(missing_ok=True)
    held = {}
    for changes in rounds:
        edit.save(changes)
        held |= changes
    for place, value in held.items():
        found = settings.settings()
        for name in place:
            found = (found or {}).get(name)
        assert found == value


def test_a_tool_is_added_to_the_list_that_the_file_has_now():
    path = written('allow_tools = "git/log"\n')
    assert allow_tools.names(settings.settings()) == ("git/log",)
    path.write_text('allow_tools = "wiki/*"\n')  # another window, and the user's own hand
    allow_tools.add("time/now")
    assert allow_tools.names(settings.settings()) == ("time/now", "wiki/*")
    path.write_text("")
    allow_tools.add("time/now")
    assert allow_tools.names(settings.settings()) == ("time/now",)


ADD = """\
import sys
from localspec.config import allow_tools
for number in range(10):
    allow_tools.add(f"{sys.argv[1]}/{number}")
"""


def test_windows_that_allow_tools_in_the_same_instant_lose_none():
    running = [subprocess.Popen([sys.executable, "-c", ADD, name]) for name in "abc"]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    allowed = allow_tools.names(settings.read(paths.config_dir() / "config.toml"))
    assert sorted(allowed) == [f"{name}/{number}" for name in "abc" for number in range(10)]
