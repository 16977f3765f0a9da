"""Several requests in one round, on llama.cpp: each keeps its own books and its own text."""

from __future__ import annotations

from conftest import Files

from localspec import Sampling
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.values import Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.model.chain import ChainDrafter
from localspec.llama.context import Context
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.testing import Fixed

PROMPTS = ("one and one and one", "Hello?", "a much longer prompt than the others have")
TOKENS = 24


def replies(files: Files, prompts: tuple[str, ...]) -> list[list[int]]:
    model, small = Model(files.target), Model(files.draft)
    context = Context(model, n_ctx=256, n_seq=len(prompts), n_batch=128, threads=1)
    drafting = Context(small, n_ctx=256, n_seq=len(prompts), n_batch=128, threads=1)
    target = LlamaTarget(context)
    drafter = Cascade(
        [NGram(3), ChainDrafter(LlamaDraftModel(drafting, model.n_vocab), Proposal.COUPLED)]
    )
    requests = []
    for seq, prompt in enumerate(prompts):
        tokens = model.tokenize(prompt)
        target.read(seq, tokens[:-1])
        processor = LogitsProcessor(Sampling(temperature=1.0), model.n_vocab)
        noise = Noise(len(prompt))  # the request's own, whatever its place in the batch
        requests.append(Request(seq, tokens, processor, noise, TOKENS))
    alive = requests
    while alive:
        decode_round(alive, target, drafter, Fixed(3))
        context.audit()
        drafting.audit()
        alive = [r for r in alive if r.running]
    for part in (context, drafting, model, small):
        part.close()
    assert sum(r.tally.accepted for r in requests) > 0
    return [[e.token for e in r.emitted] for r in requests]


def test_a_request_has_the_same_text_in_any_batch(files: Files) -> None:
    """Weights of 32 bits and one thread: batch noise is too small here to part the texts."""
    together = replies(files, PROMPTS)
    assert [len(r) for r in together] == [TOKENS] * len(PROMPTS)
    assert together == [replies(files, (prompt,))[0] for prompt in PROMPTS]
