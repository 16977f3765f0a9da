"""``localspec pull`` against a Hub that speaks the real protocol and misbehaves as real ones do."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import gguf_tools
import head_files
import huggingface_hub
import picture_files
import pytest
from conftest import Files
from hub_server import (
    DRAFT,
    DRAFT_FILE,
    TARGET,
    TARGET_FILE,
    Hub,
    own_catalogue,
)
from pulling import Pair, blob, error, kept_bytes, pull, pulled

from localspec import cli
from localspec.models.catalog import hf_cache
from localspec.models.gguf.header import read_header
from localspec.models.hub import connection

pytest_plugins = ["hub_fixtures"]


# -- as it should be -------------------------------------------------------------------------------


def test_a_first_pull_brings_the_pair_and_a_second_nothing(
    hub: Hub, pair: Pair, models, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = pull(capfd, "tiny")
    for words in ("a tiny pair", "same vocabulary", "licence   MIT", "fit  ", "disk", "ready: "):
        assert words in out
    assert f"{TARGET_FILE}: whole, fetched" in err
    assert blob(TARGET, models.target).read_bytes() == models.target
    hub.forget()
    out, _ = pull(capfd, "tiny")
    assert "complete" in out
    assert hub.log == []  # pinned and whole: nobody needs to be asked
    assert not hf_cache.partials(TARGET)


def test_the_cache_is_huggingface_hubs_own(
    hub: Hub, pair: Pair, models, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny")
    cache = huggingface_hub.scan_cache_dir(hf_home / "hub")
    assert not cache.warnings
    found = {f.file_name: f for r in cache.repos for v in r.revisions for f in v.files}
    assert set(found) == {TARGET_FILE, DRAFT_FILE}
    assert found[TARGET_FILE].size_on_disk == len(models.target)
    path = huggingface_hub.hf_hub_download(
        TARGET,
        TARGET_FILE,
        revision=pair[0].main,
        cache_dir=hf_home / "hub",
        local_files_only=True,
    )
    assert Path(path).read_bytes() == models.target
    # llama.cpp, and everybody who names no commit, goes by the branch that is noted.
    assert hf_cache.ref(TARGET) == pair[0].main
    assert path == huggingface_hub.hf_hub_download(
        TARGET, TARGET_FILE, cache_dir=hf_home / "hub", local_files_only=True
    )
    pair[1].commit({"README.md": b"newer"})
    hub.forget()
    huggingface_hub.hf_hub_download(
        DRAFT, DRAFT_FILE, cache_dir=hf_home / "hub", endpoint=hub.url, token=False
    )
    assert hub.sent == 0  # the blob is there, only the branch had to be asked
    assert hf_cache.ref(DRAFT) == pair[1].main
    assert "complete" in pull(capfd, "tiny")[0]
    assert hf_cache.ref(DRAFT) == pair[1].main  # newer than the pin, and left alone


def test_what_huggingface_hub_has_fetched_is_not_fetched_again(
    hub: Hub, pair: Pair, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for repo, file in ((TARGET, TARGET_FILE), (DRAFT, DRAFT_FILE)):
        huggingface_hub.hf_hub_download(
            repo, file, cache_dir=hf_home / "hub", endpoint=hub.url, token=False
        )
    hub.forget()
    assert pulled(capfd, "tiny")["fetched_bytes"] == 0
    assert hub.sent == 0


def test_the_pulled_pair_runs_without_a_network(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny")
    hub.close()
    assert cli.call(["run", "hello", "-m", "tiny", "-n", "6", "--json", "--offline"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["model"]["target"].endswith(TARGET_FILE)
    assert found["model"]["draft"].endswith(DRAFT_FILE)
    assert cli.call(["models", "--json"]) == 0
    (tiny,) = [m for m in json.loads(capfd.readouterr().out) if m["name"] == "tiny"]
    assert tiny["installed"] is True
    assert cli.call(["show", "tiny"]) == 0
    assert "match     yes" in capfd.readouterr().out
    assert "already downloaded" in pull(capfd, "tiny", "--offline")[0]


@pytest.fixture(scope="module")
def eye(tmp_path_factory: pytest.TempPathFactory, models) -> bytes:
    """A projector for the target that the Hub has."""
    folder = tmp_path_factory.mktemp("eye")
    target = folder / "target.gguf"
    target.write_bytes(models.target)
    width = read_header(target).n_embd
    return picture_files.write_projector(folder / "eye.gguf", "llava", width=width).read_bytes()


def test_a_projector_comes_with_its_target_and_goes_with_it(
    hub: Hub, pair: Pair, eye: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    pair[0].commit({"mmproj-F16.gguf": eye})
    assert "projector" in pull(capfd, TARGET, "--dry-run")[0]
    assert pulled(capfd, TARGET, "--no-mmproj")["projector"] is None
    found = pulled(capfd, TARGET)
    path = Path(found["projector"]["path"])  # type: ignore[index]
    assert path.read_bytes() == eye
    assert found["fetched_bytes"] == len(eye)
    assert cli.call(["show", TARGET, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["projector"]["path"] == str(path)
    assert cli.call(["show", TARGET]) == 0
    assert "of memory from the first picture on" in capfd.readouterr().out
    assert cli.call(["rm", TARGET, "--yes"]) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"not read", "is not a GGUF file"), (None, "it makes rows of 8 numbers, and ")],
)
def test_a_projector_of_no_use_is_named_and_not_fetched(
    hub: Hub,
    pair: Pair,
    content: bytes | None,
    why: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    narrow = picture_files.write_projector(tmp_path / "narrow.gguf", "llava", width=8)
    pair[0].commit({"mmproj-F16.gguf": content or narrow.read_bytes()})
    found = pulled(capfd, TARGET)
    (notice,) = found["notices"]  # type: ignore[misc]
    assert notice.startswith("mmproj-F16.gguf is not fetched: ")
    assert why in notice
    assert found["projector"] is None


def test_a_pair_that_sees_is_complete_with_its_projector(
    hub: Hub, pair: Pair, eye: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny")
    before, after = pair[0].main, pair[0].commit({"mmproj-F16.gguf": eye})
    catalogue = Path(os.environ["LOCALSPEC_HOME"]) / "config" / "models.toml"
    own_catalogue(catalogue.read_text().replace(before, after) + "sees = true\n")
    assert "already downloaded" in pull(capfd, "tiny", "--offline")[0]
    assert "already downloaded" in pull(capfd, "tiny", "--no-mmproj")[0]
    found = pulled(capfd, "tiny")
    assert found["fetched_bytes"] == len(eye)
    assert found["projector"]["bytes"] == len(eye)  # type: ignore[index]
    assert "projector " in pull(capfd, "tiny")[0]
    assert pulled(capfd, "tiny")["fetched_bytes"] == 0


def test_a_dry_run_reads_headers_only(
    hub: Hub, pair: Pair, models, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = pulled(capfd, "tiny", "--dry-run")
    assert found["missing_bytes"] == found["bytes"] == len(models.target) + len(models.draft)
    assert found["installed"] is False
    assert found["fit"] in {"fits on GPU", "partly on GPU", "CPU only"}
    assert hub.sent <= 2 * (1 << 18) < len(models.target)
    assert not hf_home.exists()


def test_a_repository_a_quantization_and_a_file_can_be_named(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo(
        "org/Many-GGUF",
        {
            "many-UD-Q4_K_M.gguf": models.draft,
            "many-Q4_K_M.gguf": models.target,
            "many-BF16.gguf": models.target + b"\0" * 64,
            "many-F16.gguf": models.target + b"\0" * 32,
            "mmproj-F16.gguf": b"GGUF" * 9000,
        },
    )
    for name, file in {
        "org/Many-GGUF": "many-Q4_K_M.gguf",
        "hf.co/org/Many-GGUF:f16": "many-F16.gguf",
        "https://huggingface.co/org/Many-GGUF/blob/main/many-BF16.gguf": "many-BF16.gguf",
        "org/Many-GGUF:UD-Q4_K_M": "many-UD-Q4_K_M.gguf",
    }.items():
        found = pulled(capfd, name, "--draft", "none")
        assert [f["path"] for f in found["target"]["files"]] == [file]  # type: ignore[index]
    assert cli.call(["models"]) == 0
    also = capfd.readouterr().out.split("Also in the cache:\n")[1].split()
    assert also[2::3] == [
        f"org/Many-GGUF:many-{label}.gguf" for label in ("BF16", "F16", "Q4_K_M", "UD-Q4_K_M")
    ]
    assert cli.call(["run", "x", "-m", also[2], "-n", "1"]) == 0
    capfd.readouterr()
    assert hf_cache.ref("org/Many-GGUF") == hub.repos["org/Many-GGUF"].main
    assert cli.call(["run", "x", "-m", "org/Many-GGUF:F16", "-n", "2", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["model"]["target"].endswith("many-F16.gguf")
    line = error(capfd, "org/Many-GGUF:Q5_K_M", code=3)
    for label in ("Q4_K_M", "UD-Q4_K_M", "BF16", "F16"):
        assert label in line
    assert "mmproj" not in line


def test_show_lists_what_a_repository_has_and_where_a_pulled_pair_goes(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo("org/Many-GGUF", {"m-Q4_K_M.gguf": models.target, "m-Q8_0.gguf": models.draft})
    assert cli.call(["show", "org/Many-GGUF"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["Q8_0", "Q4_K_M"]
    assert cli.call(["show", "org/Many-GGUF", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [m["bytes"] for m in found["models"]] == [len(models.draft), len(models.target)]
    hub.forget()
    assert cli.call(["show", "org/Many-GGUF", "--offline"]) == 3
    assert hub.log == []
    pull(capfd, "tiny")
    assert cli.call(["show", "tiny"]) == 0
    out = capfd.readouterr().out
    assert "KV cache" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line)


def test_names_with_spaces_and_letters_of_other_alphabets(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    file = "größe 4 bit/модель №1 #2-Q4_K_M.gguf"
    hub.repo("org/Names-GGUF", {file: models.target})
    found = pulled(capfd, "org/Names-GGUF", "--draft", "none")
    assert found["target"]["path"].endswith(file)  # type: ignore[index]
    assert cli.call(["run", "x", "-m", f"org/Names-GGUF:{file}", "-n", "1"]) == 0
    capfd.readouterr()
    assert cli.call(["rm", "org/Names-GGUF:Q4_K_M", "-y"]) == 0


def test_shards_come_together_and_a_missing_one_is_named(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "big/big-Q4_0-00001-of-00003.gguf": models.target,
        "big/big-Q4_0-00002-of-00003.gguf": os.urandom(150_000),
        "big/big-Q4_0-00003-of-00003.gguf": os.urandom(70_000),
    }
    hub.repo("org/Big-GGUF", {**parts, "half-Q8_0-00001-of-00002.gguf": models.target})
    found = pulled(capfd, "org/Big-GGUF:Q4_0")
    assert [f["path"] for f in found["target"]["files"]] == list(parts)  # type: ignore[index]
    assert found["bytes"] == sum(map(len, parts.values()))
    first = Path(found["target"]["path"])  # type: ignore[index]
    for name, data in parts.items():
        assert (first.parent / name.rsplit("/", 1)[-1]).read_bytes() == data
    own_catalogue(
        f'[big]\ntarget = {{ repo = "org/Big-GGUF", file = "{next(iter(parts))}", '
        f'revision = "{hub.repos["org/Big-GGUF"].main}" }}\n'
    )
    first.with_name("big-Q4_0-00002-of-00003.gguf").unlink()
    assert cli.call(["run", "x", "-m", "big"]) == 3
    assert "localspec pull big" in capfd.readouterr().err
    found = pulled(capfd, "big")
    assert (found["fetched_bytes"], found["bytes"]) == (0, sum(map(len, parts.values())))
    hub.forget()
    assert pulled(capfd, "big")["installed"] is True
    assert hub.log == []
    assert cli.call(["rm", "big", "-y"]) == 0
    assert not list(first.parent.glob("*.gguf"))
    capfd.readouterr()
    assert "1 of the 2 parts" in error(capfd, "org/Big-GGUF:Q8_0", code=7)


def test_a_name_that_lies_is_found_out_by_the_header(
    hub: Hub, models, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "head.gguf", "gemma4-assistant")
    writer.add_block_count(1)
    writer.add_description("x" * 30_000)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    head = (tmp_path / "head.gguf").read_bytes()
    hub.repo("org/Lie-GGUF", {"lie-head-Q4_K_M.gguf": head, "lie-Q8_0.gguf": models.target})
    found = pulled(capfd, "org/Lie-GGUF")
    assert found["target"]["files"][0]["path"] == "lie-Q8_0.gguf"  # type: ignore[index]
    assert "cannot run alone" in error(capfd, "org/Lie-GGUF:Q4_K_M", code=7)


def test_a_draft_of_another_vocabulary_costs_seconds_and_not_gigabytes(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo("org/Foreign-GGUF", {"foreign-Q8_0.gguf": models.foreign})
    line = error(capfd, "tiny", "--draft", "org/Foreign-GGUF", code=6)
    assert "differ from id 50" in line
    assert not list(hf_cache.cache_folder().rglob("*.gguf"))


def test_an_unknown_repository_is_offered_a_draft_of_the_catalogue(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo("org/Cousin-GGUF", {"cousin-Q4_K_M.gguf": models.target + b"\0" * 64})
    out, err = pull(capfd, "org/Cousin-GGUF")
    assert "add it with --draft tiny" in err
    assert "none: drafts come from the text" in out
    found = pulled(capfd, "org/Cousin-GGUF", "--draft", "tiny")
    assert found["draft"]["repo"] == DRAFT  # type: ignore[index]
    assert cli.call(["run", "x", "-m", "org/Cousin-GGUF", "-d", "tiny", "-n", "2", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["model"]["draft"].endswith(DRAFT_FILE)


HEADED = "org/Headed-GGUF"


def headed(hub: Hub, folder: Path, drafting: str, **files: bytes) -> None:
    """``headed`` in the user's own catalogue, of such files."""
    names = {f"{name}.gguf": data for name, data in files.items()}
    hub.repo(HEADED, names)
    draft = "" if len(names) == 1 else f'draft = {{ repo = "{HEADED}", file = "head.gguf" }}\n'
    own_catalogue(
        f'[headed]\ntarget = {{ repo = "{HEADED}", file = "target.gguf" }}\n{draft}'
        f'drafting = "{drafting}"\n'
    )


