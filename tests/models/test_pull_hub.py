"""The Hub and its mirrors as they really behave, and what `localspec pull` makes of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from hub_server import (
    DRAFT,
    DRAFT_FILE,
    TARGET,
    TARGET_FILE,
    Fault,
    Hub,
    own_catalogue,
    sha256,
)
from huggingface_hub.utils import _shared_blobs
from odd_server import HEAD, OddServer
from pulling import Pair, pull
from waiting import until

from localspec import cli
from localspec.core.errors import Interrupted, LocalspecError, UsageError
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.hub import (
    api,
    byte_ranges,
    client,
    connection,
    connection_limit,
    download,
    file_fetcher,
    retry,
)
from localspec.models.hub.client import NotAHubError
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress, WaitNotices
from localspec.models.hub.error_messages import _without_access, hub_error
from localspec.models.hub.listings import valid_entries
from localspec.models.hub.pull_planner import prepare

pytest_plugins = ["hub_fixtures"]
ROOT = Path(__file__).parent.parent.parent
ONE, FILE = "org/One-GGUF", "one-Q4_0.gguf"


def pulled(capfd: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    return json.loads(pull(capfd, *args, "--draft", "none", "--json")[0])


def error(capfd: pytest.CaptureFixture[str], *args: str, code: int) -> str:
    _, err = pull(capfd, *args, code=code)
    lines = [x for x in err.splitlines() if x.startswith("localspec: ")]
    assert lines, err
    return lines[-1]


def path_of(found: dict[str, object]) -> Path:
    return Path(found["target"]["path"])  # type: ignore[index]


# -- the cache that others have filled -------------------------------------------------------------


@pytest.fixture
def shared(hub: Hub, pair: Pair, hf_home: Path) -> None:
    """The pair as huggingface_hub 2.4 leaves it after a transfer over Xet."""
    cache = hf_home / "hub"
    for repo, file in ((TARGET, TARGET_FILE), (DRAFT, DRAFT_FILE)):
        huggingface_hub.hf_hub_download(repo, file, cache_dir=cache, endpoint=hub.url, token=False)
        path = next(hf_cache.repo_folder(repo).glob("snapshots/*/*.gguf"))
        blob = hf_cache.repo_folder(repo) / "blobs" / hf_cache.etag(path)
        assert _shared_blobs.publish_blob_to_shared_store(
            blob_path=str(blob),
            xet_hash=sha256(b"xet" + path.read_bytes()),
            cache_dir=cache,
            expected_size=path.stat().st_size,
        )
        assert blob.is_symlink()
    hub.forget()


def test_a_file_in_huggingface_hubs_shared_store_is_whole_here(
    hub: Hub, pair: Pair, shared: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "already downloaded" in pull(capfd, "tiny", "--offline")[0]
    assert "complete" in pull(capfd, "tiny")[0]
    assert pulled(capfd, TARGET)["notices"] == []
    assert hub.downloads() == []


def test_a_file_in_the_shared_store_is_known_by_its_hash_at_any_commit(
    hub: Hub, pair: Pair, models, shared: None, capfd: pytest.CaptureFixture[str]
) -> None:
    target = pair[0]
    target.commit({"README.md": b"newer"})
    assert pulled(capfd, TARGET)["notices"] == []  # the file is the same: nothing was replaced
    hub.forget()
    own_catalogue(
        f'[pinned]\ntarget = {{ repo = "{TARGET}", file = "{TARGET_FILE}", '
        f'revision = "{"e" * 40}", sha256 = "{sha256(models.target)}" }}\n'
        f'[loose]\ntarget = {{ repo = "{TARGET}", file = "{TARGET_FILE}" }}\n'
    )
    for name in ("pinned", "loose"):
        assert "already downloaded" in pull(capfd, name, "--offline")[0]
        assert cli.call(["run", "x", "-m", name, "-n", "1"]) == 0
        capfd.readouterr()
    assert hub.log == []


def test_a_damaged_file_in_the_shared_store_is_fetched_into_the_repository(
    hub: Hub, pair: Pair, models, shared: None, capfd: pytest.CaptureFixture[str]
) -> None:
    store = next(hf_cache.repo_folder(TARGET).glob("blobs/*")).resolve()
    store.chmod(0o600)
    store.write_bytes(b"?" * store.stat().st_size)
    pull(capfd, "tiny")
    path = next(hf_cache.repo_folder(TARGET).glob("snapshots/*/*.gguf"))
    assert path.read_bytes() == models.target


def test_links_may_be_forbidden(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repo(ONE, {FILE: models.target})
    monkeypatch.setenv("HF_HUB_DISABLE_SYMLINKS", "1")
    path = path_of(pulled(capfd, ONE))
    assert not path.is_symlink()
    assert path.read_bytes() == models.target
    hub.forget()
    pulled(capfd, ONE)
    assert hub.downloads() == []


def test_a_pinned_file_that_was_renamed_is_found_by_its_hash(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    target, _ = pair
    target.commits.clear()  # the history squashed, the file under another name
    target.commit({"renamed-Q4_K_M.gguf": models.target})
    assert "was rewritten" in " ".join(pull(capfd, "tiny")[0].split())
    hub.forget()
    assert "already downloaded" in pull(capfd, "tiny", "--offline")[0]
    assert cli.call(["run", "x", "-m", "tiny", "-n", "1"]) == 0
    assert hub.log == []
    capfd.readouterr()
    assert cli.call(["rm", "tiny", "-y"]) == 0
    assert not list(hf_cache.repo_folder(TARGET).glob("snapshots/*/*.gguf"))


# -- revisions -------------------------------------------------------------------------------------


def test_a_branch_a_tag_a_commit_and_a_pull_request_can_be_named(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hub.repo(ONE, {FILE: models.target})
    data = {name: models.target + bytes([i]) * 64 for i, name in enumerate(("v2", "refs/pr/1"))}
    for name, content in data.items():
        repo.branch(name, {FILE: content})
    site = f"{hub.url}/{ONE}"
    for text, revision in {
        f"{ONE}@v2": "v2",
        f"{site}/resolve/v2/{FILE}?download=true": "v2",
        f"{site}/blob/refs%2Fpr%2F1/{FILE}": "refs/pr/1",
        f"{site}/discussions/1": "refs/pr/1",
        f"{site}/commit/{repo.refs['v2']}": "v2",
        f"hf://models/{ONE}@refs/pr/1/{FILE}": "refs/pr/1",
    }.items():
        found = pulled(capfd, text)
        assert path_of(found).read_bytes() == data[revision]
        assert found["target"]["revision"] == repo.refs[revision]  # type: ignore[index]
    assert path_of(pulled(capfd, ONE)).read_bytes() == models.target
    assert hf_cache.ref(ONE) == repo.main
    assert hf_cache.ref(ONE, "refs/pr/1") == repo.refs["refs/pr/1"]
    assert "no such commit, branch or tag" in error(capfd, f"{ONE}@v9", code=3)
    hub.forget()
    for name, content in data.items():
        found = pulled(capfd, f"{ONE}@{name}", "--offline")
        assert path_of(found).read_bytes() == content
    assert f"pull {ONE}@v9:Q4_0" in error(capfd, f"{ONE}@v9:Q4_0", "--offline", code=3)
    assert hub.log == []


def test_a_folder_that_is_linked_is_what_is_pulled(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo(ONE, {"new/m-Q4_0.gguf": models.target, "old/m-Q4_0.gguf": models.draft})
    for folder, content in (("new", models.target), ("old", models.draft)):
        found = pulled(capfd, f"{hub.url}/{ONE}/tree/main/{folder}")
        assert path_of(found).read_bytes() == content


# -- proxies and the environment -------------------------------------------------------------------


PROXIES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture
def proxies(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.usefixtures("proxies", "pair")
@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks"])
def test_a_socks_proxy_needs_a_package_and_the_line_says_which(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://me:secret@127.0.0.1:9")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    line = error(capfd, "tiny", code=1)
    assert "socksio" in line
    assert "HF_ENDPOINT" not in line
    assert "secret" not in line


@pytest.mark.usefixtures("proxies", "pair")
@pytest.mark.parametrize(
    "proxy", ["ftp://x:1", "http://", "http://[x", "http://x:port", "socks4://x"]
)
def test_a_proxy_that_is_none_is_named_at_once(
    hub: Hub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert "HTTP_PROXY=" in error(capfd, "tiny", code=2)
    assert hub.log == []


@pytest.mark.usefixtures("proxies", "pair")
def test_an_odd_proxy_for_other_addresses_hurts_nobody(
    hub: Hub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "what is that")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    pull(capfd, "tiny")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that wait for each byte as long as no test does."""
    monkeypatch.setattr(client, "READ_TIMEOUT", 600.0)


