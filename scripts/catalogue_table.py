"""The table of pairs in the documentation, generated from models.toml.

python scripts/catalogue_table.py                    print it
python scripts/catalogue_table.py FILE...            put it between the marks of each file
python scripts/catalogue_table.py --check FILE...    only check that each file has the current table
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from localspec.core.units import size  # noqa: E402 - the checkout is put on the path first
from localspec.models.catalog.catalog import shipped  # noqa: E402
from localspec.models.catalog.pair import HubFile, Pair  # noqa: E402
from localspec.models.catalog.toml_file import Document  # noqa: E402

BEGIN, END = "<!-- catalogue: begin -->", "<!-- catalogue: end -->"
_HEAD = ("Name", "For", "Download", "Drafter", "Context", "Memory", "Licence")
_DRAFTING = {
    "draft-model": "a draft model",
    "mtp-embedded": "an MTP layer inside the file",
    "mtp-sidecar": "an MTP head in its own file",
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash head",
    "medusa": "Medusa heads",
    "ngram": "n-grams",
}


def table() -> str:
    """The shipped catalogue as Markdown."""
    document = Document.read(shipped(), shipped=True)
    pairs = [document.pair(name) for name in document.names]
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_row(pair)) for pair in pairs)]
    return "\n".join(lines)


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(pair: Pair) -> list[str]:
    return [
        f"`{pair.name}`",
        pair.about,
        _download(pair),
        _DRAFTING[pair.drafting],
        f"{pair.context:,}" if pair.context else "",
        f"{pair.memory} GB" if pair.memory else "",
        pair.licence,
    ]


def _download(pair: Pair) -> str:
    """Size as models.toml states it; files on this machine must not change the table."""
    files = [file for file in pair.files if isinstance(file, HubFile)]
    if not files:
        return "comes with localspec"
    stated = [file.n_bytes or file.approx_bytes for file in files]
    if stated[0] is None:
        return "not known before"
    exact = all(file.n_bytes for file in files)
    return ("" if exact else "about ") + size(sum(n or 0 for n in stated))


def _with_table(text: str) -> str:
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Print, write or check; 1 if a file is not as it should be."""
    check = "--check" in arguments
    paths = [Path(a) for a in arguments if a != "--check"]
    if not paths:
        print(table())
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if BEGIN not in text or END not in text:
            print(f"{path} has no {BEGIN} ... {END}", file=sys.stderr)
            return 1
        fresh = _with_table(text)
        if check and fresh != text:
            print(
                f"{path} is older than models.toml; run {Path(__file__).name} {path}",
                file=sys.stderr,
            )
            return 1
        if not check:
            path.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