def test_a_pair_with_a_head_beside_its_target_is_pulled_and_drafts(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = gguf_tools.write_llama(tmp_path / "t.gguf", layers=4).read_bytes()
    head = head_files.write_eagle(tmp_path / "h.gguf").read_bytes()
    headed(hub, tmp_path, "eagle3", target=target, head=head)
    assert str(pulled(capfd, "headed")["draft"]).count("head.gguf")
    assert cli.call(["run", "x", "-m", "headed", "-n", "20", "--draft-max", "2", "--json"]) == 0
    assert "eagle3" in json.loads(capfd.readouterr().out)["stats"]["by_drafter"]
    assert cli.call(["show", "headed"]) == 0
    assert "yes: a head for this target (eagle3)" in capfd.readouterr().out
    # Named by its file, as somebody without our catalogue would, it finds its head too.
    (path,) = hf_cache.snapshots(HEADED)
    assert cli.call(["run", "x", "-m", str(path / "target.gguf"), "-n", "2", "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["model"]["draft"] == str(path / "head.gguf")
    (path / "a-head.gguf").symlink_to((path / "head.gguf").resolve())  # the same once more
    assert cli.call(["run", "x", "-m", str(path / "target.gguf"), "-n", "2", "--json"]) == 0
    assert "beside" not in capfd.readouterr().err


def test_a_head_of_another_target_is_refused_before_anything_is_fetched(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = gguf_tools.write_llama(tmp_path / "t.gguf", layers=2).read_bytes()
    head = head_files.write_eagle(tmp_path / "h.gguf").read_bytes()
    headed(hub, tmp_path, "eagle3", target=target, head=head)
    assert "layers 1, 2, 3, and target.gguf has 2 layers" in error(capfd, "headed", code=6)
    assert not hf_cache.snapshots(HEADED)


def test_a_file_that_should_carry_a_layer_and_does_not_is_pointed_out(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Repositories hold files of one name with and without it."""
    without = head_files.write_mtp(tmp_path / "t.gguf", block=False).read_bytes()
    headed(hub, tmp_path, "mtp-embedded", target=without)
    (notice,) = pulled(capfd, "headed")["notices"]  # type: ignore[misc]
    assert "nextn.eh_proj.weight" in notice
    whole = head_files.write_mtp(tmp_path / "w.gguf").read_bytes()
    headed(hub, tmp_path, "mtp-embedded", target=whole)
    (notice,) = pulled(capfd, "headed")["notices"]  # type: ignore[misc]
    assert "was replaced on the Hub" in notice
    assert cli.call(["run", "x", "-m", "headed", "-n", "20", "--draft-max", "2", "--json"]) == 0
    assert "mtp" in json.loads(capfd.readouterr().out)["stats"]["by_drafter"]


# -- access ----------------------------------------------------------------------------------------


def test_a_gated_repository_needs_a_token_with_access(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    pair[0].gated = True
    line = error(capfd, "tiny", code=4)
    assert "is gated" in line
    assert f"{hub.url}/{TARGET}" in line
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "refuses your token" in error(capfd, "tiny", code=4)
    hub.tokens.add("hf_stranger")
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    assert "your token has no access" in error(capfd, "tiny", code=4)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert pulled(capfd, "tiny")["gated"] is True


def test_the_token_does_not_leave_the_hub(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    pull(capfd, "tiny")
    assert hub.downloads()
    assert all(r.token is None for r in hub.downloads())
    assert all(r.token == "hf_good" for r in hub.log if not r.path.startswith("/cdn/"))


def test_a_private_or_missing_repository_is_not_found(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    hub.repo("org/Secret-GGUF", {"s-Q4_0.gguf": models.target}, private=True)
    assert "HF_TOKEN" in error(capfd, "org/Secret-GGUF", code=3)
    assert "no repository org/Nothing" in error(capfd, "org/Nothing", code=3)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    pull(capfd, "org/Secret-GGUF", "--draft", "none")


# -- offline ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flag", "HF_HUB_OFFLINE", "LOCALSPEC_OFFLINE"])
def test_offline_never_connects(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch, how: str
) -> None:
    flags = ["--offline"] if how == "flag" else []
    if not flags:
        monkeypatch.setenv(how, "1")
    assert "run `localspec pull tiny`" in error(capfd, "tiny", *flags, code=3)
    assert "localspec pull org/X:Q4_0" in error(capfd, "org/X:Q4_0", *flags, code=3)
    assert hub.log == []
    monkeypatch.delenv(how, raising=False)
    pull(capfd, "tiny")
    hub.forget()
    if not flags:
        monkeypatch.setenv(how, "1")
    pull(capfd, "tiny", *flags)
    pull(capfd, f"{TARGET}:Q4_K_M", *flags, "--draft", "none")
    assert hub.log == []


# -- disks -----------------------------------------------------------------------------------------


def test_a_full_disk_keeps_what_arrived_and_the_next_pull_continues(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    real, room = os.pwrite, [200_000]

    def write(handle: int, data: bytes, at: int) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(data)
        return real(handle, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(connection.os, "pwrite", write)
        line = error(capfd, "tiny", code=1)
    assert "the disk is full" in line
    kept = kept_bytes(models)
    assert kept > 0
    found = pulled(capfd, "tiny")
    assert found["fetched_bytes"] <= len(models.target) + len(models.draft) - kept


def test_a_disk_with_too_little_room_is_refused_before_anything_flows(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    usage = type("Usage", (), {"free": 100_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    assert "make room" in error(capfd, "tiny", code=1)
    assert not list(hf_cache.cache_folder().rglob("*incomplete"))


def test_a_cache_that_cannot_be_written_is_explained(
    hub: Hub, pair: Pair, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("HF_HOME", str(blocked))
    assert "HF_HOME" in error(capfd, "tiny", code=1)


def test_a_cache_on_a_read_only_disk_is_explained(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    def refuse(*_args: object) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(hf_cache, "place", refuse)
        assert "HF_HOME" in error(capfd, "tiny", code=1)
    pull(capfd, "tiny")
    monkeypatch.setattr(hf_cache, "write_ref", refuse)
    pull(capfd, f"{TARGET}:Q4_K_M", "--draft", "none")  # it is here: nothing needs to be written


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_cache_serves_what_it_has_and_refuses_the_rest(
    hub: Hub, pair: Pair, hf_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (hf_home / "hub").mkdir(parents=True)
    (hf_home / "hub").chmod(0o500)
    assert "HF_HOME" in error(capfd, "tiny", code=1)


def test_a_model_too_big_is_refused_unless_forced(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr("localspec.models.hub.pull_planner.quick_verdict", lambda *_: "too big")
    assert "--force" in error(capfd, "tiny", code=5)
    pull(capfd, "tiny", "--force")


# -- bad input -------------------------------------------------------------------------------------


def test_bad_names_and_files(
    hub: Hub, pair: Pair, models, tmp_path: Path, capfd: pytest.CaptureFixture[str], files: Files
) -> None:
    assert "did you mean tiny" in error(capfd, "tinny", code=3)
    line = error(capfd, "qwen3", code=3)
    assert line.count("qwen3") >= 4  # itself, and the closest three
    assert "empty" in error(capfd, "", code=2)
    hub.repo("org/Text-GGUF", {"README.md": b"no model"})
    assert "holds no GGUF model" in error(capfd, "org/Text-GGUF", code=3)
    hub.repo("org/Page-GGUF", {"page-Q4_0.gguf": b"<html>" * 9000})
    assert "is not a GGUF" in error(capfd, "org/Page-GGUF", code=7)
    hub.repo("org/Two-GGUF", {"a-Q4_K_M.gguf": models.target, "b-Q4_K_M.gguf": models.draft})
    line = error(capfd, "org/Two-GGUF", code=2)
    assert "org/Two-GGUF:a-Q4_K_M.gguf" in line
    assert "org/Two-GGUF:b-Q4_K_M.gguf" in line
    import gguf_tools

    bert = gguf_tools.write_bert(tmp_path / "bert.gguf").read_bytes()
    hub.repo("org/Bert-GGUF", {"bert-f32.gguf": bert})
    assert "embedding model" in error(capfd, "org/Bert-GGUF", code=7)
    cut = models.target[:3000]
    hub.repo("org/Cut-GGUF", {"cut-Q4_0.gguf": cut})
    assert "cut short or damaged" in error(capfd, "org/Cut-GGUF", code=7)
    hub.repo("org/Half-GGUF", {"half-Q4_0.gguf": models.target[:-100_000]})
    assert "is cut short on the Hub" in error(capfd, "org/Half-GGUF", code=7)
    assert not list(hf_cache.cache_folder().rglob("*incomplete"))
