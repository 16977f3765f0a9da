"""How long one client's next token waits while another sends what costs most.

A server is started with the model of ``-m`` (default: the embedded pair). One client streams reply
after reply; beside it another sends one hostile request after the other. Printed are, for each kind
of request, the longest time between two pieces of text of the first client, and what the other was
answered. The first row has no hostile client: on a busy machine it is the measure of all others.
The rows of pictures decode and encode something with ``-m demo-sees`` only; the last of them sends
other pixels each time, so that nothing of it is known.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import statistics
import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import httpx2

from benches.shared.servers import chunks, running

_ANSWER_S = 120.0
_PRIME = {"type": "integer", "multipleOf": 999983}


def _chat(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 40, **more}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return _chat(response_format={"type": "json_schema", "json_schema": {"schema": schema}})


def _raw(value: str) -> str:
    """A body with a field that has no effect."""
    return json.dumps(_chat())[:-1] + f', "unused": {value}}}'


def _picture(side: int, seed: int = 0) -> str:
    """A data URI: black and white, with as many pixels as may be decoded."""
    row = b"\0" + seed.to_bytes(8, "little") * (side // 64)
    lines = zlib.compress(row * side, 9)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)), (b"IDAT", lines)]
    found = b"\x89PNG\r\n\x1a\n"
    for kind, data in (*parts, (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + data))
        found += struct.pack(">I", len(data)) + kind + data + check
    return "data:image/png;base64," + base64.b64encode(found).decode()


def _shown(pictures: int, seed: int = 0) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": _picture(8000, seed)}}
    return _chat() | {"messages": [{"role": "user", "content": [part] * pictures}]}


def _fresh() -> dict[str, Any]:
    return _shown(1, time.time_ns())


_DRY: dict[str, Any] = {"dry_multiplier": 1.0, "dry_base": 1.00001, "dry_penalty_last_n": -1}

HOSTILE: dict[str, dict[str, Any] | str | Callable[[], dict[str, Any]] | None] = {
    "nobody": None,
    "multipleOf 999983": _schema(_PRIME),
    "multipleOf 9999991": _schema({**_PRIME, "multipleOf": 9999991}),
    "multipleOf 99991": _schema({**_PRIME, "multipleOf": 99991}),
    "a prime within 10^18": _schema({**_PRIME, "minimum": -(10**18), "maximum": 10**18}),
    "nested combinations": _schema(
        {
            "allOf": [
                {"anyOf": [{**_PRIME, "multipleOf": p}, {"type": "string"}]} for p in (7, 99991)
            ]
        }
    ),
    "20,000 alternatives": _schema({"enum": [f"w{7919 * i}" for i in range(20_000)]}),
    "nested references": _schema(
        {
            "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(200)}
            | {"d200": {"type": "string"}},
            "$ref": "#/$defs/d0",
        }
    ),
    "exponential regex": _chat(guided_regex="(a|b)*a(a|b){400}(.*c){30}"),
    "repeated repetitions": _chat(guided_regex="((a{0,1000}){0,1000}){0,1000}"),
    "ambiguous grammar": _chat(guided_grammar='start: a\na: a a | a a a | "x" | '),
    "a message of 7 MB": _chat("a b " * 1_800_000),
    "beginnings of control tokens": _chat("<|im_sta<|endoft" * 60_000),
    "a thousand system messages": {
        "messages": [{"role": "system", "content": "a" * 900}] * 1000
        + [{"role": "user", "content": "hi"}],
        "max_tokens": 40,
    },
    "logit_bias of 8192": _chat(logit_bias={str(i): 0.5 for i in range(500)}),
    "top_logprobs": _chat(logprobs=True, top_logprobs=20),
    "16 choices of a long prompt": _chat("tell me more. " * 40, n=16),
    "64 stop texts": _chat(stop=["a" * 120 + str(i) for i in range(64)]),
    "one stop text of 8,000": _chat(stop=["ab" * 4000]),
    "fractions hard to read": _raw("[" + "1.1111111111111111e-300," * 320_000 + "0]"),
    "numbers of 4,000 digits": _raw("[" + ("9" * 4000 + ",") * 1900 + "0]"),
    "150,000 names": _raw("{" + ",".join(f'"{i}":""' for i in range(150_000)) + "}"),
    "nested 60,000 deep": _raw("[" * 60_000 + "]" * 60_000),
    "a role of 7 MB": {"messages": [{"role": "x" * 7_000_000, "content": "hi"}]},
    "60,000 messages": {"messages": [{"role": "user", "content": "hi"}] * 60_000},
    "DRY on one word": _chat("a " * 300, **_DRY),
    "DRY's breakers": _chat(**_DRY, dry_sequence_breakers=["ab" * 19 + str(i) for i in range(64)]),
    "samplers that sort": _chat(samplers=["typ_p", "top_p"] * 2, typical_p=0.9999, top_p=0.9999),
    "a picture of 64 megapixels": _shown(1),
    "60 such pictures": _shown(60),
    "another one each time": _fresh,
}


def ask(url: str, body: dict[str, Any] | str) -> str:
    """The answer to a request in a few words."""
    began = time.monotonic()
    try:
        text = body if isinstance(body, str) else json.dumps(body)
        answer = httpx2.post(f"{url}/v1/chat/completions", content=text, timeout=_ANSWER_S)
        what = f"{answer.status_code}"
        if answer.status_code != httpx2.codes.OK:
            what += " " + str(answer.json()["error"]["message"])[:70]
    except httpx2.TransportError as error:
        what = type(error).__name__
    return f"{what} ({time.monotonic() - began:.1f} s)"


class Polite:
    """Streams replies until it is told to stop, and notes the times between pieces of text."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.gaps: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Stop after the reply that runs."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        body = _chat("Tell a long story.", temperature=1) | {"max_tokens": 300}
        with httpx2.Client(base_url=self._url, timeout=_ANSWER_S) as http:
            while not self._stop.is_set():
                moments = [moment for moment, _ in chunks(http, body)]
                self.gaps += [after - before for before, after in itertools.pairwise(moments)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", help="model; default: the embedded pair")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="at least, for each row")
    parser.add_argument("--only", help="rows whose names contain this")
    given = parser.parse_args()
    print("longest and 99th percentile of the milliseconds between two pieces; the hostile answer")
    flags = ["--port", "0", "--jobs", str(given.jobs), *([given.model] if given.model else [])]
    with running("serve", *flags) as url:
        ask(url, _chat())
        for name, body in HOSTILE.items():
            if given.only and given.only not in name and body is not None:
                continue
            polite, answer = Polite(url), ""
            end = time.monotonic() + given.seconds
            while time.monotonic() < end:
                if body is None:
                    time.sleep(0.1)
                else:
                    answer = ask(url, body() if callable(body) else body)
            polite.end()
            gaps = sorted(1000 * gap for gap in polite.gaps)
            high = statistics.quantiles(gaps, n=100)[-1]
            print(f"{name:30} {gaps[-1]:7.0f} {high:7.0f}   {answer}", flush=True)


if __name__ == "__main__":
    main()
