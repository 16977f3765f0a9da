"""Sends a running server what its description allows, and what it forbids, and looks for answers
that are not described: status 500 above all.

    localspec serve demo --max-tokens 4 --no-pull &
    scripts/fuzz_server http://127.0.0.1:8080 --seconds 600

Exit code 1 if anything was found. Each finding has the request, which can be sent again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx2
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from faults.neighbours import neighbour

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_LONGEST = 600
"""Most characters of a body that is shown."""


@dataclass(frozen=True)
class Finding:
    """An answer that is not as described."""

    operation: str
    failure: str
    request: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.failure}\n    {self.request}"


class Fuzzer:
    """Fuzzes one server."""

    def __init__(self, url: str, timeout: float = 60.0, only: str = "") -> None:
        """Read the description of the server at ``url``; operations whose path has the regular
        expression ``only``.
        """
        self._url = url.rstrip("/")
        answer = httpx2.get(f"{self._url}/openapi.json", timeout=timeout)
        schema = schemathesis.openapi.from_dict(answer.json())
        found = (one.ok() for one in schema.get_all_operations())
        self.operations = [one for one in found if re.search(only, one.path)]
        examples = _examples(answer.json())
        self._examples = {path: body for path, body in examples.items() if re.search(only, path)}
        self._timeout = timeout
        self.findings: dict[tuple[str, str], Finding] = {}
        self.sent = 0
        self.statuses: Counter[tuple[str, int]] = Counter()
        """Answers by operation and status."""

    def run(self, seconds: float, examples: int = 25, turns: float = math.inf) -> Iterator[Finding]:
        """New findings, until the time or that many turns are over: each operation in turn, with
        neighbours of its example, and with what its schemas allow and forbid.
        """
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end and turn < turns:
            for operation in self.operations:
                yield from self._neighbours(operation, 4 * examples, turn, end)
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    if time.monotonic() < end:
                        yield from self._some(operation, mode, examples, turn, end)
            turn += 1

    def storm(self, seconds: float, clients: int, most: float = math.inf) -> list[Finding]:
        """Findings of several clients that send neighbours of all examples, as fast as they can,
        until the time is over or so many were sent.

        Answers are looked at for their status alone.
        """
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(functools.partial(self._client, end, most), range(clients)))
        return [*self.findings.values()]

    def _client(self, end: float, most: float, number: int) -> None:
        chance = random.Random(number)
        with httpx2.Client(base_url=self._url, timeout=2 * self._timeout) as client:
            while time.monotonic() < end and self.sent < most:
                path = chance.choice([*self._examples])
                body = neighbour(self._examples[path], chance)
                try:
                    status = client.post(path, json=body).status_code
                except httpx2.HTTPError as error:
                    status, failure = 0, f"no answer: {type(error).__name__}"
                except ValueError:
                    continue  # a number that JSON has no word for
                else:
                    failure = f"{status}"
                label = f"POST {path}"
                self.sent += 1
                self.statuses[label, status] += 1
                if not 200 <= status < 500:
                    text = json.dumps(body)[:_LONGEST]
                    self.findings.setdefault((label, failure), Finding(label, failure, text))

    def _neighbours(self, operation: Any, examples: int, turn: int, end: float) -> list[Finding]:
        before = set(self.findings)
        example = self._examples.get(operation.path)
        chance = random.Random(f"{operation.label} {turn}")
        bodies = itertools.islice(_bodies(example, chance), examples if example is not None else 0)
        for body in bodies:
            if time.monotonic() >= end:
                break
            case = operation.Case(body=body, media_type="application/json")
            self._send(operation.label, case)
        return [found for key, found in self.findings.items() if key not in before]

    def _some(
        self, operation: Any, mode: GenerationMode, examples: int, turn: int, end: float
    ) -> list[Finding]:
        before = set(self.findings)

        @seed(turn)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            if time.monotonic() < end:
                self._send(operation.label, case)

        # Nothing wrong can be sent where there is nothing to send.
        with contextlib.suppress(schemathesis.errors.SchemathesisError, Unsatisfiable):
            send()
        return [found for key, found in self.findings.items() if key not in before]

    def _send(self, label: str, case: Any) -> None:
        self.sent += 1
        try:
            response = case.call(base_url=self._url, timeout=self._timeout)
        except Exception as error:  # noqa: BLE001 - no answer is a finding as well
            self._found(label, f"no answer: {type(error).__name__}", case)
            return
        self.statuses[label, response.status_code] += 1
        try:
            case.validate_response(response, checks=CHECKS)
        except (Failure, FailureGroup) as error:
            failures = error.exceptions if isinstance(error, FailureGroup) else [error]
            for failure in failures:
                said = f"{response.status_code} {type(failure).__name__} {response.text[:200]}"
                self._found(label, said, case)

    def _found(self, label: str, failure: str, case: Any) -> None:
        body = case.body
        try:
            text = json.dumps(body, default=repr)
        except (TypeError, ValueError):
            text = repr(body)
        key = (label, failure.split("{", maxsplit=1)[0])
        self.findings.setdefault(key, Finding(label, failure, text[:_LONGEST]))


def _bodies(example: dict[str, Any], chance: random.Random) -> Iterator[Any]:
    """The example, streamed and not, and then its neighbours without end."""
    yield example
    yield example | {"stream": True}
    while True:
        yield neighbour(example, chance)


def _examples(description: dict[str, Any]) -> dict[str, Any]:
    """Examples of bodies by path."""
    found = {}
    for path, operations in description["paths"].items():
        body = operations.get("post", {}).get("requestBody", {})
        example = body.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            found[path] = example
    return found


def main() -> int:
    """Fuzz the server named on the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--storm",
        type=int,
        metavar="CLIENTS",
        help="send neighbours of valid requests only, from so many clients at once",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="paths that have it")
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.url, only=arguments.only)
    if not fuzzer.operations:
        parser.error(f"no path of this server has {arguments.only!r}")
    if arguments.storm is not None:
        findings: Iterable[Finding] = fuzzer.storm(arguments.seconds, arguments.storm)
    else:
        findings = fuzzer.run(arguments.seconds)
    for finding in findings:
        print(finding, flush=True)
    for (label, status), n in sorted(fuzzer.statuses.items()):
        print(f"{label:<36} {status} {n:>7}")
    print(f"{fuzzer.sent} requests, {len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
