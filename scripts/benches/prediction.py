"""Edits of code with the text that the client expects, and without: tokens per pass and speed.

The replies are known edits of functions of Python's standard library, and a client predicts the
function as it was. Drafting from the text so far (``suffix``) is compared with drafting from the
prediction too. The prompt contains the code, so that it can be drafted from as well; with
``--open`` it does not, as where a tool has read the file in another request.

The real loop, controller and drafters run. Without ``--real`` only the clock is computed, from the
given seconds of a pass by width, and no model is. With it every pass is computed by the model, and
then its logits are replaced by those of the known reply: small models could not make the edits
themselves. The ways alternate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benches.replay import CURVE, Clocked, Known, seconds
from benches.shared.replay_texts import Text, texts
from localspec import Options, Runtime, Sampling
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.target import Target, Work
from localspec.core.values import Scores
from localspec.decode.request import DraftRules, Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Committed, Drafter
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.predicted_text import PredictedText
from localspec.drafters.lookup.prediction import PredictionDrafter
from localspec.drafters.lookup.suffix import Suffix
from localspec.policy import Plain, Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

_KINDS = ("code, a name changed", "code, lines changed")
_WAYS = {"plain": (), "suffix": ("suffix",), "prediction": ("prediction", "suffix")}


class Scripted:
    """A target that computes every pass, and then answers with a known reply. Chains only."""

    leaves = 1

    def __init__(self, target: Target, text: Sequence[int]) -> None:
        self._target, self._text = target, text

    def score(self, work: Sequence[Work]) -> list[Scores]:
        (w,) = work
        held = self._target.length(w.seq)
        (scores,) = self._target.score(work)
        rows = np.zeros_like(scores.logits)
        for i in range(min(len(rows), len(self._text) - held - 1)):
            rows[i, self._text[held + 1 + i]] = 1.0
        return [Scores(rows)]

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)


@dataclass(frozen=True, slots=True)
class Edit:
    """A known edit as tokens."""

    prompt: list[int]
    reply: list[int]
    prediction: list[int]

    @property
    def text(self) -> list[int]:
        return [*self.prompt, *self.reply]

    def decode(self, target: object, drafter: Drafter, policy: Policy, way: str, v: int) -> Request:
        """Decode the reply."""
        request = Request(
            seq=0,
            tokens=list(self.prompt),
            processor=LogitsProcessor(Sampling(temperature=0), v),
            noise=Noise(0),
            limit=len(self.reply),
            drafting=DraftRules(
                frozenset(_WAYS[way]), None, PredictedText(self.prediction, len(self.prompt))
            ),
        )
        drafter.commit([Committed(0, request.tokens, request.tokens)])
        while request.running:
            decode_round([request], target, drafter, policy)  # type: ignore[arg-type]
        assert request.tokens == self.text, request.error
        return request


@dataclass(frozen=True, slots=True)
class Run:
    """A reply in one of the ways."""

    seconds: float
    tokens: int
    rounds: int


class Computed:
    """Replies on a computed clock."""

    def __init__(self, curve: dict[int, float], v: int) -> None:
        self._curve, self._v = Costs(curve), v
        self._policies = {
            way: Controller(Knowledge({0: Costs(curve)}), names, free=names)
            for way, names in _WAYS.items()
        }

    def run(self, edit: Edit, way: str) -> Run:
        clocked = Clocked(self._policies[way], self._curve)
        known = Known(edit.text, len(edit.prompt) - 1, self._v)
        request = edit.decode(
            known, Cascade([PredictionDrafter(), Suffix()]), clocked, way, self._v
        )
        return Run(clocked.seconds, len(edit.reply), request.tally.rounds)


class Real:
    """Replies whose passes a model computes."""

    def __init__(self, runtime: Runtime) -> None:
        self._pair = runtime.pair

    def run(self, edit: Edit, way: str) -> Run:
        pair = self._pair
        pair.target.truncate(0, 0)
        pair.drafter.close(0)
        pair.target.read(0, edit.prompt[:-1])
        policy = Plain("asked for") if way == "plain" else pair.control.policy
        start = time.perf_counter()
        target, v = Scripted(pair.target, edit.text), pair.target_model.n_vocab
        request = edit.decode(target, pair.drafter, policy, way, v)
        return Run(time.perf_counter() - start, len(edit.reply), request.tally.rounds)


def edits(some: Sequence[Text], tokenize: Callable[..., list[int]], *, opened: bool) -> list[Edit]:
    """The edits of one kind."""
    found = []
    for text in some:
        instruction, _, code = text.prompt.partition("\n\n")
        parts = (f"{instruction if opened else text.prompt}\n\n", text.reply, code)
        found.append(Edit(*(tokenize(part, special=False, bos=False) for part in parts)))
    return found


def report(kind: str, runs: dict[str, list[Run]]) -> str:
    """A line of figures."""
    rates = {w: sum(r.tokens for r in runs[w]) / sum(r.rounds for r in runs[w]) for w in _WAYS}
    speeds = {
        way: statistics.median(
            plain.seconds / one.seconds for plain, one in zip(runs["plain"], runs[way], strict=True)
        )
        for way in _WAYS
    }
    return (
        f"{kind:22} {rates['suffix']:8.2f} {rates['prediction']:11.2f} "
        f"{speeds['suffix']:11.2f} {speeds['prediction']:11.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo", help="whose tokens are used")
    parser.add_argument("--real", action="store_true", help="have the model compute every pass")
    parser.add_argument("--each", type=int, default=30, help="edits of each kind")
    parser.add_argument("--open", action="store_true", help="leave the code out of the prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--curve", default=CURVE, help="WIDTH:MILLISECONDS,... of a target pass")
    args = parser.parse_args()
    curve = seconds(args.curve)
    drafter = ("suffix",) if args.real else ("off",)
    options = Options(model=args.model, drafter=drafter, context=4096, threads=args.threads)
    print("                         tokens per pass          speed by plain")
    print("                         suffix  prediction      suffix  prediction")
    with Runtime.open(options) as runtime:
        model = runtime.pair.target_model
        work = Real(runtime) if args.real else Computed(curve, model.n_vocab)
        for kind, some in texts(args.each).items():
            if kind not in _KINDS:
                continue
            runs: dict[str, list[Run]] = {way: [] for way in _WAYS}
            for i, edit in enumerate(edits(some, model.tokenize, opened=args.open)):
                for way in [*_WAYS][:: -1 if i % 2 else 1]:
                    runs[way].append(work.run(edit, way))
            print(report(kind, runs), flush=True)


if __name__ == "__main__":
    main()
