"""llama.cpp's server, asked over HTTP."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from localspec.bench.peers import Mode, Question, Setting, Spoken
from localspec.core import drafter_registry
from localspec.core.drafter_registry import Family
from localspec.core.errors import PeerError
from localspec.llama import library

_START_S = 300.0
_ANSWER_S = 600.0


def modes(program: Path, lengths: Sequence[int], drafter: str | None) -> list[Mode]:
    """Plain, and drafting at each length with what we draft with, one of our drafters' names; with
    its n-grams where it has none of that kind.
    """
    found = [Mode("llama-server plain", partial(running, program, ()))]
    spec = drafter_registry.find(drafter)
    if spec is None or not spec.llama_server:
        flags = ("--spec-type", "ngram-simple")
        return [*found, Mode("llama-server ngram-simple", partial(running, program, flags))]
    for k in lengths:
        drafting = ("--spec-type", spec.llama_server, "--spec-draft-n-max", str(k))
        what = "draft" if spec.family is Family.MODEL else spec.name
        found.append(Mode(f"llama-server {what} K={k}", partial(running, program, drafting)))
    return found


@contextlib.contextmanager
def running(program: Path, flags: Sequence[str], setting: Setting) -> Iterator[Server]:
    """A server that has loaded the pair; it ends with the block.

    Raises:
        PeerError: it does not start.
    """
    port = _free_port()
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), *_load(setting), *flags]
    if setting.draft is not None and "--spec-draft-n-max" in flags:
        command += ["-md", str(setting.draft), "-td", str(setting.threads)]
        command += [] if setting.gpu else ["-ngld", "0"]
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command,
                env=library.environment_of_others(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise PeerError(f"cannot start {program}: {error.strerror}") from None
        try:
            with httpx2.Client(
                base_url=f"http://127.0.0.1:{port}",
                trust_env=False,  # a proxy for the network is none for this machine
                timeout=_ANSWER_S,
                # The server closes idle connections, at times just as one is used again.
                limits=httpx2.Limits(max_keepalive_connections=0),
            ) as http:
                try:
                    _wait(process, http)
                    yield Server(http)
                except (httpx2.HTTPError, ValueError, KeyError) as error:
                    raise PeerError(f"{program.name} failed: {error}; {_last(log)}") from None
                except TimeoutError:
                    raise PeerError(f"{program.name} did not start; {_last(log)}") from None
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True, slots=True)
class Streamed:
    """A reply of the server that was read as it was written."""

    emitted: int
    first: float
    """Seconds from the request to its first text."""
    tokens_per_round: float | None
    """None where it does not draft."""


class Server:
    """A server that is running."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def answer(self, question: Question) -> Spoken:
        """See `Peer`."""
        response = self._http.post("/completion", json=self._body(question))
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        timings = found["timings"]
        return Spoken(
            str(found["content"]), float(timings["predicted_per_second"]), _per_round(timings)
        )

    def stream(self, question: Question) -> Streamed:
        """One reply that is read as it is written; several may be asked for at a time.

        Raises:
            PeerError: it does not answer.
        """
        began, first, timings = time.perf_counter(), None, None
        body = self._body(question) | {"stream": True}
        try:
            with self._http.stream("POST", "/completion", json=body) as response:
                response.raise_for_status()
                for line in response.iter_lines():
                    if not line.startswith("data:"):
                        continue
                    event = json.loads(line.removeprefix("data:"))
                    if first is None and event.get("content"):
                        first = time.perf_counter() - began
                    timings = event.get("timings", timings)
            if timings is None:
                raise PeerError("llama-server ended a reply without its timings")
            emitted = int(timings["predicted_n"])
        except (httpx2.HTTPError, ValueError, KeyError) as error:
            raise PeerError(f"llama-server failed: {error}") from None
        seconds = time.perf_counter() - began
        return Streamed(emitted, seconds if first is None else first, _per_round(timings))

    def _body(self, question: Question) -> dict[str, Any]:
        s = question.sampling
        body: dict[str, Any] = {
            "prompt": list(question.tokens),
            "n_predict": question.max_tokens,
            "seed": question.seed,
            "cache_prompt": False,
            "samplers": ["top_k", "top_p", "min_p", "temperature"],
            "temperature": s.temperature,
            "top_k": s.top_k,
            "top_p": s.top_p,
            "min_p": s.min_p,
        }
        if s.logit_bias:
            body["logit_bias"] = [[t, False if b == -math.inf else b] for t, b in s.logit_bias]
        if question.schema is not None:
            body["json_schema"] = question.schema
        return body


def _per_round(timings: dict[str, Any]) -> float | None:
    """Tokens per round; None without drafting."""
    if not timings.get("draft_n"):
        return None
    # Each round emits what it accepted and one token of the target.
    emitted = int(timings["predicted_n"])
    return emitted / max(1, emitted - int(timings["draft_n_accepted"]))


def _load(setting: Setting) -> list[str]:
    threads, slots = str(setting.threads), str(setting.parallel)
    flags = ["-m", str(setting.target), "-t", threads, "-tb", threads, "-np", slots]
    flags += ["-c", str(setting.context * setting.parallel)]
    return flags if setting.gpu else [*flags, "-ngl", "0"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], http: httpx2.Client) -> None:
    """Until the model is loaded.

    Raises:
        TimeoutError: the process ended, or takes too long.
    """
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            if http.get("/health", timeout=5).status_code == httpx2.codes.OK:
                return
        time.sleep(0.1)
    raise TimeoutError


def _last(log: Any) -> str:
    """Its last output, in one line."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    return f"its last output: {lines[-1][:200]}" if lines else "it printed nothing"
