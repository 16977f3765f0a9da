"""Exactness of every drafter, wherever the layers and the KV cache are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from device import pairs
from device.pairs import ALL, NONE, PARTLY, PLACEMENTS, Case, Placement
from device.rows import Row, finding, judged
from localspec import GREEDY, Runtime, Sampling
from localspec.bench.exactness import Verification, verify
from localspec.bench.workloads import VERIFY
from localspec.core.errors import LocalspecError
from localspec.core.options import Options
from localspec.llama.library import c_api

_SETTINGS = (GREEDY, Sampling(temperature=1.0))
_GROUP = "Exactness of every drafter"
_VERIFY = "verify with this backend's noise"


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every drafter in every placement; with ``quick`` one or two placements of each."""
    cases = pairs.trained(folder)
    for name, case in cases.items():
        for placement in _placements(case, quick=quick):
            yield _row(f"{name}: {placement.name}", case, case.options(placement), quick=quick)
    for name, case in pairs.random(folder).items():
        for placement in _placements(case, quick=quick):
            yield _row(f"{name}: {placement.name}", case, case.options(placement), quick=quick)
    experts = pairs.random(folder)["suffix on a mixture, random"]
    for layers in (2, 4):
        what = f"experts of {layers} of 4 layers on the host"
        yield _row(what, experts, experts.options(ALL, cpu_experts=layers), quick=quick)
    model = cases["draft model"]
    with kv_on_host():
        for placement in (ALL,) if quick else (ALL, PARTLY):
            what = f"KV cache on the host: {placement.name}"
            yield _row(what, model, model.options(placement), quick=quick)
    what = "KV cache q8_0: target all, draft all"
    yield _row(what, model, model.options(ALL, kv_type="q8_0"), quick=quick)


def verified(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Results of `localspec verify`, by placement and by draft length."""
    model = pairs.trained(folder)["draft model"]
    prompts = VERIFY[: 3 if quick else 12]
    settings = [Sampling(temperature=t) for t in (0.0, 0.7, 1.0)]
    for placement in (ALL,) if quick else (ALL, PARTLY, NONE):
        options = replace(model.options(placement), drafter=None)
        yield _checked(_VERIFY, placement.name, options, prompts, settings, 32, accepts=True)
    for width in () if quick else (1, 3, 7, 15):
        options = replace(model.options(ALL), drafter=None, draft_max=width)
        what = f"{ALL.name}, drafts of {width}"
        yield _checked(_VERIFY, what, options, prompts[:4], _SETTINGS, 32, accepts=True)


def _placements(case: Case, *, quick: bool) -> Sequence[Placement]:
    if case.draft is not None and case.drafter == "model":
        return (ALL, PARTLY) if quick else PLACEMENTS
    if quick:
        return (ALL,)
    return (ALL, PARTLY, NONE) if case.draft is None else (ALL, PARTLY, NONE, Placement(99, 0))


def _row(what: str, case: Case, options: Options, *, quick: bool) -> Row:
    prompts = VERIFY[:1] if quick else VERIFY[:2]
    return _checked(_GROUP, what, options, prompts, _SETTINGS, 24, accepts=case.accepts)


def _checked(
    group: str,
    what: str,
    options: Options,
    prompts: Sequence[str],
    settings: Sequence[Sampling],
    max_tokens: int,
    *,
    accepts: bool,
) -> Row:
    try:
        with Runtime.open(options) as runtime:
            drafts = runtime.info.drafters
            found = verify(runtime, prompts, settings, max_tokens=max_tokens, seed=1)
    except LocalspecError as error:
        return finding(group, what, f"{type(error).__name__}: {error}")
    verified_, accepted = (
        sum(getattr(c, name) for c in found.comparisons) for name in ("verified", "accepted")
    )
    passed = found.exact and bool(drafts) and (accepted > 0 or not accepts)
    return judged(group, what, _figures(found, verified_, accepted), passed=passed)


def _figures(found: Verification, verified_: int, accepted: int) -> str:
    replies = sum(c.replies for c in found.comparisons)
    identical = sum(c.identical for c in found.comparisons)
    text = f"{identical} of {replies} replies identical, {accepted} of {verified_} tokens accepted"
    far = [d.gap for c in found.comparisons for d in c.divergences if not d.near_tie]
    if far:
        text += f", NOT near-ties: gaps {', '.join(f'{gap:.3g}' for gap in far)}"
    return f"{text}, batch noise {found.batch_noise:.2g}"


@contextlib.contextmanager
def kv_on_host() -> Iterator[None]:
    """Keep the KV cache of contexts made in this block in the host's memory."""
    usual = c_api.llama_context_default_params

    def changed() -> Any:
        params = usual()
        params.offload_kqv = False
        return params

    c_api.llama_context_default_params = changed
    try:
        yield
    finally:
        c_api.llama_context_default_params = usual
