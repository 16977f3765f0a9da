"""`localspec pull` that is interrupted, and a Hub in trouble."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest
from hub_server import (
    TARGET,
    TARGET_FILE,
    Fault,
    Hub,
    sha256,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_server import OddServer
from pulling import Pair, blob, error, kept_bytes, partial_bytes, pull, pulled
from waiting import until

from localspec import cli
from localspec.core.errors import LocalspecError
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.hub import download, file_fetcher, retry
from localspec.models.hub.byte_ranges import Claim, MissingRanges
from localspec.models.hub.client import StatusError
from localspec.models.hub.download_jobs import WaitNotices, digest_of
from localspec.models.hub.retry import Retry

pytest_plugins = ["hub_fixtures"]

ROOT = Path(__file__).parent.parent.parent
HALF = 700_000
"""Bytes after which the Hub trickles, those of the headers counted: a pull stays under way."""


# -- interruptions ---------------------------------------------------------------------------------


def test_cut_at_ten_places_and_resumed_without_fetching_twice(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    pull(capfd, "tiny", "--dry-run")  # headers are read and remembered
    size = len(models.target) + len(models.draft)
    for place in sorted(random.Random(5).sample(range(20_000, len(models.target)), 10)):
        hub.forget()
        fetched_before = kept_bytes(models)
        hub.cuts = [place]
        monkeypatch.setattr("localspec.models.hub.retry.ATTEMPTS", 1)
        code = cli.call(["pull", "tiny"])
        out = capfd.readouterr()
        assert code in {0, 1}, out.err
        assert hub.sent <= size - fetched_before + 0.01 * size + 2 * (1 << 18)
    hub.cuts = []
    assert pulled(capfd, "tiny")["installed"] is True
    assert blob(TARGET, models.target).read_bytes() == models.target


def test_all_transfers_of_a_resumed_pull_are_the_size_and_no_more(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    data = models.target + random.Random(1).randbytes(2_000_000)
    hub.repo("org/Long-GGUF", {"long-Q4_0.gguf": data})
    pull(capfd, "org/Long-GGUF", "--dry-run", "--draft", "none")
    hub.forget()
    hub.cuts = sorted(random.Random(7).sample(range(1, len(data)), 10))
    found = pulled(capfd, "org/Long-GGUF", "--draft", "none")
    assert hub.cuts == []
    assert len(data) <= found["fetched_bytes"] <= len(data) * 1.01  # type: ignore[operator]
    assert hub.sent <= len(data) * 1.01
    assert blob("org/Long-GGUF", data).read_bytes() == data


def test_a_killed_pull_is_continued_by_another_process(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.most = HALF
    process = _process("pull", "tiny")
    until(lambda: partial_bytes() > 150_000, process=process)
    process.kill()
    process.communicate()
    kept = kept_bytes(models)
    hub.most = None
    hub.forget()
    found = pulled(capfd, "tiny")
    rest = len(models.target) + len(models.draft) - kept
    assert found["fetched_bytes"] == rest


@pytest.mark.slow
def test_ctrl_c_keeps_what_arrived_and_says_how_to_go_on(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.most = HALF
    process = _process("pull", "tiny")
    until(lambda: partial_bytes() > 100_000, process=process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues from there" in err
    assert "Traceback" not in err
    assert kept_bytes(models) > 100_000
    hub.most = None
    pull(capfd, "tiny")


@pytest.mark.slow
def test_two_pulls_at_once_fetch_once(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.most = 2 * HALF  # both read the headers
    both = [_process("pull", "tiny", "--json") for _ in range(2)]
    for process in both:
        until(lambda: partial_bytes() > 0, process=process)
    hub.most = None
    answers = [json.loads(p.communicate(timeout=60)[0]) for p in both]
    assert [p.returncode for p in both] == [0, 0]
    size = len(models.target) + len(models.draft)
    assert sum(a["fetched_bytes"] for a in answers) == size
    assert blob(TARGET, models.target).read_bytes() == models.target


def _process(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "localspec", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )


# -- a Hub in trouble ------------------------------------------------------------------------------


def test_a_server_that_asks_to_wait_is_waited_for(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.faults = [
        Fault("/api/", 429, {"Retry-After": "1"}),
        Fault("/api/", 503),
        Fault("/api/", 429, {"RateLimit": '"api";r=0;t=1'}),
        Fault("/resolve/", 500),
        Fault("/cdn/", 502),
        Fault("/cdn/", 403),  # an address whose signature has run out
    ]
    begun = time.monotonic()
    pull(capfd, "tiny")
    assert hub.faults == []
    assert time.monotonic() - begun >= 2.0


def test_an_address_that_has_run_out_behind_other_trouble_is_asked_for_again(monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.test")

    def refusal(status: int) -> StatusError:
        response = httpx2.Response(status, request=httpx2.Request("GET", "https://cdn.test/x"))
        response.history = [response]
        return StatusError(response)

    tried = Retry("org/repo", WaitNotices())
    for status in (500, 502, 503, 403, 502, 403):
        tried.count(refusal(status))
    with pytest.raises(LocalspecError, match="refuses"):
        tried.count(refusal(403))


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [(429, {"Retry-After": "3600"}, "asks to wait for 3600 s"), (503, {}, "has a problem")],
)
def test_a_server_that_stays_in_trouble_is_one_line(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], status: int, headers, words: str
) -> None:
    hub.faults = [Fault(".", status, headers) for _ in range(20)]
    assert words in error(capfd, "tiny", code=1)


def test_a_line_that_goes_silent_is_given_up_and_taken_up_again(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    pull(capfd, "tiny", "--dry-run")
    monkeypatch.setattr("localspec.models.hub.client.READ_TIMEOUT", 0.3)
    hub.stalls = [400_000, 700_000]
    found = pulled(capfd, "tiny")
    assert hub.stalls == []
    assert found["fetched_bytes"] == len(models.target) + len(models.draft)


def test_no_server_at_all_is_one_line(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot reach http://127.0.0.1:9" in error(capfd, "tiny", code=1)


def test_without_a_network_the_error_says_so_and_what_still_works(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example:9")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = error(capfd, "tiny", code=1)
    assert "there is no network" in said
    assert "the demo and downloaded models still work" in said
    assert "Errno" not in said


def test_a_server_without_ranges_still_serves(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.ranges = False
    hub.cuts = [len(models.target) - 1000]
    pull(capfd, "tiny")
    assert blob(TARGET, models.target).read_bytes() == models.target


def test_a_server_without_ranges_that_never_gets_further_is_given_up(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny", "--dry-run")
    hub.ranges = False
    hub.cuts = [len(models.target) // 2] * 100
    assert "breaks off before its end" in error(capfd, "tiny", code=1)
    assert len(hub.cuts) > 90


def test_a_server_without_ranges_that_gets_further_each_time_is_not_given_up(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny", "--dry-run")
    hub.ranges = False
    hub.cuts = [*range(200_000, 200_000 + 20 * 1000, 1000)]
    pull(capfd, "tiny")
    assert hub.cuts == []
    assert blob(TARGET, models.target).read_bytes() == models.target


@pytest.mark.parametrize("length", [True, False])
def test_a_login_page_instead_of_the_rest_of_a_file_costs_nothing_that_has_arrived(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], length: bool
) -> None:
    pull(capfd, "tiny", "--dry-run")
    part = hf_cache.partial(TARGET, sha256(models.target))
    part.parent.mkdir(parents=True)
    part.write_bytes(models.target[:500_000])
    hub.portal, hub.portal_length = b"<html>log in</html>" * 100, length
    line = error(capfd, "tiny", code=1)
    assert "login page" in line
    assert "text/html" in line
    assert part.read_bytes() == models.target[:500_000]
    hub.portal = None
    found = pulled(capfd, "tiny")
    assert found["fetched_bytes"] == len(models.target) + len(models.draft) - 500_000


def test_a_login_page_instead_of_a_file_is_no_beginning_of_it(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny", "--dry-run")
    hub.portal = b"<html>log in</html>" * 100
    assert "login page" in error(capfd, "tiny", code=1)
    assert partial_bytes() == 0
    hub.portal = None
    found = pulled(capfd, "tiny")
    assert found["fetched_bytes"] == len(models.target) + len(models.draft)


def test_a_login_page_instead_of_a_header_is_said(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.repo("org/Behind-GGUF", {"behind-Q4_0.gguf": models.target})
    hub.portal = b"<html>log in</html>" * 100
    assert "login page" in error(capfd, "org/Behind-GGUF", "--draft", "none", code=1)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_something_between_compresses_costs_nothing_that_has_arrived(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], ranges: bool
) -> None:
    pull(capfd, "tiny", "--dry-run")
    part = hf_cache.partial(TARGET, sha256(models.target))
    part.parent.mkdir(parents=True)
    part.write_bytes(models.target[:500_000])
    hub.compresses, hub.ranges = True, ranges
    line = error(capfd, "tiny", code=1)
    assert "compressed (gzip)" in line
    assert part.read_bytes() == models.target[:500_000]
    hub.compresses, hub.ranges = False, True
    found = pulled(capfd, "tiny")
    assert found["fetched_bytes"] == len(models.target) + len(models.draft) - 500_000


@pytest.mark.parametrize("ranges", [True, False])
def test_a_header_that_something_between_compresses_is_said(
    hub: Hub, models, capfd: pytest.CaptureFixture[str], ranges: bool
) -> None:
    hub.repo("org/Behind-GGUF", {"behind-Q4_0.gguf": models.target})
    hub.compresses, hub.ranges = True, ranges
    line = error(capfd, "org/Behind-GGUF", "--draft", "none", code=1)
    assert "compressed (gzip)" in line


PAGE = b"<html><body>Log in</body></html>"


@pytest.mark.parametrize("mirror", [True, False])
def test_a_login_page_instead_of_the_first_answer_is_said(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch, mirror: bool
) -> None:
    if not mirror:
        monkeypatch.delenv("HF_ENDPOINT")
        monkeypatch.setattr("localspec.models.hub.client.HUB", hub.url)
    hub.said = PAGE
    line = error(capfd, "tiny", code=1)
    assert "a login page of the network or a proxy" in line
    assert "log in with a browser" in line
    assert ("HF_ENDPOINT" in line) is mirror
    hub.said = b"no JSON"
    line = error(capfd, "tiny", code=1)
    assert "login page" not in line
    assert ("HF_ENDPOINT" in line) is mirror


@pytest.mark.parametrize(
    ("status", "words"), [(511, "log in with a browser"), (407, "the proxy wants a login (407)")]
)
@pytest.mark.parametrize("where", ["/api/", "/cdn/"])
def test_a_network_or_a_proxy_that_wants_a_login_is_said_at_once(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], where: str, status: int, words: str
) -> None:
    hub.faults = [Fault(where, status) for _ in range(9)]
    line = error(capfd, "tiny", code=1)
    assert words in line
    assert "HF_ENDPOINT" not in line
    assert len(hub.faults) >= 7  # two files are fetched at a time


def test_a_proxy_that_wants_a_login_before_it_connects_is_said_at_once(
    hub: Hub, pair: Pair, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with OddServer(refusal) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert "the proxy wants a login (407)" in error(capfd, "tiny", code=1)
    assert proxy.asked == 1


def test_a_login_page_for_a_while_is_waited_for(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    pull(capfd, "tiny", "--dry-run")
    hub.portal = b"<html>log in</html>"
    wait = retry.Retry.wait

    def opened(self: retry.Retry, error: Exception) -> None:
        hub.portal = None
        wait(self, error)

    monkeypatch.setattr(retry.Retry, "wait", opened)
    assert pulled(capfd, "tiny")["fetched_bytes"] == len(models.target) + len(models.draft)


def test_a_download_that_begins_again_is_not_taken_for_a_file_that_somebody_cut(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied, restart = threading.Event(), MissingRanges.restart

    class Late:
        """Has hashed one block when the file is emptied."""

        def __init__(self, entry: RepoFile) -> None:
            self.real = digest_of(entry)

        def update(self, block: bytes) -> None:
            assert emptied.wait(10)
            self.real.update(block)

        def hexdigest(self) -> str:
            return self.real.hexdigest()

    def begins(self: MissingRanges, claim: Claim) -> None:
        emptied.set()
        time.sleep(0.2)  # the reader looks at the empty file
        restart(self, claim)

    monkeypatch.setattr(file_fetcher, "digest_of", Late)
    monkeypatch.setattr(MissingRanges, "restart", begins)
    hub.ranges = False
    hub.cuts = [len(models.target) - 1000]
    pull(capfd, "tiny")
    assert blob(TARGET, models.target).read_bytes() == models.target


def test_wrong_content_is_refused_and_nothing_of_it_kept(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    pull(capfd, "tiny", "--dry-run")
    hub.wrong[sha256(models.target)] = models.target[:-1] + b"!"
    line = error(capfd, "tiny", code=7)
    assert "not what it states" in line
    assert not blob(TARGET, models.target).exists()
    assert not hf_cache.partials(TARGET)
    assert cli.call(["run", "x", "-m", "tiny"]) == 3
    assert "localspec pull tiny" in capfd.readouterr().err
    hub.wrong.clear()
    pull(capfd, "tiny")


def test_a_damaged_partial_file_is_begun_again(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    part = hf_cache.partial(TARGET, sha256(models.target))
    part.parent.mkdir(parents=True)
    for rubbish in (b"rubbish" * 5000, b"x" * (len(models.target) + 5)):
        part.write_bytes(rubbish)
        pull(capfd, "tiny")
        assert blob(TARGET, models.target).read_bytes() == models.target
        blob(TARGET, models.target).unlink()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_found_and_fetched_again(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    pull(capfd, "tiny")
    path = blob(TARGET, models.target)
    flipped = bytearray(models.target)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes({"flip": bytes(flipped), "cut": models.target[:9999], "empty": b""}[damage])
    assert "damaged: " in error(capfd, "tiny", "--offline", code=7)
    hub.forget()
    out, err = pull(capfd, "tiny", "--json")
    assert json.loads(out)["fetched_bytes"] == len(models.target)
    assert "is damaged; downloading it again" in err
    assert path.read_bytes() == models.target


def test_a_file_replaced_under_its_name_is_new_and_the_old_one_stays(
    hub: Hub, models, capfd: pytest.CaptureFixture[str]
) -> None:
    repo = hub.repo("org/Drift-GGUF", {"drift-Q4_K_M.gguf": models.target})
    before = repo.main
    pull(capfd, "org/Drift-GGUF", "--draft", "none")
    newer = models.target + b"\0" * 4096
    repo.commit({"drift-Q4_K_M.gguf": newer})
    found = pulled(capfd, "org/Drift-GGUF", "--draft", "none")
    assert "was replaced on the Hub since" in found["notices"][0]  # type: ignore[index]
    assert found["target"]["revision"] == repo.main != before  # type: ignore[index]
    assert blob("org/Drift-GGUF", models.target).is_file()
    assert blob("org/Drift-GGUF", newer).is_file()
    assert hf_cache.ref("org/Drift-GGUF") == repo.main


def test_a_pinned_file_is_the_pinned_one_or_none(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str]
) -> None:
    target, _ = pair
    pinned = target.main
    target.commit({TARGET_FILE: models.target + b"\0" * 64})
    pull(capfd, "tiny")  # the pin is an older commit, and still there
    assert blob(TARGET, models.target).is_file()
    target.commits[pinned][TARGET_FILE] = models.draft  # history rewritten under one hash
    blob(TARGET, models.target).unlink()
    assert "no longer the file that models.toml pins" in error(capfd, "tiny", code=7)
    del target.commits[pinned]
    assert "no longer has the commit" in error(capfd, "tiny", code=7)
    target.commit({TARGET_FILE: models.target})
    assert "was rewritten" in " ".join(pull(capfd, "tiny")[0].split())
    assert cli.call(["run", "x", "-m", "tiny", "-n", "2"]) == 0


def test_a_file_replaced_during_the_pull_is_noticed(
    hub: Hub, pair: Pair, models, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    target, _ = pair
    real = download.obtain

    def swapped(*args: object) -> Path:
        target.commits[target.main][TARGET_FILE] = models.foreign
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("localspec.models.hub.transfers.obtain", swapped)
    assert "was replaced while it was being pulled" in error(capfd, "tiny", code=7)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_goes_wrong_a_file_is_whole_or_not_there(
    hub: Hub, models, data: st.DataObject
) -> None:
    name, content = f"org/Luck-{len(hub.repos)}-GGUF", models.target
    hub.repo(name, {"luck-Q4_0.gguf": content})
    place = blob(name, content)
    offsets = st.lists(st.integers(1, len(content)), max_size=3)
    faults = [("/cdn/", 503), ("/resolve/", 500), ("/api/", 502), ("/cdn/", 403), ("/cdn/", 404)]
    for _ in range(6):
        hub.cuts = sorted(data.draw(offsets))
        hub.ranges = data.draw(st.booleans())
        hub.faults = [Fault(*f) for f in data.draw(st.lists(st.sampled_from(faults), max_size=2))]
        hub.wrong = {sha256(content): content[::-1]} if data.draw(st.booleans()) else {}
        part = hf_cache.partial(name, sha256(content))
        if part.is_file() and data.draw(st.booleans()):
            part.write_bytes(part.read_bytes()[: data.draw(st.integers(0, 99))] + b"?")
        code = cli.call(["pull", name, "--draft", "none"])
        assert code in {0, 1, 3, 4, 7}
        assert place.is_file() is (code == 0)
        if code == 0:
            break
    hub.cuts, hub.faults, hub.wrong, hub.ranges = [], [], {}, True
    assert cli.call(["pull", name, "--draft", "none"]) == 0
    assert place.read_bytes() == content
