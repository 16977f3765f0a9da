"""lm-eval against `localspec serve`: its log-likelihoods are those of llama-cpp-python's own class.

lm-eval is no dependency of ours; install it into an environment of its own and name its Python::

    python -m venv /tmp/lm-eval && /tmp/lm-eval/bin/pip install 'lm-eval[api]'
    scripts/bench lm_eval --lm-eval /tmp/lm-eval/bin/python

A multiple-choice task of sentences written for this check is evaluated over HTTP with
``local-completions`` and speculation on, and without a network. Every log-likelihood that lm-eval
recorded is compared with that of `llama_cpp.Llama` for the same tokens: in strict mode with its
default settings, otherwise (``--usual``) with flash attention and the passes that localspec makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from benches.shared.servers import running
from localspec.llama.limits import OUTPUTS
from localspec.models.catalog.resolve import resolve

_TOLERANCE = 1e-3
_TASK = "localspec_choices"
_QUESTIONS = (
    ("The harbour store opens at eight and closes at", ("six", "banana", "under the till")),
    ("To repair a bicycle, first turn it", ("over", "into a lamp", "Wednesday")),
    ("A draft model proposes tokens, and the target", ("verifies them", "paints them", "sleeps")),
    ("Seven times six is", ("forty-two", "a river", "seventeen")),
    ("The capital of France is", ("Paris", "Oslo", "a small green frog")),
    ("def mean(values): return sum(values) /", ("len(values)", "values(len)", "sum")),
    ("Two rivers meet below the bridge, so the water there is", ("deep", "1987", "an apple")),
    ("Grüße aus der Stadt, in der es im Winter viel", ("Schnee gibt", "Käse regnet", "漢字 🙂")),
)


def write_task(folder: Path) -> None:
    """A task of lm-eval, with its data beside it."""
    rows = [
        {"question": question, "choices": list(choices), "answer": 0}
        for question, choices in _QUESTIONS
    ]
    data = folder / "choices.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    task = {
        "task": _TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}],
    }
    (folder / "task.yaml").write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML


def evaluate(python: str, address: str, model: str, folder: Path, most: int) -> list[Any]:
    """lm-eval's record of each sample."""
    settings = {
        "model": model,
        "base_url": f"{address}/v1/completions",
        "tokenizer_backend": "remote",
        "num_concurrent": 3,
        "max_length": most,
    }
    arguments = ",".join(f"{name}={value}" for name, value in settings.items())
    command = [python, "-m", "lm_eval", "--model", "local-completions"]
    command += ["--model_args", arguments, "--tasks", _TASK, "--include_path", str(folder)]
    command += ["--output_path", str(folder / "out"), "--log_samples", "--batch_size", "1"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run(command, check=True, env={**own, **offline}, stdout=sys.stderr)
    (file,) = (folder / "out").rglob("samples_*.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


class Reference:
    """llama-cpp-python's own class."""

    def __init__(self, path: Path, most: int, *, strict: bool) -> None:
        usual = {"flash_attn": True, "n_batch": OUTPUTS, "n_ubatch": OUTPUTS}
        kernels = {} if strict else usual
        self._llama = llama_cpp.Llama(
            str(path), n_ctx=most, logits_all=True, verbose=False, n_threads=1, **kernels
        )

    def tokens(self, text: str) -> list[int]:
        found: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=True)
        return found

    def loglikelihood(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        """(Sum of the log-probabilities of the continuation, whether greedy decoding gives it)."""
        ids = [*context, *continuation]
        self._llama.reset()
        self._llama.eval(ids)
        rows = self._llama.scores[len(context) - 1 : len(ids) - 1].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        each = rows[np.arange(len(rows)), continuation]
        return float(each.sum()), bool((each == rows.max(axis=1)).all())


def compare(samples: Sequence[Any], reference: Reference) -> tuple[int, float, int]:
    """(Log-likelihoods compared, largest difference, differing answers to "is it greedy")."""
    n, worst, greedy = 0, 0.0, 0
    for sample in samples:
        for given, answer in zip(sample["arguments"].values(), sample["resps"], strict=True):
            text, continuation = given["arg_0"], given["arg_1"]
            whole, context = reference.tokens(text + continuation), reference.tokens(text)
            right, is_greedy = reference.loglikelihood(context, whole[len(context) :])
            (found,) = answer
            n += 1
            worst = max(worst, abs(float(found[0]) - right))
            greedy += (str(found[1]) == "True") != is_greedy
    return n, worst, greedy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--lm-eval", required=True, metavar="PYTHON", help="that has lm-eval")
    parser.add_argument("--usual", action="store_true", help="without strict mode")
    parser.add_argument("--ctx", type=int, default=512)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_task(folder)
        flags = ["--ctx", str(args.ctx), "--threads", "1", "--jobs", "3"]
        flags += [] if args.usual else ["--strict"]
        at = r"at (http://[\w.:]+)\n"
        with running("serve", args.model, "--port", "0", *flags, address=at) as address:
            samples = evaluate(args.lm_eval, address, args.model, folder, args.ctx)
    path = resolve(args.model, None).target.path
    n, worst, greedy = compare(samples, Reference(path, args.ctx, strict=not args.usual))
    print(f"{n} log-likelihoods, largest difference {worst:.1e}, {greedy} greedy flags differ")
    if n == 0 or worst > _TOLERANCE or greedy:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
