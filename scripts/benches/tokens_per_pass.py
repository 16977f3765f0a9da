"""Tokens per pass of the target, beside llama-cpp-python's prompt lookup and `transformers`.

The same prompts (the workloads of `localspec bench`, as token ids) are continued greedily by all
with the same number of drafted tokens a round. Counted are passes of the target that yield tokens;
no time is measured, so a small pair will do, and other programs on the machine do not matter.
`transformers` reads the same GGUF files, in float32. Replies that are not the text of plain
decoding are counted.

    pip install torch transformers accelerate gguf     # in an environment with localspec
    scripts/bench tokens_per_pass --target T.gguf --draft D.gguf
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import localspec
from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.bench.workloads import WORKLOADS

_DEMO = Path(localspec.__file__).parent / "demo"
_NEEDED = ("torch", "transformers", "accelerate", "gguf")


@dataclass(frozen=True)
class Continued:
    """One prompt, continued."""

    tokens: tuple[int, ...]
    passes: int
    """Passes of the target that yielded tokens; where one read the prompt too, with it."""


class Program(Protocol):
    """Continues token ids greedily."""

    name: str

    def __call__(self, ids: Sequence[int], most: int) -> Continued:
        """At most ``most`` tokens."""
        ...


class Ours:
    """localspec with a fixed draft length."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime, self.name = runtime, f"localspec {name}"

    def __call__(self, ids: Sequence[int], most: int) -> Continued:
        """See `Program`."""
        reply = self._runtime.answer(
            ReplyRequest(prompt_tokens=tuple(ids), sampling=_GREEDY, max_tokens=most)
        )
        return Continued(reply.tokens, reply.stats.rounds)


class LlamaCppPython:
    """`llama_cpp.Llama` with its own prompt lookup."""

    def __init__(self, path: Path, length: int, context: int) -> None:
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self.name = "llama-cpp-python prompt lookup"
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=length)
        self._llama: Any = Llama(
            str(path), n_ctx=context, draft_model=lookup, logits_all=True, verbose=False
        )

    def __call__(self, ids: Sequence[int], most: int) -> Continued:
        """See `Program`."""
        llama, found, passes = self._llama, [], 0
        evaluate = llama.eval

        def counting(tokens: Sequence[int]) -> None:
            nonlocal passes
            passes += 1
            evaluate(tokens)

        llama.reset()
        llama.eval = counting
        try:
            for token in llama.generate(list(ids), temp=0.0, top_k=1, repeat_penalty=1.0):
                found.append(int(token))
                if len(found) == most or token == llama.token_eos():
                    break
        finally:
            llama.eval = evaluate
        return Continued(tuple(found), passes)


class Transformers:
    """`generate` of transformers: assisted by a model, or prompt lookup."""

    def __init__(self, target: Any, assistant: Any | None, length: int) -> None:
        self._target, self._assistant, self._length = target, assistant, length
        self.name = f"transformers {'prompt lookup' if assistant is None else 'assisted'}"

    def __call__(self, ids: Sequence[int], most: int) -> Continued:
        """See `Program`."""
        import torch

        drafting: dict[str, Any] = {"prompt_lookup_num_tokens": self._length}
        if self._assistant is not None:
            settings = self._assistant.generation_config
            settings.num_assistant_tokens = self._length
            settings.num_assistant_tokens_schedule = "constant"
            settings.assistant_confidence_threshold = 0.0
            drafting = {"assistant_model": self._assistant}
        given = torch.tensor([list(ids)])
        with self._counted() as passes, torch.no_grad():
            whole = self._target.generate(
                given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=most,
                **drafting,
            )  # fmt: skip
        return Continued(tuple(whole[0, len(ids) :].tolist()), passes[0])

    @contextmanager
    def _counted(self) -> Iterator[list[int]]:
        passes = [0]

        def count(*_: object) -> None:
            passes[0] += 1

        hook = self._target.register_forward_hook(count)
        try:
            yield passes
        finally:
            hook.remove()


_GREEDY = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)


@contextmanager
def programs(asked: argparse.Namespace, length: int) -> Iterator[list[Program]]:
    """All of them, for drafts of a length."""
    options = Options(
        model=str(asked.target), draft=str(asked.draft), context=asked.ctx, offline=True
    )
    with (
        Runtime.open(_with(options, ("model",), length)) as model,
        Runtime.open(_with(options, ("suffix",), length)) as suffix,
        Runtime.open(_with(options, ("ngram",), length)) as ngram,
    ):
        found: list[Program] = [Ours(model, "draft model"), Ours(suffix, "suffix")]
        found += [Ours(ngram, "n-gram"), LlamaCppPython(asked.target, length, asked.ctx)]
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            print(f"without transformers: {', '.join(missing)} not installed")
        else:
            target, assistant = _read(asked.target), _read(asked.draft)
            found += [Transformers(target, assistant, length), Transformers(target, None, length)]
        yield found


def _with(options: Options, drafter: tuple[str, ...], length: int) -> Options:
    draft = options.draft if drafter == ("model",) else "none"
    return Options(
        model=options.model,
        draft=draft,
        context=options.context,
        drafter=drafter,
        draft_max=length,
        offline=True,
    )


def _read(path: Path) -> Any:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    ).eval()


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=_DEMO / "target.gguf")
    parser.add_argument("--draft", type=Path, default=_DEMO / "draft.gguf")
    parser.add_argument("--lengths", type=int, nargs="+", default=[4, 8], help="drafted tokens")
    parser.add_argument("-n", "--tokens", type=int, default=128, help="tokens of a reply at most")
    parser.add_argument("--ctx", type=int, default=768)
    asked = parser.parse_args()
    plain_options = Options(
        model=str(asked.target), draft="none", drafter=("off",), context=asked.ctx, offline=True
    )
    with Runtime.open(plain_options) as runtime:
        plain = Ours(runtime, "plain")
        prompts = [
            (kind.name, runtime.encode([Message("user", prompt)]))
            for kind in WORKLOADS
            for prompt in kind.prompts
        ]
        ends = runtime.ends
        expected = [_without(plain(ids, asked.tokens), ends).tokens for _, ids in prompts]
    for length in asked.lengths:
        print(f"\ntokens per pass, drafts of {length}, {len(prompts)} prompts, greedy")
        kinds = list(dict.fromkeys(name for name, _ in prompts))
        print(f"{'':32}{''.join(f'{kind[:9]:>10}' for kind in kinds)}{'mean':>8}   differ")
        with programs(asked, length) as found:
            for program in found:
                runs = [_without(program(ids, asked.tokens), ends) for _, ids in prompts]
                rates = {
                    kind: np.mean(
                        [
                            len(run.tokens) / max(1, run.passes)
                            for run, (name, _) in zip(runs, prompts, strict=True)
                            if name == kind
                        ]
                    )
                    for kind in kinds
                }
                differ = sum(run.tokens != text for run, text in zip(runs, expected, strict=True))
                cells = "".join(f"{rates[kind]:10.2f}" for kind in kinds)
                mean = np.mean(list(rates.values()))
                print(f"{program.name:32}{cells}{mean:8.2f}   {differ:6}", flush=True)


def _without(run: Continued, ends: frozenset[int]) -> Continued:
    """Without the token that ends the reply, which not every program reports."""
    kept = run.tokens[:-1] if run.tokens and run.tokens[-1] in ends else run.tokens
    return Continued(kept, run.passes)


if __name__ == "__main__":
    main()
