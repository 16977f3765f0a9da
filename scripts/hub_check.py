"""Check that the real Hub behaves as our tests assume: one small public repository, seconds.

    scripts/hub_check.py [--repo USER/REPO] [--file FILE.gguf]

Each expectation is a line, `ok` or `DIFFERS` with what was seen; any that differs makes the exit
status 1. The fake Hub of our tests meets all of them, so a difference is an error in our tests.
HF_ENDPOINT checks a mirror instead. All files go into a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import hf_hub_download

from localspec.core.errors import LocalspecError, ModelNotFoundError
from localspec.models.catalog import hf_cache
from localspec.models.hub import api, client, download, error_messages, listings
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download import is_whole
from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress
from localspec.models.hub.error_messages import RevisionGoneError

_REPO, _FILE = "ggml-org/tiny-llamas", "stories260K.gguf"


class DiffersError(Exception):
    """An expectation that is not met; ``str`` says what was seen."""


def expect(what: object, seen: str) -> None:
    """Raise unless something is true."""
    if not what:
        raise DiffersError(seen)


class Expectations:
    """Our assumptions about the Hub, one method each, checked in this order."""

    def __init__(self, name: str, file: str) -> None:
        self.name, self.file = name, file
        self.repo = api.look_up(name)
        entry = self.repo.entry(file)
        expect(entry, f"{name} lists no {file}")
        assert entry is not None
        self.entry, self.job = entry, DownloadJob(name, self.repo.commit, entry, "main")
        self.url = api.url(name, self.repo.commit, file)
        self.headers = client.headers

    def a_listing_states_sizes_and_hashes(self) -> None:
        expect(self.entry.size > 0, f"size {self.entry.size}")
        expect(self.entry.sha256, "no sha256 of a large file")

    def the_tree_says_the_same_as_the_description(self) -> None:
        place = f"{client.endpoint()}/api/models/{self.name}/tree/{self.repo.commit}"
        page, _ = client.get_json(f"{place}?recursive=true", threading.Event())
        found = {entry.path: entry for entry in listings.files(page)}
        expect(found.get(self.file) == self.entry, f"{found.get(self.file)}, not {self.entry}")

    def head_says_size_and_hash(self) -> None:
        found = client.head(self.url)
        expect(found.get("X-Linked-Size") == str(self.entry.size), str(dict(found)))
        expect((found.get("X-Linked-ETag") or "").strip('"') == self.entry.etag, str(dict(found)))

    def a_range_is_answered_with_that_range(self) -> None:
        start, end = self.entry.size // 2, self.entry.size // 2 + 100
        with client.stream(self.url, self.headers(start=start, end=end)) as response:
            body = b"".join(response.iter_raw())
            said = response.headers.get("Content-Range")
            expect(response.status_code == 206, f"status {response.status_code}")
            expect(said == f"bytes {start}-{end - 1}/{self.entry.size}", f"Content-Range {said}")
            expect(len(body) == 100, f"{len(body)} bytes")

    def downloads_come_from_another_origin_without_the_token(self) -> None:
        with client.stream(self.url, self.headers(start=0, end=10)) as response:
            expect(response.history, "no redirect")
            expect("Authorization" not in response.request.headers, "the token went along")

    def a_commit_a_branch_and_a_pull_request_are_revisions(self) -> None:
        expect(api.look_up(self.name, self.repo.commit).commit == self.repo.commit, "another one")
        expect(api.look_up(self.name, "main").commit == self.repo.commit, "main is another")
        for revision in ("no-such-branch", "f" * 40, "refs/pr/999999"):
            try:
                found = api.look_up(self.name, revision).commit
            except RevisionGoneError:
                continue
            raise DiffersError(f"{revision} is {found}")

    def what_is_not_there_is_said_so(self) -> None:
        try:
            api.look_up("localspec-no-such-user/no-such-repository")
            raise DiffersError("a repository that nobody made")
        except ModelNotFoundError:
            pass
        place = api.url(self.name, self.repo.commit, "no-such-file.gguf")
        try:
            with client.stream(place, self.headers()):
                raise DiffersError("a file that nobody put there")
        except client.StatusError as error:
            found = error_messages.hub_error(self.name, error, 0.0)
            expect("no such file" in str(found), str(found))

    def half_a_file_is_continued(self) -> None:
        half, part = self.entry.size // 2, hf_cache.partial(self.name, self.entry.etag)
        part.parent.mkdir(parents=True)
        progress, cancel = DownloadProgress(self.file, self.entry.size), threading.Event()
        path = download.obtain(self.job, progress, cancel, ConnectionLimit())
        expect(progress.fetched == self.entry.size, f"{progress.fetched} bytes fetched")
        whole = path.read_bytes()
        path.resolve().unlink()
        part.write_bytes(whole[:half])
        progress = DownloadProgress(self.file, self.entry.size)
        path = download.obtain(self.job, progress, cancel, ConnectionLimit())
        expect(path.read_bytes() == whole, "another file")
        expect(progress.fetched == self.entry.size - half, f"{progress.fetched} bytes fetched")

    def huggingface_hub_finds_what_we_fetched(self) -> None:
        found = hf_hub_download(
            self.name, self.file, cache_dir=hf_cache.cache_folder(), local_files_only=True
        )
        expect(Path(found).stat().st_size == self.entry.size, found)

    def we_find_what_huggingface_hub_fetched(self) -> None:
        os.environ["HF_HUB_CACHE"] = str(hf_cache.cache_folder().with_name("theirs"))
        hf_hub_download(
            self.name,
            self.file,
            cache_dir=hf_cache.cache_folder(),
            endpoint=client.endpoint(),
            token=client.token() or False,
        )
        path = hf_cache.find_file(self.name, self.file, self.repo.commit)
        expect(path is not None, "nothing")
        assert path is not None
        expect(hf_cache.etag(path) == self.entry.etag, f"hash {hf_cache.etag(path)}")
        progress = DownloadProgress(self.file, self.entry.size)
        expect(is_whole(path, self.entry, progress, threading.Event()), "not whole")


def main() -> int:
    """Check all expectations; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", default=_REPO)
    parser.add_argument("--file", default=_FILE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hub-check-") as home:
        os.environ["HF_HUB_CACHE"] = str(Path(home, "hub"))
        try:
            expectations = Expectations(options.repo, options.file)
        except (LocalspecError, DiffersError) as error:
            print(f"hub_check: nothing could be checked: {error}", file=sys.stderr)
            return 1
        names = [name for name in vars(Expectations) if not name.startswith("_")]
        held = [_holds(name, getattr(expectations, name)) for name in names]
        return 0 if all(held) else 1


def _holds(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was seen
        print(f"DIFFERS  {name.replace('_', ' ')}: {type(error).__name__}: {error}")
        return False
    print(f"ok       {name.replace('_', ' ')}")
    return True


if __name__ == "__main__":
    sys.exit(main())
