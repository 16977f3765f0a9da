"""Replays docs/remote.md against real servers, and records what they answer.

    scripts/check_elsewhere vllm --folder /tmp/elsewhere
    scripts/check_elsewhere llama-server --model FILE --draft FILE --folder /tmp/elsewhere
    scripts/check_elsewhere llama_cpp.server --model FILE --folder /tmp/elsewhere

Each server is installed into an environment below the folder, started without and with
speculation, and asked by ``run``, ``chat``, ``bench`` and ``verify`` with default settings. With
``--record`` its answers are written to ``tests/data/remote``, which the tests play: so no test
plays an answer that no server has sent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elsewhere_servers as servers

_ROOT = Path(__file__).resolve().parents[1]
_DATA = _ROOT / "tests" / "data" / "remote"
_PORT = 8790
_SECONDS = 600
_HI = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "seed": 1}
_GREEDY = {**_HI, "temperature": 0, "max_tokens": 48, "return_token_ids": True}
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
_BOOLEAN = {"type": "boolean"}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "reply", "schema": _BOOLEAN}}
_QUESTIONS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "models": ("/v1/models", None),
    "metrics": ("/metrics", None),
    "slots": ("/slots", None),
    "described": ("/openapi.json", None),
    "streamed": ("/v1/chat/completions", _GREEDY | _STREAM | {"timings_per_token": True}),
    "one": ("/v1/chat/completions", _GREEDY | _STREAM | {"max_tokens": 1}),
    "schema": ("/v1/chat/completions", _GREEDY | _STREAM | {"response_format": _SCHEMA}),
    "min_p": ("/v1/chat/completions", _HI | _STREAM | {"min_p": 0.05, "max_tokens": 4}),
    "whole": ("/v1/chat/completions", _GREEDY | {"logprobs": True, "top_logprobs": 2}),
}
"""What is recorded: a path, and a body for a POST."""
_KEPT = ("vllm:spec_decode_num", "vllm:request_success", "vllm:num_requests", "llamacpp:")


def localspec(*arguments: str, said: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "localspec", *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def replay(kind: servers.Kind, url: str, plain: str | None) -> list[str]:
    """Ask a server in all ways; what went wrong."""
    where, short = ("--url", url), ("-n", "24")
    against = () if plain is None else ("--plain-url", plain)
    wrong = []
    for said, line in (
        (None, ("run", *where, "Hello there", *short)),
        (None, ("run", *where, "Hello there", *short, "--json")),
        (None, ("run", *where, "Hello there", "-n", "1", "--json")),
        (None, ("run", *where, "Hello there", *short, "--choice", "yes,no")),
        (None, ("run", *where, "Hello there", *short, "--schema", '{"type":"boolean"}')),
        ("Hello\nAgain\n", ("chat", *where, *short)),
        (None, ("bench", *where, *against, "--workload", "chat", "-n", "64")),
        (None, ("bench", *where, *against, "--workload", "chat", "--min-p", "0", "--json")),
        (None, ("verify", *where, *against, "--limit", "2", "-n", "32", "--json")),
    ):
        code, out, err = localspec(*line, said=said)
        shown = " ".join([kind.name, line[0], *line[3:]])
        # Without a second server, `verify` refuses one that does not score given tokens.
        expected = 2 if line[0] == "verify" and not (kind.scores or against) else 0
        print(f"{'ok' if code == expected else f'FAILED ({code})'}: {shown}", flush=True)
        if code != expected:
            wrong.append(f"{shown}: {(err or out).strip().splitlines()[-1:]}")
        wrong += [f"{shown}: {why}" for why in _impossible(line, out, drafts=kind.drafts)]
    return wrong


def _impossible(line: Sequence[str], out: str, *, drafts: bool) -> list[str]:
    """Figures that cannot be."""
    if "--json" not in line or not out.strip():
        return []
    found = json.loads(out)
    if line[0] == "run":
        stats = found["stats"]
        told = stats["accepted"] is not None and stats["drafted"] is not None
        if told and stats["accepted"] > stats["drafted"]:
            return ["more accepted than drafted"]
        wrong = [
            f"{name} is {stats[name]}"
            for name, most in (("tokens_per_second", 20_000), ("plain_tokens_per_second", 20_000))
            if stats[name] is not None and not 0 < stats[name] < most
        ]
        wrong += ["no round"] if stats["rounds"] == 0 else []
        return wrong + (["plain, and unknown"] if not _plain_known(stats) else [])
    if line[0] == "bench":
        rows = found["results"]
        fast = [row for row in rows if (row["ratio"] or 0) > 8 and not row["doubt"]]
        return ["a ratio that drafts of 3 cannot give, without a doubt"] if fast else []
    silent = drafts and not found["drafted"]
    return ["its speculation is not counted"] if silent else []


def _plain_known(stats: dict[str, Any]) -> bool:
    """Whether the speed of plain decoding is given only where that can be known."""
    known = stats["speculation"]["state"] != "unknown" and not stats["drafted"]
    return known or stats["plain_tokens_per_second"] is None


def record(kind: servers.Kind, url: str, folder: Path) -> None:
    """Write what a server answers, without paths of this machine."""
    _DATA.mkdir(parents=True, exist_ok=True)
    root = url.removesuffix("/v1")
    answers = {name: _answer(root, *question) for name, question in _QUESTIONS.items()}
    text = json.dumps(answers, indent=1, ensure_ascii=True) + "\n"
    for path in (folder.resolve(), _ROOT, Path.home()):
        text = text.replace(str(path), "/models")
    (_DATA / f"{kind.name}.json").write_text(text, encoding="utf-8")


def _answer(root: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310
        f"{root}{path}", data, {"Content-Type": "application/json"} if data else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            status, kind, text = response.status, response.headers["Content-Type"], response.read()
    except urllib.error.HTTPError as error:
        status, kind, text = error.code, error.headers["Content-Type"], error.read()
    shown = text.decode("utf-8")
    if path == "/metrics":
        shown = "".join(f"{line}\n" for line in shown.splitlines() if line.startswith(_KEPT))
    if path == "/openapi.json" and status == 200:
        shown = json.dumps({"info": json.loads(shown)["info"]})
    return {"status": status, "type": kind or "", "body": shown}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", choices=["vllm", "llama-server", "llama_cpp.server"])
    parser.add_argument("--folder", type=Path, required=True, help="for environments and models")
    parser.add_argument("--program", help="llama-server's path, instead of the one in xllamacpp")
    parser.add_argument("--model", type=Path, help="a GGUF file")
    parser.add_argument("--draft", type=Path, help="a GGUF file")
    parser.add_argument("--only", help="one way to start it")
    parser.add_argument("--record", action="store_true", help="write tests/data/remote")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.server == "vllm":
        kinds = servers.vllm(args.folder)
    elif args.server == "llama-server":
        kinds = servers.llama_server(args.folder, args.program, args.model, args.draft)
    else:
        kinds = servers.llama_cpp_server(args.folder, args.model)
    plain, *others = kinds
    wrong: list[str] = []
    with servers.served(plain, _PORT, args.folder / f"{plain.name}.log") as plain_url:
        if args.only in {None, plain.name}:
            wrong += _checked(plain, plain_url, None, args)
        for kind in others:
            if args.only in {None, kind.name}:
                log = args.folder / f"{kind.name}.log"
                with servers.served(kind, _PORT + 1, log) as url:
                    wrong += _checked(kind, url, plain_url, args)
    print("\n".join(wrong) or f"all as docs/remote.md says: {servers.names(kinds)}")
    raise SystemExit(bool(wrong))


def _checked(
    kind: servers.Kind, url: str, plain: str | None, args: argparse.Namespace
) -> list[str]:
    if args.record:
        record(kind, url, args.folder)
    return replay(kind, url, plain)


if __name__ == "__main__":
    main()
