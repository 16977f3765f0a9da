"""``localspec embed``: the vectors of lines of text, without a server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.containment import contain
from localspec.cli.output import decode, require_utf8, stdin_line, tell, write_json
from localspec.core.errors import UsageError

if TYPE_CHECKING:
    from localspec.loading.embedder import Embedder

_TOGETHER = 64
"""Lines that are computed together."""


@click.command("embed")
@click.argument("model")
@click.option("--query", metavar="TEXT", help="Score the lines for this, with a reranker.")
@click.option(
    "--truncate", is_flag=True, help="Cut lines that are too long; else they are an error."
)
@click.option(
    "--gpu-layers",
    type=click.IntRange(0, 1 << 30),  # llama.cpp takes 32 bits
    help="Layers on the GPU; all that fit.",
)
@click.option("--threads", type=click.IntRange(1, 512), help="Threads; one for each core.")
def command(
    model: str, query: str | None, *, truncate: bool, gpu_layers: int | None, threads: int | None
) -> int:
    """Read lines from stdin and write a JSON object for each: its vector, of length 1.

    MODEL is an embedding model, or with --query a reranker: a path to a .gguf or user/repo[:QUANT].
    Empty lines are skipped.
    """
    contain()
    from localspec.core.files import paths
    from localspec.llama import library
    from localspec.loading.embedder import Embedder

    if query is not None and not require_utf8(query, "--query").strip():
        raise UsageError("--query is empty; write what the lines are scored for")
    library.log_to(paths.make(paths.state_dir()) / paths.LLAMA_LOG)
    with Embedder(model, gpu_layers=gpu_layers, threads=threads) as embedder:
        if embedder.info.notice:
            tell(embedder.info.notice)
        numbered = (
            (i, decode(raw, f"line {i + 1} of stdin").rstrip("\r\n"))
            for i, raw in enumerate(iter(stdin_line, b""))
        )
        lines = ((i, line) for i, line in numbered if line.strip())
        while part := list(itertools.islice(lines, _TOGETHER)):
            for found in _answers(embedder, part, query, truncate=truncate):
                write_json(found)
    return 0


def _answers(
    embedder: Embedder, part: list[tuple[int, str]], query: str | None, *, truncate: bool
) -> Iterator[dict[str, Any]]:
    texts = [line for _, line in part]
    if query is None:
        found = embedder.embed(texts, truncate=truncate)
    else:
        found = embedder.rank(query, texts, truncate=truncate)
    for (i, line), row, tokens in zip(part, found.vectors, found.counts, strict=True):
        values = row.tolist()
        said = {"embedding": values} if query is None else {"score": values[0]}
        yield {"index": i, "text": line, "tokens": tokens} | said
