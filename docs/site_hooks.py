"""Hooks of mkdocs: README.md is the first page, and links out of docs/ lead to the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_SHIM = "https://unpkg.com/iframe-worker/shim"
_SEARCH = "assets/search-from-file.js"
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s]+)(\))")


def slug(title: str, separator: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", separator)


def on_config(config: Any) -> Any:
    """Give headings anchors as a repository's pages have them: the same links lead there."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the first page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=_LINK.sub(_from_the_top, text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links out of docs/ to the repository, and README.md to the first page."""
    del files
    folder = posixpath.dirname(page.file.src_uri)

    def elsewhere(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not target.startswith("../"):
            return link[0]
        file = target.removeprefix("../")
        if file.startswith("README.md"):
            first = posixpath.relpath("index.md", folder or ".")
            return f"{link[1]}{first}{file.removeprefix('README.md')}{link[3]}"
        _require(file)
        repository = config.repo_url.rstrip("/")
        return f"{link[1]}{repository}/blob/main/{file}{link[3]}"

    return _LINK.sub(elsewhere, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load our copy of what lets the search work from a file, as the theme has it elsewhere."""
    del config
    up = "../" * page.file.dest_uri.count("/")
    return output.replace(_SHIM, f"{up}{_SEARCH}")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for pages that are no documents."""
    del template_name, config
    return output_content.replace(_SHIM, _SEARCH)


def _from_the_top(link: re.Match[str]) -> str:
    inside = link[2].removeprefix("docs/")
    return f"{link[1]}{inside if inside != link[2] else f'../{link[2]}'}{link[3]}"


def _require(file: str) -> None:
    if not (ROOT / file.partition("#")[0]).exists():
        raise FileNotFoundError(f"a page of the documentation links to {file}, which is not there")