def asking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "asking the Hub"]


SLOW = [(b"", False), (b"HTTP/1.1 200 OK\r\nX:", True), (HEAD, True)]


@pytest.mark.usefixtures("hf_home", "patient")
@pytest.mark.parametrize(("said", "trickles"), SLOW, ids=["silent", "a slow head", "a slow body"])
def test_planning_that_is_cancelled_waits_for_no_answer(
    monkeypatch: pytest.MonkeyPatch, said: bytes, trickles: bool
) -> None:
    waits, ended = WaitNotices(), []

    def plan() -> None:
        with pytest.raises(Interrupted):
            prepare(ONE, None, waits)
        ended.append(True)

    with OddServer(said, trickles=trickles) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "*")
        planning = threading.Thread(target=plan)
        planning.start()
        until(lambda: hub.asked)
        waits.cancel.set()
        until(lambda: ended)
        if said == HEAD:
            until(lambda: not asking())  # nobody reads on
    planning.join()
    until(lambda: not asking())


@pytest.mark.usefixtures("hf_home", "patient")
def test_an_answer_that_comes_too_slowly_is_given_up(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER", 0.1)
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.01)
    with OddServer(HEAD, trickles=True) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "*")
        assert "the answer comes too slowly" in error(capfd, ONE, code=1)
    assert hub.asked > 1


