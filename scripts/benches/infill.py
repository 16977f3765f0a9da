"""A recorded editing session (`shared.infill_session`) at /infill, a request for each keystroke.

Printed are, over all keystrokes, p50 and p95 of the time to the first characters in passes of the
target, without the time that reading the prompt's new tokens takes; the same in milliseconds, with
it; and the tokens that were read. A pass is a token of plain decoding, measured before and after.
Reading is measured apart, since the pass that reads may give the first token too: the session is
replayed once with ``n_predict`` 0, which reads the same tokens and nothing else.

    scripts/bench infill MODEL              localspec serve, started for it
    scripts/bench infill --url URL          a server that runs: localspec or llama-server
    scripts/bench infill MODEL --pretend    MODEL has no tokens for a gap: three others stand in,
                                            so that times can be measured, and texts mean nothing

``--spm-infill`` starts the server with the text behind the cursor first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import httpx2

from benches.shared.infill_session import OTHER_FILES, Moment, moments
from benches.shared.servers import running

_WAIT_S = 600.0
_USUAL = {"samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9}
"""What llama.vim and llama.vscode send."""
_PASSES = 33
"""Tokens from which the time of a pass is measured."""
_TRIES = 100


@dataclass(frozen=True)
class Keystroke:
    """One suggestion; seconds."""

    first: float
    """Until its first characters; until its end where it has none."""
    reading: float
    """What the answer says of reading, which may include the first token."""
    read: int
    """Tokens of its prompt that were not known."""
    prompt: int
    emitted: int
    drafted: int
    accepted: int


def main() -> None:
    """Replay the session and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?")
    parser.add_argument("--url")
    parser.add_argument("--pretend", action="store_true")
    parser.add_argument("--spm-infill", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=16, help="n_predict")
    parser.add_argument("--every", type=int, default=1, help="replay one keystroke of so many")
    parser.add_argument("--slowest", type=int, default=0, help="show so many of the tail")
    parser.add_argument("--greedy", action="store_true", help="temperature 0 without samplers")
    asked = parser.parse_args()
    if (asked.model is None) == (asked.url is None):
        parser.error("give MODEL or --url")
    with contextlib.ExitStack() as stack:
        url = asked.url or stack.enter_context(_server(asked, stack))
        # llama-server closes a connection at any time, without a word.
        headers = {"Connection": "close"} if asked.url else {}
        http = stack.enter_context(httpx2.Client(base_url=url, timeout=_WAIT_S, headers=headers))
        settings = {"temperature": 0, "seed": 1} if asked.greedy else _USUAL | {"seed": 1}
        session = [*moments()][:: asked.every]
        _ask(http, session[0], settings | {"n_predict": 1})  # the first one reads everything
        passes = [_pass(http, session[0])]
        alone = [_ask(http, one, settings | {"n_predict": 0}) for one in session]
        _ask(http, session[0], settings | {"n_predict": 1})
        found = [_ask(http, one, settings | {"n_predict": asked.tokens}) for one in session]
        passes.append(_pass(http, session[-1]))
    _print(found, alone, statistics.mean(passes), asked.slowest)


def _ask(http: httpx2.Client, moment: Moment, settings: dict[str, Any]) -> Keystroke:
    """One keystroke."""
    body = {
        "input_prefix": moment.prefix,
        "prompt": moment.line,
        "input_suffix": moment.after,
        "input_extra": [{"filename": n, "text": text} for n, text in OTHER_FILES.items()],
        "stream": True,
        "cache_prompt": True,
    } | settings
    began, first, last = time.perf_counter(), 0.0, {}
    with http.stream("POST", "/infill", json=body) as answer:
        if answer.status_code != httpx2.codes.OK:
            raise SystemExit(f"status {answer.status_code}: {answer.read()[:400].decode()}")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                last = json.loads(line.removeprefix("data: "))
                if last.get("content") and not first:
                    first = time.perf_counter() - began
    timings = last.get("timings")
    if timings is None:
        raise SystemExit(f"the stream ended without figures: {json.dumps(last)[:300]}")
    return Keystroke(
        first=first or time.perf_counter() - began,
        reading=timings["prompt_ms"] / 1000,
        read=timings["prompt_n"],
        prompt=last["tokens_evaluated"],
        emitted=last["tokens_predicted"],
        drafted=timings.get("draft_n", 0),
        accepted=timings.get("draft_n_accepted", 0),
    )


