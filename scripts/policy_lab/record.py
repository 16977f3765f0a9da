"""Records evidence: replies of the embedded target, and what several drafters knew of them.

Draft models: the embedded one, the target with two bits a weight, and the target without two of its
layers, which stand for a usual, a close and a bad draft. A reply is answered plainly; then each
drafter is shown it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benches.shared.replay_texts import texts

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.bench.workloads import WORKLOADS
from localspec.core.files.paths import DEMO_DIR
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.llama.draft_from_target import Rewriting, rewrite
from policy_lab.evidence import FILE, LONGEST, Copies, Predictions, Recorded, Source, packed, save

_BLOCK = 16
"""Tokens that a probe compares."""
_TEMPERATURES = (0.0, 0.7, 1.0)
_LONGEST_REPLY = 384
_LOOKUPS: dict[str, type[Drafter]] = {"suffix": Suffix, "ngram": NGram}


@dataclass(frozen=True)
class Text:
    """A reply before any drafter has seen it."""

    workload: str
    temperature: float
    seed: int
    prompt: list[int]
    reply: list[int]


def replies(runtime: Runtime, each: int) -> Iterator[Text]:
    """Replies of the target to the prompts of `bench`, then known replies to other prompts."""
    for workload in WORKLOADS:
        for temperature in _TEMPERATURES:
            for seed, prompt in enumerate(workload.prompts):
                message = (Message("user", prompt),)
                sampling = Sampling(temperature=temperature)
                reply = runtime.answer(
                    ReplyRequest(
                        message,
                        sampling=sampling,
                        seed=seed,
                        max_tokens=_LONGEST_REPLY,
                        draft=False,
                    )
                )
                yield Text(
                    workload.name, temperature, seed, runtime.encode(message), list(reply.tokens)
                )
    model = runtime.pair.target_model
    for kind, some in texts(each).items():
        for text in some:
            prompt = list(model.tokenize(text.prompt + "\n\n", special=False, bos=False))[-360:]
            reply = list(model.tokenize(text.reply, special=False, bos=False))[:_LONGEST_REPLY]
            yield Text(f"known: {kind}", 0.0, 0, prompt, reply)


def predictions(drafter: ChainDrafter, text: Text, n_vocab: int) -> Predictions:
    """A draft model's drafts at each place, given all tokens before."""
    tokens = list(text.prompt)
    ask = _ask(text, tokens, n_vocab, probe=True)
    confidences: list[float] = []
    right: list[bool] = []
    for at in range(0, len(text.reply), _BLOCK):
        tokens += text.reply[at : at + _BLOCK]
        drafter.propose([ask])
        found = drafter._probed  # noqa: SLF001 - evidence without a round
        drafter._probed = []  # noqa: SLF001
        confidences += [e.confidence for e in found]
        right += [e.accepted for e in found]
    drafter.close(0)
    if len(right) != len(text.reply):
        raise RuntimeError(f"{len(right)} of {len(text.reply)} places were judged")
    return Predictions(packed(confidences), np.array(right, bool))


def copies(drafter: Drafter, text: Text, n_vocab: int) -> Copies:
    """The drafts of a drafter that copies, from each place."""
    tokens = list(text.prompt)
    lengths, accepted, confidences = [], [], list[float]()
    for place, token in enumerate(text.reply):
        pace = _Noting()
        ask = _ask(text, tokens, n_vocab, pace=pace)
        (draft,) = drafter.propose([ask])
        n, rest = 0, text.reply[place:]
        while n < min(len(draft), len(rest)) and draft.tokens[n] == rest[n]:
            n += 1
        kept = pace.confidences[: len(draft)]
        lengths.append(len(kept))
        accepted.append(n)
        confidences += kept
        tokens.append(token)
    drafter.close(0)
    return Copies(np.array(lengths, np.uint8), np.array(accepted, np.uint8), packed(confidences))


class _Noting:
    """A pace that uses the whole budget and keeps the confidences."""

    def __init__(self) -> None:
        self.confidences: list[float] = []

    def more(self, confidences: Sequence[float]) -> bool:
        self.confidences = list(confidences)
        return True

    def further(self, confidences: Sequence[float]) -> bool:
        del confidences
        return True


def _ask(
    text: Text,
    tokens: list[int],
    n_vocab: int,
    *,
    probe: bool = False,
    pace: _Noting | None = None,
) -> Ask:
    return Ask(
        0,
        tokens,
        Budget.chain(0 if probe else LONGEST),
        Noise(text.seed),
        LogitsProcessor(Sampling(temperature=text.temperature), n_vocab),
        pace=pace or _Noting(),
        probe=probe,
        prompt=len(text.prompt),
    )


def _draft_models(runtime: Runtime) -> ChainDrafter:
    found = [m for m in runtime.pair.drafter.members if isinstance(m, ChainDrafter)]
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=12, help="known replies of each kind")
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    with Runtime.open(Options(model="demo", drafter=("off",))) as runtime:
        n_vocab = runtime.pair.target_model.n_vocab
        known = list(replies(runtime, args.each))
    found: list[dict[str, Source]] = [
        {name: copies(kind(), text, n_vocab) for name, kind in _LOOKUPS.items()} for text in known
    ]
    with tempfile.TemporaryDirectory() as folder:
        target = DEMO_DIR / "target.gguf"
        close, bad = Path(folder, "close.gguf"), Path(folder, "bad.gguf")
        drafts = {"model": None, "close": close, "bad": bad}
        for path, bits, drop in ((close, 2, ()), (bad, None, (2, 3))):
            rewrite(Rewriting(str(target), str(path), bits, drop), cancelled=lambda: False)
        for name, path in drafts.items():
            draft = str(path) if path is not None else None
            with Runtime.open(Options(model="demo", draft=draft, drafter=("model",))) as runtime:
                drafter = _draft_models(runtime)
                for text, sources in zip(known, found, strict=True):
                    sources[name] = predictions(drafter, text, n_vocab)
    recorded = [
        Recorded(text.workload, text.temperature, len(text.prompt), sources)
        for text, sources in zip(known, found, strict=True)
    ]
    save(args.out, recorded)
    tokens = sum(r.length for r in recorded)
    print(f"{len(recorded)} replies, {tokens} tokens, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