@pytest.mark.usefixtures("patient")
def test_a_header_that_comes_too_slowly_is_given_up(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER", 0.1)
    monkeypatch.setattr(api, "_cached", {})  # by a test before
    hub.repo(ONE, {FILE: models.target})
    hub.most = 0
    assert "the answer comes too slowly" in error(capfd, ONE, code=1)


def test_a_large_answer_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER", -9.0)
    chunks = [bytes(200_000)] * 2
    assert list(client.in_time(iter(chunks), threading.Event())) == chunks
    with pytest.raises(httpx2.ReadTimeout):
        list(client.in_time(iter([b"x"]), threading.Event()))


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("address", ["hub.example", "ftp://hub.example", "http://", "http://[x"])
def test_an_endpoint_that_is_no_address_is_named_at_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setattr(retry, "FIRST_WAIT", 1e6)
    assert f"HF_ENDPOINT={address} is not an http address" in error(capfd, "tiny", code=2)


def test_the_token_may_be_kept_back(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    pull(capfd, "tiny")
    assert all(request.token is None for request in hub.log)
    hub.repo(ONE, {FILE: models.target}, gated=True)
    assert "HF_HUB_DISABLE_IMPLICIT_TOKEN withholds" in error(capfd, ONE, code=4)


@pytest.mark.usefixtures("pair")
def test_a_token_that_cannot_be_one_is_a_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_größe")
    assert "HF_TOKEN" in error(capfd, "tiny", code=4)


@pytest.mark.parametrize("name", ["HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
def test_a_timeout_that_is_no_number_is_a_sentence(hub: Hub, pair: Pair, name: str) -> None:
    process = _process("pull", "tiny", **{name: "soon"})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{name}=soon must be a whole number of seconds" in err
    assert "Traceback" not in err


def test_a_timeout_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "9" * 5000)  # which int() refuses
    with pytest.raises(UsageError, match="whole number of seconds"):
        client.timeout("HF_HUB_DOWNLOAD_TIMEOUT")
    monkeypatch.delenv("HF_HUB_DOWNLOAD_TIMEOUT")
    assert client.timeout("HF_HUB_DOWNLOAD_TIMEOUT").read == client.READ_TIMEOUT
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "7")
    assert client.timeout("HF_HUB_DOWNLOAD_TIMEOUT").read == 7


def test_nobody_is_asked_but_for_what_is_pulled(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny")
    assert all(
        request.path.startswith((f"/api/models/{name}", f"/{name}/resolve/", "/cdn/"))
        for request in hub.log
        for name in [TARGET if TARGET in request.path else DRAFT]
    )


# -- mirrors and odd answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "http://bob:secret@127.0.0.1:1",
        "http://bob:a secret@127.0.0.1:1",
        "http://bob:12345/secret@127.0.0.1:1",
        "http://bob:secret@127.0.0.1:1/https://huggingface.co",
        "http://127.0.0.1:1/?token=secret",
        "bob:secret@mirror",
        "bob:secret@",
    ],
)
def test_a_password_in_the_address_of_a_mirror_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", text)
    for failure in (OSError("refused"), NotAHubError("it sends no JSON")):
        with pytest.raises(LocalspecError) as refused:
            raise hub_error("u/r", failure, 0.0)
        assert "secret" not in str(refused.value)
    with pytest.raises(LocalspecError) as refused:
        raise api._Listing("u/r", WaitNotices())._not_a_hub("it sends no JSON")
    assert "secret" not in str(refused.value)
    with contextlib.suppress(UsageError):  # it is no address; what that says was looked at above
        assert "secret" not in _without_access("u/r")


def test_a_mirror_in_a_folder_with_an_at_sign_is_named_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/@team/hub")
    assert "reach https://mirror.example/@team/hub:" in str(hub_error("u/r", OSError("no"), 0.0))


@pytest.mark.parametrize("tree", [True, False])
def test_a_mirror_that_lists_no_sizes_is_asked_in_other_ways(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], tree: bool
) -> None:
    hub.repo(ONE, {FILE: models.target, "README.md": b"# one"})
    hub.blobs, hub.tree = False, tree
    assert path_of(pulled(capfd, ONE)).read_bytes() == models.target
    assert any(request.method == "HEAD" for request in hub.log) is not tree


