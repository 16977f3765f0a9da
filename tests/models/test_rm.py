"""``localspec rm``: frees what was named, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import huggingface_hub
import pytest
from conftest import Files
from hub_server import DRAFT, DRAFT_FILE, TARGET, TARGET_FILE, Hub, Repo, own_catalogue, sha256

from localspec import cli
from localspec.core import units
from localspec.models.catalog import hf_cache
from localspec.models.hub.remove import plan_removal

pytest_plugins = ["hub_fixtures"]
Pair = tuple[Repo, Repo]


def call(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    found = cli.call(list(args))
    out, err = capfd.readouterr()
    assert found == code, err
    return out, err


def test_a_pair_is_removed_and_what_it_frees_is_shown(
    hub: Hub, pair: Pair, models, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(capfd, "pull", "tiny")
    _, err = call(capfd, "rm", "tiny", code=2)
    assert "--yes" in err
    assert hf_cache.find_file(TARGET, TARGET_FILE) is not None
    out, err = call(capfd, "rm", "tiny", "--yes")
    assert out == "freed 1.4 MB\n"
    assert TARGET_FILE in err
    assert DRAFT_FILE in err
    left = [p for p in hf_home.rglob("*") if p.is_file() and p.stat().st_size > 100]
    assert left == []
    call(capfd, "rm", "tiny", "--yes", code=3)
    call(capfd, "run", "x", "-m", "tiny", code=3)
    call(capfd, "pull", "tiny")


def test_what_another_pair_needs_stays(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    target, draft = pair
    other = hub.repo("org/Other-GGUF", {"other-Q4_K_M.gguf": models.target + b"\0" * 64})
    text = own_catalogue("").parent.joinpath("models.toml")
    pin = f'revision = "{draft.main}", sha256 = "{sha256(models.draft)}"'
    shared = f'draft = {{ repo = "{DRAFT}", file = "{DRAFT_FILE}", {pin} }}\n'
    text.write_text(
        f'[one]\ntarget = {{ repo = "{TARGET}", file = "{TARGET_FILE}" }}\n{shared}'
        f'[two]\ntarget = {{ repo = "{other.name}", file = "other-Q4_K_M.gguf" }}\n{shared}'
    )
    own_catalogue(text.read_text())
    call(capfd, "pull", "one")
    call(capfd, "pull", "two")
    _, err = call(capfd, "rm", "one", "-y")
    assert f"{DRAFT_FILE} stays: two needs it" in err
    call(capfd, "run", "x", "-m", "two", "-n", "2")
    call(capfd, "rm", "two", "-y")
    assert hf_cache.find_file(DRAFT, DRAFT_FILE) is None
    del target


def test_content_that_another_revision_has_too_stays(
    hub: Hub, pair: Pair, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(capfd, "pull", "tiny")
    pair[0].commit({"README.md": b"newer"})
    place = {"cache_dir": hf_home / "hub", "endpoint": hub.url, "token": False}
    theirs = huggingface_hub.hf_hub_download(TARGET, TARGET_FILE, **place)
    readme = huggingface_hub.hf_hub_download(TARGET, "README.md", **place)
    out, _ = call(capfd, "rm", "tiny", "-y")
    assert out == "freed 75.6 kB\n"  # the draft alone
    assert Path(theirs).is_file()
    assert Path(readme).read_bytes() == b"newer"


@pytest.mark.parametrize("damage", ["broken link", "link to itself", "missing commit"])
def test_what_is_beside_damage_is_removed(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    """huggingface_hub leaves such repositories out: nothing was removed, without a word."""
    name = "org/Some-GGUF"
    hub.repo(name, {"m-Q4_K_M.gguf": models.target, "m-Q8_0.gguf": models.target + b"\0" * 64})
    for quant in ("Q4_K_M", "Q8_0"):
        call(capfd, "pull", f"{name}:{quant}", "-d", "none")
    kept, file = hf_cache.find_file(name, "m-Q8_0.gguf"), hf_cache.find_file(name, "m-Q4_K_M.gguf")
    assert kept is not None
    assert file is not None
    if damage == "broken link":
        (file.parent / "gone.gguf").symlink_to("../../blobs/gone")
    elif damage == "link to itself":
        (file.parent / "loop.gguf").symlink_to("loop.gguf/x")
    else:
        hf_cache.write_ref(name, "main", "0" * 40)
    blob, size = file.resolve(), file.stat().st_size
    out, _ = call(capfd, "rm", f"{name}:Q4_K_M", "-y")
    assert out == f"freed {units.size(size)}\n"
    assert not blob.exists()
    assert not file.is_symlink()
    assert kept.is_file()


def test_what_cannot_be_removed_is_an_error(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capfd, "pull", "tiny")
    found = hf_cache.find_file(TARGET, TARGET_FILE)
    assert found is not None
    blob, remove = found.resolve(), os.remove

    def refused(path: Path) -> None:
        if path == blob:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        remove(path)

    monkeypatch.setattr("os.remove", refused)
    out, err = call(capfd, "rm", "tiny", "-y", code=1)
    assert out == ""
    assert f"cannot remove {blob}" in err


def test_no_link_is_followed_out_of_the_cache(
    hub: Hub, pair: Pair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(capfd, "pull", "tiny")
    found = hf_cache.find_file(TARGET, TARGET_FILE)
    assert found is not None
    ours = tmp_path / "ours" / TARGET_FILE
    ours.parent.mkdir()
    ours.write_bytes(found.read_bytes())
    (found.parent / "more-Q8_0.gguf").symlink_to(ours)
    call(capfd, "rm", f"{TARGET}:Q8_0", "-y")
    assert not (found.parent / "more-Q8_0.gguf").is_symlink()
    assert ours.is_file()
    other_commit = found.parent.parent / ("1" * 40)
    other_commit.symlink_to(ours.parent)
    _, err = call(capfd, "rm", TARGET, "-y", code=2)
    assert "leads out of the cache" in err
    assert ours.is_file()
    other_commit.unlink()
    blobs = found.resolve().parent
    blobs.rename(tmp_path / "another disk")
    blobs.symlink_to(tmp_path / "another disk")
    _, err = call(capfd, "rm", TARGET, "-y", code=2)
    assert "leads out of the cache" in err
    assert found.is_file()


def test_a_quantization_of_a_repository_is_removed_alone(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "org/Many-GGUF"
    hub.repo(name, {"m-Q4_K_M.gguf": models.target, "m-Q8_0.gguf": models.target + b"\0" * 64})
    for quant in ("Q4_K_M", "Q8_0"):
        call(capfd, "pull", f"{name}:{quant}", "-d", "none")
    call(capfd, "rm", f"{name}:Q8_0", "-y")
    assert hf_cache.find_file(name, "m-Q8_0.gguf") is None
    assert hf_cache.find_file(name, "m-Q4_K_M.gguf") is not None


def test_what_an_interrupted_pull_left_is_removed(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr("localspec.models.hub.retry.ATTEMPTS", 1)
    call(capfd, "pull", "tiny", "--dry-run")
    hub.cuts = [500_000]
    call(capfd, "pull", "tiny", code=1)
    assert hf_cache.partials(TARGET)
    call(capfd, "rm", "tiny", "-y")
    assert not hf_cache.partials(TARGET)


SHARDS = [f"m-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def left(name: str, *files: str, partial: bool = True) -> None:
    """What an interrupted pull of a model in shards leaves."""
    folder = hf_cache.repo_folder(name)
    for number, file in enumerate(files):
        part = folder / "blobs" / f"{number:064}"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"GGUF" * 250)
        hf_cache.place(name, "a" * 40, file, part.name, None)
    if partial:
        part = hf_cache.partial(name, "c" * 64)
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"GGUF" * 500)


def kept(home: Path) -> list[Path]:
    """All files but locks, which stay: who waits for one must not lose it."""
    return [path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize("wanted", ["", ":Q4_K_M", f":{SHARDS[1]}"])
@pytest.mark.parametrize("there", [SHARDS[:2], SHARDS[1:2]])
def test_a_model_that_lacks_shards_is_shown_and_removed_with_what_is_partial(
    hf_home: Path, capfd: pytest.CaptureFixture[str], wanted: str, there: list[str]
) -> None:
    left("org/Big-GGUF", *there)
    total = units.size(2000 + 1000 * len(there))
    assert f"{total} of org/Big-GGUF is not whole" in call(capfd, "models")[1]
    assert call(capfd, "rm", f"org/Big-GGUF{wanted}", "-y")[0] == f"freed {total}\n"
    assert not kept(hf_home)
    assert "is not whole" not in call(capfd, "models")[1]


def test_a_pair_that_lacks_shards_is_removed_with_what_is_partial(
    hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = f'{{ repo = "org/Big-GGUF", file = "{SHARDS[0]}", sha256 = "{"0" * 64}" }}'
    own_catalogue(f"[big]\ntarget = {file}\n")
    left("org/Big-GGUF", *SHARDS[:2])
    assert call(capfd, "rm", "big", "-y")[0] == f"freed {units.size(4000)}\n"
    assert not kept(hf_home)


def test_a_partial_file_alone_is_removed_by_its_repository_and_by_no_name_that_may_be_anothers(
    hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    left("org/One-GGUF")
    said = call(capfd, "rm", "org/One-GGUF:Q8_0", "-y", code=3)[1]
    assert "nothing of 'org/One-GGUF:Q8_0' is here to remove; parts of downloads" in said
    assert "`localspec rm org/One-GGUF`" in said
    assert hf_cache.partials("org/One-GGUF")
    call(capfd, "rm", "org/One-GGUF", "-y")
    assert not hf_cache.partials("org/One-GGUF")


def test_what_is_partial_stays_where_the_named_model_is_whole(
    hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    left("org/Big-GGUF", *SHARDS)
    call(capfd, "rm", "org/Big-GGUF:Q4_K_M", "-y")
    assert hf_cache.partials("org/Big-GGUF")


@contextlib.contextmanager
def pulled_elsewhere(part: Path) -> Iterator[None]:
    """A pull that runs holds this lock."""
    place = hf_cache.lock("org/Big-GGUF", part.name.removesuffix(hf_cache.PARTIAL_SUFFIX))
    place.parent.mkdir(parents=True)
    with filelock.FileLock(place):
        yield


@pytest.mark.parametrize("name", ["org/Big-GGUF", "big"])
def test_what_another_pull_fetches_just_now_stays(
    hf_home: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    own_catalogue('[big]\ntarget = { repo = "org/Big-GGUF", file = "big-Q4_0.gguf" }\n')
    left("org/Big-GGUF")
    (running,) = hf_cache.partials("org/Big-GGUF")
    with pulled_elsewhere(running):
        said = call(capfd, "rm", name, "-y", code=3)[1]
        assert "a download of org/Big-GGUF runs" in said
        other = hf_cache.partial("org/Big-GGUF", "d" * 64)
        other.write_bytes(b"GGUF" * 100)
        out, err = call(capfd, "rm", name, "-y")
        assert out == f"freed {units.size(400)}\n"
        assert "a download of org/Big-GGUF runs: its part stays" in err
        assert hf_cache.partials("org/Big-GGUF") == [running]
    call(capfd, "rm", name, "-y")
    assert not hf_cache.partials("org/Big-GGUF")


def test_a_pull_that_begins_after_the_removal_was_planned_keeps_its_part(hf_home: Path) -> None:
    left("org/Big-GGUF", *SHARDS[:2])
    (running,) = hf_cache.partials("org/Big-GGUF")
    hf_cache.ranges_file(running).write_text("{}")
    removal = plan_removal("org/Big-GGUF")
    with pulled_elsewhere(running):
        done = removal.carry_out()
        assert set(kept(hf_home)) == {running, hf_cache.ranges_file(running)}
    assert done.partials == ()
    assert done.freed == 2000
    assert "a download of org/Big-GGUF runs: its part stays" in done.staying[0]


def answered(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """A user who says yes, and something that changes what is here before that."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("localspec.cli.rm.confirm", lambda _: change() or True)


