"""Replies in a batch, compared with plain ones alone."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import Files
from memory_files import KINDS

from localspec import GREEDY, Options, Runtime, Sampling
from localspec.bench import together
from localspec.bench.together import ComparingTogether
from localspec.cli import verify
from localspec.core.files.paths import DEMO_DIR
from localspec.llama.library import c_api, start

PROMPTS = ("hello", "what is it?", "a longer question of a few more words")
SETTINGS = (GREEDY, Sampling(temperature=1.0))


@pytest.fixture
def options(files: Files) -> Options:
    return Options(
        model=str(files.target), draft=str(files.draft), draft_max=3, parallel=3, context=384
    )


def comparing(runtime: Runtime) -> ComparingTogether:
    return ComparingTogether(runtime, PROMPTS, SETTINGS, together=3, max_tokens=20, seed=1)


def test_strict_mode_computes_the_same_bits_in_a_batch(options: Options) -> None:
    with Runtime.open(dataclasses.replace(options, strict=True)) as runtime:
        found = comparing(runtime)
        rows = list(found.steps())
        result = found.so_far()
    assert [row.replies for row in rows] == [0, 2, 4, 6] * 2
    assert result.exact
    assert result.noise == 0.0
    assert all(c.identical == 6 and c.accepted and c.cached for c in result.comparisons)
    assert all(c.shared > 6 for c in result.comparisons)  # others come as others leave


def test_a_reply_that_a_batch_changed_is_found(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: one token becomes the least likely one."""
    usual = ComparingTogether._beside_others
    with Runtime.open(options) as runtime:
        found = comparing(runtime)

        def changed(self, asked, *, cached):  # type: ignore[no-untyped-def]
            reply, shared = usual(self, asked, cached=cached)
            text = runtime.encode(asked.messages)
            row = found.scorer._rows(text, list(reply.tokens[:3]), 1)[-1]
            tokens = (*reply.tokens[:2], int(np.argmin(row)), *reply.tokens[3:])
            return dataclasses.replace(reply, tokens=tokens), shared

        monkeypatch.setattr(together.ComparingTogether, "_beside_others", changed)
        steps = found.steps()
        assert [next(steps).replies for _ in range(2)] == [0, 2]
        result = found.so_far()
    assert not result.exact
    assert [d.position for d in result.comparisons[0].divergences] == [2, 2]
    assert result.noise > 0 or not result.strict


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_a_state_that_is_taken_back_only_so_far_is_measured_in_a_batch(
    tmp_path: Path, kind: str
) -> None:
    target = KINDS[kind](tmp_path / "target.gguf")
    options = Options(model=str(target), draft="none", parallel=3, context=256, threads=1)
    with Runtime.open(options) as runtime:
        found = ComparingTogether(runtime, PROMPTS, (GREEDY,), together=3, max_tokens=6, seed=1)
        assert [row.replies for row in found.steps()] == [0, 2, 4, 6]
        assert found.so_far().exact


def test_the_command_prints_one_object(files: Files, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("hello\nwhat is it?\n")
    arguments = [str(files.target), "-d", str(files.draft), "--prompts", str(prompts), "--json"]
    arguments += ["--together", "2", "-n", "8", "-t", "0", "--ctx", "256", "--strict"]
    result = CliRunner().invoke(verify.command, arguments, standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.stdout)
    assert (found["together"], found["exact"], found["noise"]) == (2, True, 0.0)
    assert found["settings"][0]["replies"] == 4
    ways = ("at least 2 rows", "own kernels")
    assert found["model"]["strict"].startswith(ways)


_FILE_TYPES = {"Q4_K_M": 15, "F16": 1}
"""llama.cpp's, by name."""


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "together"), [("Q4_K_M", None), ("Q4_K_M", "3"), ("F16", "3")])
def test_the_demo_in_other_weights_does_not_diverge_in_strict_mode(
    tmp_path: Path, weights: str, together: str | None
) -> None:
    """In a process of its own: whether products are tiled is decided once for a process. In a
    batch the rows themselves are compared, so fewer prompts are enough.
    """
    start()
    target = tmp_path / "target.gguf"
    params = c_api.llama_model_quantize_default_params()
    params.allow_requantize, params.ftype = True, _FILE_TYPES[weights]
    small = DEMO_DIR / "target.gguf"
    assert c_api.llama_model_quantize(str(small).encode(), str(target).encode(), params) == 0
    command = [sys.executable, "-P", "-m", "localspec", "verify", str(target)]
    command += ["-d", str(DEMO_DIR / "draft.gguf"), "--strict", "--threads", "1", "--json"]
    command += ["-n", "40"]
    command += ["--limit", "2", "--together", together] if together else ["--limit", "3"]
    home = os.environ | {"LOCALSPEC_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["exact"]
    assert all(setting["accepted"] for setting in found["settings"])
    if together:
        assert found["noise"] == 0.0
