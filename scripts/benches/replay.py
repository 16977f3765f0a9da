"""The gain of drafting from the text on known replies, without computing a model.

Under `match` the text never depends on the draft, so the rounds of a known reply are exactly those
of a model that would write it. Two things are shown: tokens per round at a fixed length, compared
with the prompt lookup of llama-cpp-python; and the speed against plain decoding that the controller
would reach with the given seconds of a pass by width. The real loop, controller and drafters run;
only the clock is computed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from benches.shared.replay_texts import Text, edited_files, texts
from localspec import Options, Runtime, Sampling
from localspec.core.events import Speculation
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.core.settings_schema import MAX_K
from localspec.core.target import Work
from localspec.core.values import Draft, Proposal, Scores, chain_parents
from localspec.decode.request import ANY_DRAFT, DraftRules, Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.policy import Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed

CURVE = "1:28.5,2:54,3:76,4:73,8:142,16:212,32:420"
"""Milliseconds by width: two cores of an EPYC, a 1 GB target."""
_GREEDY = Sampling(temperature=0)
_FILES = 3
"""Whole files that are edited: each has thousands of tokens."""


def seconds(curve: str) -> dict[int, float]:
    """The curve of a command line in seconds by width."""
    points = (point.split(":") for point in curve.split(","))
    return {int(n): float(ms) / 1000 for n, ms in points}


class Lookup(Drafter):
    """llama-cpp-python's prompt lookup as a drafter."""

    name = "lookup"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=ask.budget.depth)
        found = lookup(np.array(ask.tokens, np.intc))[: ask.budget.depth]
        return Draft(
            found.astype(np.int32),
            chain_parents(len(found)),
            Proposal.DETERMINISTIC,
            None,
            self.name,
        )


class Known:
    """A target that emits the known reply; drafts are chains."""

    leaves = 1
    capacity = 1 << 30

    def __init__(self, text: Sequence[int], held: int, vocabulary: int) -> None:
        self._text, self._held, self._vocabulary = text, held, vocabulary

    def deepest(self, sequences: int) -> int:
        del sequences
        return MAX_K

    def score(self, work: Sequence[Work]) -> list[Scores]:
        (w,) = work
        rows = np.zeros((1 + len(w.draft), self._vocabulary), np.float32)
        for i in range(min(len(rows), len(self._text) - self._held - 1)):
            rows[i, self._text[self._held + 1 + i]] = 1.0
        return [Scores(rows)]

    def keep(self, seq: int, path: Sequence[int]) -> None:
        del seq
        self._held += 1 + len(path)

    def length(self, seq: int) -> int:
        del seq
        return self._held

    def audit(self, seq: int) -> None:
        """There is no cache."""
        del seq


class Clocked:
    """A policy that learns from computed times."""

    def __init__(self, policy: Policy, curve: Costs) -> None:
        self._policy, self._curve = policy, curve
        self.costs = policy.costs
        self.seconds = 0.0

    def speculation_of(self, seq: int) -> Speculation:
        return self._policy.speculation_of(seq)

    def expects_drafts(self, state: RequestState) -> bool:
        return self._policy.expects_drafts(state)

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return self._policy.plan(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        (o,) = outcomes
        lasted = self._curve.verify(1 + o.proposed) + o.draft_s
        self.seconds += lasted
        self._policy.learn([dataclasses.replace(o, round_s=lasted)], evidence)


@dataclasses.dataclass(slots=True)
class Sum:
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0


Pair = tuple[list[int], list[int]]
"""Tokens of a prompt and of its reply."""


def replay(
    pairs: Sequence[Pair],
    make: Callable[[], Drafter],
    policy: Policy,
    curve: Costs,
    v: int,
    drafting: DraftRules = ANY_DRAFT,
) -> Sum:
    """Replay every reply with one policy."""
    total = Sum()
    clocked = Clocked(policy, curve)
    for prompt, reply in pairs:
        known = [*prompt, *reply]
        target = Known(known, len(prompt) - 1, v)
        request = Request(
            0,
            list(prompt),
            LogitsProcessor(_GREEDY, v),
            Noise(0),
            len(reply),
            drafting=drafting,
        )
        drafter = make()
        while request.running:
            decode_round([request], target, drafter, clocked)
        assert request.tokens == known
        total.tokens += len(reply)
        total.rounds += request.tally.rounds
        total.drafted += request.tally.drafted
        total.accepted += request.tally.accepted
    total.seconds = clocked.seconds
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo", help="whose tokens are used")
    parser.add_argument("--each", type=int, default=40, help="texts of each kind")
    parser.add_argument("--length", type=int, default=10, help="fixed draft length")
    parser.add_argument("--curve", default=CURVE, help="WIDTH:MILLISECONDS,... of a target pass")
    args = parser.parse_args()
    curve = seconds(args.curve)
    with Runtime.open(Options(model=args.model, drafter=("off",))) as runtime:
        model = runtime.pair.target_model
        work = {
            kind: [tokens_of(text, model.tokenize) for text in some]
            for kind, some in (texts(args.each) | {"whole files": edited_files(_FILES)}).items()
        }
        v = model.n_vocab
    print(f"{'':22} tokens per round at length {args.length:<3}     with the controller: suffix")
    print(f"{'':22} {'lookup':>7} {'ngram':>7} {'suffix':>7}   acceptance  tokens/round  speed")
    for kind, pairs in work.items():
        fixed = [
            replay(pairs, make, Fixed(args.length), Costs(curve), v)
            for make in (Lookup, NGram, Suffix)
        ]
        auto = Controller(Knowledge({0: Costs(curve)}), ["suffix"], free=["suffix"])
        free = replay(pairs, Suffix, auto, Costs(curve), v)
        plain = free.tokens * curve[1]
        rounds = " ".join(f"{s.tokens / s.rounds:7.2f}" for s in fixed)
        print(
            f"{kind:22} {rounds}   {free.accepted / max(1, free.drafted):10.0%} "
            f"{free.tokens / free.rounds:13.2f} {plain / free.seconds:6.2f}"
        )


def tokens_of(text: Text, tokenize: Callable[..., list[int]]) -> Pair:
    prompt = list(tokenize(text.prompt + "\n\n", special=False, bos=False))
    return prompt, list(tokenize(text.reply, special=False, bos=False))


if __name__ == "__main__":
    main()
