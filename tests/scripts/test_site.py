"""The documentation as a site: whole, without the network, and no link leads nowhere."""

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in {"img", "script", "iframe"} and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "icon"}:
            self.loaded.append(given["href"])


def test_every_page_is_there_and_every_link_and_anchor_leads_somewhere(site):
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    docs = ROOT / "docs"
    expected = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    assert {file.relative_to(site) for file in pages} == expected | {Path("index.html")}
    followed = 0
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = file if not parts.path else (file.parent / unquote(parts.path)).resolve()
            assert target.is_file(), f"{file.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].names, f"{file.name}: {link}"
            followed += 1
    assert followed > 500


def test_nothing_is_loaded_from_elsewhere_and_the_pictures_are_there(site):
    pictures = set()
    for file in site.rglob("*.html"):
        for source in Page(file).loaded:
            parts = urlsplit(source)
            assert not parts.netloc, f"{file.name} loads {source}"
            if file.name != "404.html":  # whose paths are those of a server
                assert (file.parent / unquote(parts.path)).is_file(), f"{file.name}: {source}"
                pictures.add(Path(parts.path).name)
    assert {"first-minute.svg", "chat.svg", "tools.svg", "bench.png"} <= pictures


def test_the_search_works_without_a_server(site):
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("{") :].rstrip("; \n"))
    titles = {one["title"] for one in found["docs"]}
    assert {"Exactness", "Drafters", "Windows"} <= titles


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of a site of two pages that is built as ours is, and can be."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (folder / name).write_text("# A page of the repository\n", encoding="utf-8")
    docs = folder / "docs"
    docs.mkdir()
    (docs / "exactness.md").write_text("# A page\n\n## A heading\n", encoding="utf-8")
    shutil.copy(ROOT / "docs" / "site_hooks.py", docs)
    shutil.copy(ROOT / "mkdocs.yml", folder / "ours.yml")
    own = {"INHERIT": "ours.yml", "nav": ["index.md", "windows.md", "exactness.md"]}
    (folder / "mkdocs.yml").write_text(json.dumps(own), encoding="utf-8")
    page(folder, "exactness.md#a-heading")
    done = build(folder, folder / "site")
    assert done.returncode == 0, done.stderr
    return folder


def page(folder: Path, link: str) -> None:
    text = f"# Windows\n\n[there]({link})\n"
    (folder / "docs" / "windows.md").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("link", ["nowhere.md", "exactness.md#no-such-heading", "../none.py"])
def test_a_link_that_leads_nowhere_fails_the_build(small, link):
    page(small, link)
    assert build(small, small / "site").returncode != 0