def test_a_pull_that_begins_while_the_user_is_asked_keeps_its_part(
    hf_home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left("org/Big-GGUF")
    (running,) = hf_cache.partials("org/Big-GGUF")
    with contextlib.ExitStack() as pulls:
        answered(monkeypatch, lambda: pulls.enter_context(pulled_elsewhere(running)))
        said = call(capfd, "rm", "org/Big-GGUF", code=3)[1]
    assert "a download of org/Big-GGUF runs: its part stays" in said
    assert kept(hf_home) == [running]


def test_a_file_that_a_pair_needs_since_the_user_was_asked_stays(
    hf_home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = '{ repo = "org/Draft", file = "d-Q8_0.gguf" }'
    own_catalogue(
        f'[one]\ntarget = {{ repo = "org/One", file = "o-Q4_0.gguf" }}\ndraft = {draft}\n'
        f'[two]\ntarget = {{ repo = "org/Two", file = "t-Q4_0.gguf" }}\ndraft = {draft}\n'
    )
    left("org/One", "o-Q4_0.gguf", partial=False)
    left("org/Draft", "d-Q8_0.gguf", partial=False)
    answered(monkeypatch, lambda: left("org/Two", "t-Q4_0.gguf", partial=False))
    assert "has changed since; nothing was removed" in call(capfd, "rm", "one", code=1)[1]
    assert hf_cache.find_file("org/Draft", "d-Q8_0.gguf")
    assert hf_cache.find_file("org/One", "o-Q4_0.gguf")
    answered(monkeypatch, lambda: None)
    assert "d-Q8_0.gguf stays: two needs it" in call(capfd, "rm", "one")[1]
    assert hf_cache.find_file("org/One", "o-Q4_0.gguf") is None


def test_what_was_not_pulled_is_not_removed(
    files: Files, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "remove it yourself" in call(capfd, "rm", str(files.target), "-y", code=2)[1]
    assert files.target.is_file()
    assert "is a part of localspec" in call(capfd, "rm", "demo", "-y", code=2)[1]
    assert "did you mean qwen3-8b" in call(capfd, "rm", "qwen3-8", "-y", code=3)[1]
    call(capfd, "rm", "org/none:Q4_0", "-y", code=3)
    assert not list(hf_home.rglob("*"))
