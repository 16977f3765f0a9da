"""Whole tasks by a small model that was trained to call tools, with servers from the registries.

`scripts/train_caller` made the model. The servers are installed from PyPI and npm, or found in the
folder that LOCALSPEC_MCP_SERVERS names, in which ``bin`` has them.
"""

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localspec import cli
from localspec.cli import acting, run
from localspec.config.settings import settings

MODEL = Path(__file__).parents[1] / "data" / "calling" / "caller.gguf"
FROM_PYPI = ("mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.24")
FROM_NPM = "@modelcontextprotocol/server-filesystem@2026.8.31"
ALLOWED = ("files/list_directory", "files/read_text_file", "git/git_log", "web/fetch")
DATES = {"GIT_AUTHOR_DATE": "2026-03-12T10:00:00Z", "GIT_COMMITTER_DATE": "2026-03-12T10:00:00Z"}
"""The same digest each time: a small model may answer otherwise with another one."""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with the programs of the three servers."""
    known = os.environ.get("LOCALSPEC_MCP_SERVERS")
    if known:
        return Path(known) / "bin"
    folder = tmp_path_factory.mktemp("servers")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: no server of files")
    files = [npm, "install", "--silent", "--global", "--prefix", folder, FROM_NPM]
    of_python = [sys.executable, "-m", "venv", "--without-pip", folder]
    others = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    others.append("--no-compile")  # a start compiles what it needs, and keeps it
    with installing(files):  # npm waits for the network for the most part
        with installing(of_python):
            pass
        with installing([*others, "--quiet", *FROM_PYPI]):
            pass
    return folder / "bin"


@contextlib.contextmanager
def installing(command):
    """Run a command meanwhile."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        yield
        said, _ = process.communicate()
    if process.returncode:
        last = said.strip().splitlines()[-1:]
        pytest.skip(f"servers from PyPI and npm cannot be installed here: {' '.join(last)}")


@pytest.fixture(scope="module")
def desk(tmp_path_factory, programs):
    """A folder with letters and a repository, a home with the three servers, a page; that home and
    the address of the page. The servers only read.
    """
    place = tmp_path_factory.mktemp("desk")
    work, home = place / "work", place / "home"
    notes, letters, page = work / "notes", work / "letters", place / "site"
    for folder in (notes, letters, page):
        folder.mkdir(parents=True)
    (letters / "harbour.md").write_text("The harbour opens at 9.\n")
    (page / "museum.html").write_text(
        "<html><head><title>Museum</title></head><body><h1>Museum</h1>"
        "<p>The museum is open from 10 to 17.</p></body></html>"
    )
    committed = ("-c", "user.name=Lena", "-c", "user.email=lena@example.org", "commit", "-q")
    for command in (
        ("init", "-q", "plans"),
        ("-C", "plans", *committed, "--allow-empty", "-m", "Paint the old bridge"),
    ):
        subprocess.run(["git", *command], cwd=work, check=True, env=os.environ | DATES)
    servers = {
        "files": {"command": str(programs / "mcp-server-filesystem"), "args": [str(work)]},
        "git": {"command": str(programs / "mcp-server-git")},
        "web": {
            "command": str(programs / "mcp-server-fetch"),
            "args": ["--ignore-robots-txt", "--allow-private-ips"],
        },
    }
    for server in servers.values():  # a loaded machine takes longer than the usual 30 s
        server |= {"cwd": str(work), "startup_timeout": 300, "timeout": 300}
    (home / "config").mkdir(parents=True, mode=0o700)
    (home / "config" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    handler = functools.partial(Quiet, directory=str(page))
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving = threading.Thread(target=site.serve_forever, args=(0.05,))
    serving.start()
    yield home, f"http://127.0.0.1:{site.server_port}/museum.html"
    site.shutdown()
    serving.join()
    site.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def running(desk):
    """The tools of the servers, which run for all tests: to start them takes ten seconds."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOCALSPEC_HOME", str(desk[0]))
            settings.cache_clear()  # those of the test before
            act = stack.enter_context(acting.acting(ALLOWED, None, lambda: False))
        yield act


@pytest.fixture
def page(desk):
    return desk[1]


@pytest.fixture
def answered(running, monkeypatch, capsys):
    """Answers a question as `run` does: the calls of a whole task, each as (place, arguments,
    result), and the answer.
    """

    @contextlib.contextmanager
    def same(names, folder, cancelled):
        assert (names, folder) == (ALLOWED, None)
        running.begin()  # nothing of another question is left
        running.cancelled = cancelled
        yield running

    def answer(question):
        flags = [word for tool in ALLOWED for word in ("--allow-tool", tool)]
        model = ["-m", str(MODEL), "-d", "none", "-t", "0"]
        assert cli.call(["run", *model, "--json", *flags, question]) == 0
        found = json.loads(capsys.readouterr().out)
        calls = [(c["tool"], c["arguments"], c["result"]) for c in found["calls"]]
        return calls, found["text"].strip()

    monkeypatch.setattr(run, "acting", same)
    return answer


def test_a_folder_is_listed(answered):
    calls, answer = answered('Which files are in "letters"?')
    assert calls == [("files/list_directory", {"path": "letters"}, "[FILE] harbour.md")]
    assert answer == "letters has harbour.md."


def test_a_question_that_needs_two_tools_takes_the_result_of_one_for_the_other(answered):
    calls, answer = answered('What does the first file in "letters" say?')
    assert [call[:2] for call in calls] == [
        ("files/list_directory", {"path": "letters"}),
        ("files/read_text_file", {"path": "letters/harbour.md"}),
    ]
    assert answer == "letters/harbour.md says: The harbour opens at 9."


def test_the_last_commit_of_a_repository_is_told(answered):
    calls, answer = answered('Who made the last commit in "plans"?')
    assert [call[:2] for call in calls] == [("git/git_log", {"repo_path": "plans"})]
    assert "Author: Lena" in calls[0][2]
    assert answer == "By Lena: Paint the old bridge"


def test_a_page_is_fetched_and_quoted(answered, page):
    calls, answer = answered(f'What does the page "{page}" say about the museum?')
    assert [call[:2] for call in calls] == [("web/fetch", {"url": page})]
    assert answer == "The page says: The museum is open from 10 to 17."


def test_a_file_that_is_not_there_is_told_as_a_failure(answered):
    calls, answer = answered('What does "notes/nothing.txt" say?')
    assert [call[:2] for call in calls] == [("files/read_text_file", {"path": "notes/nothing.txt"})]
    assert "ENOENT: no such file or directory" in calls[0][2]
    assert "ENOENT: no such file or directory" in answer
