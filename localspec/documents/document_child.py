"""The process that reads PDFs: a file made to fault a parser stops nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pypdf

from localspec.processes.bounded_child import address_space, answer_lines, limit_memory

_SECONDS = 25.0
_MEMORY = 900 << 20
_LARGEST = 4_000_000
"""Characters of the text."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The text of a PDF, its pages numbered."""
    try:
        reader = pypdf.PdfReader(request["path"])
        if reader.is_encrypted and not reader.decrypt(""):
            return {"refused": "it is locked with a password"}
        parts, taken = [], 0
        for number, page in enumerate(reader.pages, 1):
            text = page.extract_text()
            taken += len(text)
            parts.append(f"[page {number}]\n{text}")
            if taken > _LARGEST:
                parts.append("… (cut here)")
                break
        return {"text": "\n\n".join(parts) if taken else ""}
    except OSError as error:
        return {"refused": error.strerror or str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the parser
        return {"refused": f"not a PDF that can be read: {' '.join(str(error).split())[:200]}"}


def main() -> None:
    """Answer until stdin ends."""
    logging.disable()
    space = address_space()
    limit_memory(None if space is None else space + _MEMORY)
    answer_lines(answer, _SECONDS, computing=True)


if __name__ == "__main__":
    main()