def _pass(http: httpx2.Client, moment: Moment) -> float:
    """Seconds of a pass: of a token of plain decoding."""
    plain = {"localspec": {"draft_max": 0, "draft_memory": False}, "n_predict": _PASSES}
    body = {"input_prefix": moment.prefix, "prompt": moment.line, "input_suffix": moment.after}
    body["input_extra"] = [{"filename": n, "text": text} for n, text in OTHER_FILES.items()]
    tokens, took = 0, 0.0
    for seed in range(_TRIES):  # the model may end a reply at once
        answer = http.post("/infill", json=body | plain | {"temperature": 1.5, "seed": seed}).json()
        tokens += answer["timings"]["predicted_n"]
        took += answer["timings"]["predicted_ms"] / 1000
        if tokens >= _PASSES:
            return float(took / tokens)
    raise SystemExit("the model ends its replies too soon to measure a pass")


def _print(
    found: Sequence[Keystroke], alone: Sequence[Keystroke], seconds: float, slowest: int
) -> None:
    beyond = [(one.first - read.reading) / seconds for one, read in zip(found, alone, strict=True)]

    def row(name: str, values: Sequence[float], digits: int) -> None:
        ordered = sorted(values)
        p50, p95 = (ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.5, 0.95))
        print(f"{name:46} {p50:9.{digits}f} {p95:9.{digits}f} {max(ordered):9.{digits}f}")

    print(f"{len(found)} keystrokes, prompts of {found[-1].prompt} tokens; a pass: ", end="")
    print(f"{seconds * 1000:.1f} ms\n{'':46} {'p50':>9} {'p95':>9} {'most':>9}")
    row("first characters but for reading, in passes", beyond, 2)
    row("first characters, ms", [1000 * one.first for one in found], 1)
    row("reading alone, ms", [1000 * one.reading for one in alone], 1)
    row("first characters beyond prompt_ms, ms", [1e3 * (k.first - k.reading) for k in found], 1)
    row("tokens read", [one.read for one in found], 0)
    emitted, drafted = sum(k.emitted for k in found), sum(k.drafted for k in found)
    print(f"{emitted} tokens emitted, {drafted} drafted, {sum(k.accepted for k in found)} accepted")
    for i in sorted(range(len(found)), key=beyond.__getitem__)[len(found) - slowest :]:
        one = found[i]
        print(
            f"keystroke {i}: {beyond[i]:.2f} passes, first {1000 * one.first:.0f} ms, prompt_ms "
            f"{1000 * one.reading:.0f} for {one.read}, alone {1000 * alone[i].reading:.0f} for "
            f"{alone[i].read}, {one.emitted} emitted"
        )


@contextlib.contextmanager
def _server(asked: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[str]:
    """`localspec serve` at a free port."""
    model = asked.model
    if asked.pretend:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        model = str(_pretending(Path(model), Path(folder) / "pretends.gguf"))
    flags = ["--port", "0", "--jobs", "1", "--ctx", str(asked.ctx)]
    flags += ["--spm-infill"] if asked.spm_infill else []
    flags += ["--threads", str(asked.threads)] if asked.threads else []
    with running("serve", model, *flags) as url:
        yield url


def _pretending(model: Path, copy: Path) -> Path:
    """A copy of the model whose last three tokens mark the parts of a text with a gap."""
    from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

    reader = gguf.GGUFReader(model)
    field = reader.get_field("general.architecture")
    tokens = reader.get_field("tokenizer.ggml.tokens")
    if field is None or tokens is None:
        raise SystemExit(f"{model} is no text model")
    writer = gguf.GGUFWriter(copy, arch=field.contents(), endianess=reader.endianess)
    kind = gguf.GGUFValueType.UINT32
    marks = {
        f"tokenizer.ggml.fim_{part}_token_id": MetadataDetails(kind, len(tokens.data) - 1 - i)
        for i, part in enumerate(("pre", "suf", "mid"))
    }
    copy_with_new_metadata(reader, writer, marks, [])
    return copy


if __name__ == "__main__":
    main()