def test_a_mirror_that_states_no_hash_at_all_is_named(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo(ONE, {FILE: models.target})
    hub.blobs = hub.tree = hub.heads = False
    assert "no sizes and hashes" in error(capfd, ONE, code=1)


@pytest.mark.parametrize("odd", ["\ud800.gguf", "../../x.gguf", "\0.gguf", "gone.gguf"])
def test_a_name_of_a_mirrors_listing_that_no_file_has_hides_no_other(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], odd: str
) -> None:
    repo = hub.repo(ONE, {FILE: models.target})
    listed = [{"rfilename": odd}, {"rfilename": FILE}]
    hub.said = json.dumps({"sha": repo.main, "siblings": listed}).encode()
    assert pulled(capfd, ONE, "--dry-run")["target"]["bytes"] == len(models.target)  # type: ignore[index]
    asked = [request.path for request in hub.log if request.method == "HEAD"]
    assert len(asked) == 1 + (odd == "gone.gguf")


def test_a_repository_of_many_files_is_read_page_by_page(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {f"notes/{i}.txt": b"%d" % i for i in range(1100)}
    hub.repo(ONE, {**files, FILE: models.target})
    hub.page = 300
    pulled(capfd, ONE)
    assert sum("/tree/" in request.path for request in hub.log) == 4


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>log in to the hotel's network</html>",
        b"[]",
        b"null",
        b"{}",
        b"[" * 200_000,
        b'{"sha": 7}',
        b'{"sha": "' + b"0" * 40 + b'"}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [3]}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": 3}]}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "m.gguf", "size": "big"}]}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "m", "size": -1}]}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "m", "size": 1, "lfs": [1]}]}',
        b'"' + b"x" * (33 << 20) + b'"',
        b"\xff\xfe",
    ],
)
def test_an_answer_that_is_none_of_a_hubs_is_one_sentence(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], answer: bytes
) -> None:
    hub.repo(ONE, {FILE: models.target})
    hub.said = answer
    assert "does not answer as a Hub does" in error(capfd, ONE, code=1)


@pytest.mark.parametrize(
    "name",
    [
        *("a\x1b]0;x\x07", "a\0b", "a\u202eb", "a\ud800b", "../a", "a//b", "..\\..\\a", "a\\b"),
        *("C:x", "C:/x", "a.txt:b", "NUL/x", "a/con.b/x", "aux .b/x", "Com1/x", "lpt\u00b2.b/x"),
        *("CONOUT$/x", ".. /x", "a./x"),  # what Windows does not take for a name
    ],
)
def test_a_file_whose_name_may_not_be_shown_or_made_is_not_there(
    hub: Hub, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    hub.repo(ONE, {})
    listed = {"rfilename": f"{name}-Q4_0.gguf", "size": 9, "blobId": "0" * 40}
    hub.said = json.dumps({"sha": "0" * 40, "siblings": [listed]}).encode()
    assert "holds no GGUF model" in error(capfd, ONE, code=3)


def test_names_that_only_begin_like_a_device_are_names() -> None:
    names = ["console/nullify.gguf", "com10.gguf", "a con.gguf", "lpt.gguf", ".aux/a..b.gguf"]
    entries = [RepoFile(name, 9, oid="0" * 40) for name in names]
    assert valid_entries(entries) == entries


def test_a_header_that_would_be_enormous_is_not_fetched(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    import struct

    key = b"general.name"
    start = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key
    hub.repo(ONE, {FILE: start + struct.pack("<IQ", 8, 90 << 20) + bytes(91 << 20)})
    error(capfd, ONE, "--dry-run", code=7)
    assert hub.sent < 66 << 20


@pytest.mark.parametrize(("status", "words"), [(403, "not the reason"), (400, "too large")])
def test_a_refusal_by_the_host_of_downloads_is_told_apart_from_the_hubs(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch, status: int, words: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    hub.repo(ONE, {FILE: models.target})
    hub.faults = [Fault("/cdn/", status) for _ in range(9)]
    line = error(capfd, ONE, code=1)
    assert "localhost, which the Hub sends downloads" in line
    assert words in line
    assert "HF_TOKEN" not in line


# -- waits -----------------------------------------------------------------------------------------


def test_a_wait_is_said_with_its_length(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SHOWN_FROM", 0.5)
    hub.faults = [
        Fault("/api/", 429, {"Retry-After": "1"}),
        Fault("/cdn/", 429, {"RateLimit": '"cdn";r=0;t=1'}),
    ]
    pull(capfd, "tiny", "--dry-run")
    hub.faults.append(Fault("/cdn/", 503, {"Retry-After": "1"}))
    _, err = pull(capfd, "tiny")
    assert "localhost has a problem (503); again in 1 s" in err
    assert hub.faults == []


@pytest.mark.usefixtures("pair")
def test_a_wait_before_files_flow_is_said(
    hub: Hub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SHOWN_FROM", 0.5)
    hub.faults = [Fault("/api/", 429, {"Retry-After": "1"})]
    _, err = pull(capfd, "tiny", "--dry-run")
    assert "localspec: the Hub asks to wait (429); again in 1 s" in err


def test_ctrl_c_ends_a_download_at_which_nothing_comes(hub: Hub, pair: Pair) -> None:
    hub.most, hub.hangs = 700_000, True
    patient = "from localspec.models.hub import client; client.READ_TIMEOUT = 600.0; "
    process = _python("-c", f"{patient}from localspec.__main__ import main; main()", "pull", "tiny")
    until(lambda: hub.sent >= 700_000 and bool(hf_cache.partials(TARGET)), process=process)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=100)  # of 600 that the connection may be silent
    finally:
        hub.hangs = False
    assert process.returncode == 130
    assert "continues from there" in err


# -- connections -----------------------------------------------------------------------------------


def obtained(hub: Hub, data: bytes) -> tuple[Path, DownloadProgress]:
    """A file fetched without the rest of a pull."""
    repo = hub.repo(ONE, {FILE: data})
    job = DownloadJob(ONE, repo.main, RepoFile(FILE, len(data), sha256(data)))
    progress = DownloadProgress(FILE, len(data))
    return download.obtain(job, progress, threading.Event(), ConnectionLimit()), progress


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several connections for files of a few hundred kilobytes. More are always taken for a gain:
    whether they are one depends on what else the machine does.
    """
    monkeypatch.setattr(file_fetcher, "BLOCK", 50_001)
    monkeypatch.setattr(file_fetcher, "_MOST_BLOCKS", 1000)
    monkeypatch.setattr(byte_ranges, "LEAST_SPLIT", 20_000)
    monkeypatch.setattr(connection_limit, "WARM_UP", 0.0)
    monkeypatch.setattr(connection_limit, "MEASURE", 1e-6)
    monkeypatch.setattr(connection_limit, "_LEAST_SAMPLE", 0)
    monkeypatch.setattr(connection_limit, "_GAIN", 0.0)


@pytest.mark.usefixtures("small")
def test_a_file_comes_over_several_connections_where_one_does_not_fill_the_line(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(2_000_003)
    hub.rate, hub.together = 2_000_000, 3
    real, lock, under_way = connection.Connection._fetch, threading.Lock(), [0, 0]

    def counted(self: connection.Connection, claim: byte_ranges.Claim) -> None:
        with lock:
            under_way[0] += 1
            under_way[1] = max(under_way)
        try:
            real(self, claim)
        finally:
            with lock:
                under_way[0] -= 1

    monkeypatch.setattr(connection.Connection, "_fetch", counted)
    path, progress = obtained(hub, data)
    assert path.read_bytes() == data
    assert 3 <= under_way[1] <= 1 + connection_limit.STEPS[-1]
    assert progress.done == len(data)
    assert progress.fetched <= 1.05 * len(data)
    assert len(hub.downloads()) <= 60
    assert not hf_cache.partials(ONE)
    assert not list(path.resolve().parent.glob("*missing*"))


@pytest.mark.usefixtures("small")
def test_several_connections_that_break_lose_nothing_and_fetch_little_twice(hub: Hub) -> None:
    data = os.urandom(1_500_000)
    hub.rate, hub.cuts = 600_000, [200_000, 640_000, 650_000, 1_200_000]
    path, progress = obtained(hub, data)
    assert path.read_bytes() == data
    assert progress.fetched <= 1.05 * len(data)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("killed", [False, True])
def test_a_pull_over_several_connections_is_continued_part_by_part(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    real = file_fetcher.FileFetcher._end
    if killed:  # it notes nothing at its end
        monkeypatch.setattr(file_fetcher.FileFetcher, "_end", lambda self: self._file.close())
        monkeypatch.setattr(file_fetcher, "_NOTED_EVERY", 1e9)
    data = os.urandom(1_500_000)
    repo = hub.repo(ONE, {FILE: data})
    job = DownloadJob(ONE, repo.main, RepoFile(FILE, len(data), sha256(data)))
    hub.rate, hub.together, hub.most, hub.hangs = 300_000, 3, 900_000, True
    cancel, progress = threading.Event(), DownloadProgress(FILE, len(data))

    def stopped() -> None:
        with contextlib.suppress(Interrupted):
            download.obtain(job, progress, cancel, ConnectionLimit())

    thread = threading.Thread(target=stopped)
    thread.start()
    part = hf_cache.partial(ONE, sha256(data))
    until(lambda: hub.open >= 3 and progress.done > 700_000)
    cancel.set()
    thread.join()
    missing = byte_ranges.read(hf_cache.ranges_file(part), part, len(data))
    assert missing is not None
    lacking = sum(end - start for start, end in missing)
    if not killed:
        assert len(missing) > 1
        assert lacking < 0.7 * len(data)
    hub.rate, hub.most, hub.hangs = None, None, False
    monkeypatch.setattr(file_fetcher.FileFetcher, "_end", real)
    path, progress = obtained(hub, data)
    assert path.read_bytes() == data
    # A connection that is slow on a busy machine is replaced, and what it still gets counts twice.
    assert progress.fetched <= lacking + 0.05 * len(data)


@pytest.mark.usefixtures("small")
def test_a_server_that_wants_one_connection_gets_one(hub: Hub) -> None:
    data = os.urandom(1_000_000)
    hub.rate = 500_000
    hub.repo(ONE, {FILE: data})
    real, seen = connection.Connection._fetch, []

    def limited(self: connection.Connection, claim: byte_ranges.Claim) -> None:
        if self.extra:
            seen.append(claim)
            hub.faults.append(Fault("/cdn/", 429))
        real(self, claim)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.Connection, "_fetch", limited)
        path, _ = obtained(hub, data)
    assert path.read_bytes() == data
    assert 0 < len(seen) <= 8


def test_an_edge_that_crawls_is_left_for_another(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_fetcher, "SLOW_AFTER", 0.3)
    monkeypatch.setattr(file_fetcher, "_MOST_DROPS", 2)  # the third may be slow, as machines are
    monkeypatch.setattr(client, "READ_TIMEOUT", 600.0)
    hub.crawls = 2
    data = os.urandom(300_000)
    path, _ = obtained(hub, data)
    assert path.read_bytes() == data
    assert len(hub.downloads()) == 3
    assert sum("/resolve/" in request.path for request in hub.log) == 3  # the Hub was asked again


def test_a_line_that_is_as_slow_as_that_is_not_given_up(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_fetcher, "SLOW_AFTER", 0.05)
    monkeypatch.setattr(file_fetcher, "LEAST_RATE", 1e12)
    drop = connection.Connection.drop
    hub.most, hub.hangs = 50_000, True

    def dropped(self: connection.Connection) -> None:
        hub.most, hub.hangs = None, False
        drop(self)

    monkeypatch.setattr(connection.Connection, "drop", dropped)
    data = os.urandom(100_000)
    path, _ = obtained(hub, data)
    assert path.read_bytes() == data
    assert 1 < len(hub.downloads()) <= 4


def test_a_range_from_another_place_is_not_taken(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], models
) -> None:
    hub.repo(ONE, {FILE: models.target})
    pull(capfd, ONE, "--dry-run", "--draft", "none")
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    hub.shift = 1
    assert "another range" in error(capfd, ONE, "--draft", "none", code=1)
    hub.shift = 0
    pull(capfd, ONE, "--draft", "none")


# -- network file systems --------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_pulled_to(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(fcntl, "flock", refuse)
    data = os.urandom(100_000)
    assert obtained(hub, data)[0].read_bytes() == data


def test_two_pulls_where_locks_do_not_hold_both_end_with_the_file(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_locked", lambda *_: contextlib.nullcontext())
    data = os.urandom(600_000)
    hub.repo(ONE, {FILE: data})
    hub.rate = 1_000_000
    found: list[Path] = []
    both = [threading.Thread(target=lambda: found.append(obtained(hub, data)[0])) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [path.read_bytes() == data for path in found] == [True, True]


# -- helpers ---------------------------------------------------------------------------------------


def _process(*args: str, **environment: str) -> subprocess.Popen[str]:
    return _python("-m", "localspec", *args, **environment)


def _python(*args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env=os.environ | environment,
    )
