"""Adapters by request: every reply is what it is alone and plain, whatever the others beside it and
before it were computed with.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import gguf_tools
import numpy as np
import pytest
from conftest import Files
from contexts import logits, opened
from gguf_tools import MATRICES
from replies import ENDLESS

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.core.adapter_list import Adapter, AdapterUse, Blend, read
from localspec.core.errors import ModelNotFoundError, UsageError
from localspec.core.interrupt import Interrupt
from localspec.llama.adapters import Adapters
from localspec.llama.model import Model
from localspec.policy.controller import Controller

TOKENS = np.random.default_rng(5).integers(5, 250, 24).tolist()


@dataclasses.dataclass(frozen=True)
class Adapted:
    one: Path
    other: Path

    def uses(self) -> list[tuple[AdapterUse, ...] | None]:
        """As loaded, none, one of them, another scale, both, and the other."""
        one, other = str(self.one), str(self.other)
        return [
            None,
            (),
            (AdapterUse(one, 0.6),),
            (AdapterUse(one, 0.2), AdapterUse(other, -0.4)),
            (AdapterUse(other, 0.5),),
        ]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    folder = tmp_path_factory.mktemp("adapters")
    one, other = folder / "one.gguf", folder / "other.gguf"
    gguf_tools.write_lora(one, MATRICES, seed=1)
    gguf_tools.write_lora(other, MATRICES, seed=2, rank=2)
    return Adapted(one, other)


def options(files: Files, adapted: Adapted, **more: object) -> Options:
    chosen = {"draft_max": 3, "parallel": 4, "context": 512, **more}
    listed = [f"{adapted.one}:0.3", f"{adapted.other}:0"]
    return Options(model=str(files.target), draft=str(files.draft), lora=read(listed), **chosen)  # type: ignore[arg-type]


def asked(
    uses: tuple[AdapterUse, ...] | None, temperature: float, *, draft: bool, tokens: int = 32
) -> ReplyRequest:
    return ReplyRequest(
        prompt="The rain in the hills falls on the town and on the river below it",
        sampling=Sampling(temperature=temperature, logit_bias=ENDLESS),
        seed=4,
        max_tokens=tokens,
        draft=draft,
        adapters=uses,
    )


def together(runtime: Runtime, requests: list[ReplyRequest]) -> list[tuple[tuple[int, ...], int]]:
    """The tokens of each reply, and how many of its prompt's were cached."""
    streams = [runtime.submit(request) for request in requests]
    found = []
    for stream in streams:
        *_, last = stream
        found.append((last.reply.tokens, last.reply.stats.cached_tokens))  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_drafted_beside_other_adapters_and_cached_is_plain_alone(
    files: Files, adapted: Adapted, *, strict: bool
) -> None:
    wanted = []
    settings = options(files, adapted, strict=strict)
    with Runtime.open(dataclasses.replace(settings, drafter=("off",))) as runtime:
        for temperature in (0.0, 0.9):
            for uses in adapted.uses():
                wanted.append(runtime.answer(asked(uses, temperature, draft=False)).tokens)
                runtime.forget()
    assert len(set(wanted[5:])) == 5  # each blend says something else
    every = [asked(u, t, draft=True) for t in (0.0, 0.9) for u in adapted.uses()]
    with Runtime.open(settings) as runtime:
        first = together(runtime, every)
        again = together(runtime, every[::-1])[::-1]
    assert [tokens for tokens, _ in first] == wanted
    assert [tokens for tokens, _ in again] == wanted
    assert any(cached for _, cached in again)


def test_what_was_read_with_other_adapters_is_not_reused(files: Files, adapted: Adapted) -> None:
    with Runtime.open(options(files, adapted, parallel=1)) as runtime:
        for uses in adapted.uses():
            assert runtime.answer(asked(uses, 0.0, draft=True)).stats.cached_tokens == 0
        again = runtime.answer(asked(adapted.uses()[-1], 0.0, draft=True))
        assert again.stats.cached_tokens > 0
        last = [AdapterUse(use.path, use.scale) for use in adapted.uses()[-1] or ()]
        zero = (*last, AdapterUse(str(adapted.one), 0.0))  # a scale of 0 is as none
        assert runtime.answer(asked(zero, 0.0, draft=True)).stats.cached_tokens > 0


def test_a_context_that_changes_adapters_computes_the_bits_of_one_that_began_with_them(
    files: Files, adapted: Adapted
) -> None:
    one, other = Adapter(adapted.one, 0.5), Adapter(adapted.other, 0.0)
    model = Model(files.target, gpu_layers=0, adapters=Adapters((one, other)))
    blends = [
        model.adapters.usual,
        model.adapters.blend([AdapterUse(str(adapted.other), 0.7)]),
        model.adapters.blend([]),
    ]
    starts = [(one,), (Adapter(adapted.other, 0.7),), ()]
    with opened(model, n_ctx=128) as context:
        for blend, chosen in [*zip(blends, starts, strict=True)] * 2:
            context.adapt(blend)
            context.truncate(0, 0)
            (rows,) = context.forward([(0, TOKENS, len(TOKENS))])
            fresh = logits(files.target, TOKENS, gpu_layers=0, adapters=Adapters(chosen))
            assert np.array_equal(rows, fresh)


def test_acceptance_is_measured_apart_for_each_blend(files: Files, adapted: Adapted) -> None:
    uses = adapted.uses()[2]
    with Runtime.open(options(files, adapted, draft_max=None)) as runtime:
        control, target = runtime.pair.control, runtime.pair.target
        own = control.policy_for(target.blend(uses))
        usual = control.policy_for(target.blend(None))
        assert isinstance(own, Controller)
        assert isinstance(usual, Controller)
        assert usual is control.policy is not own
        before = {key: est.judged.copy() for key, est in usual.knowledge.acceptance.items()}
        costs = own.costs.curve()
        runtime.answer(asked(uses, 0.0, draft=True, tokens=48))
        after = {key: est.judged for key, est in usual.knowledge.acceptance.items()}
        assert all(np.array_equal(after[key], before.get(key, after[key] * 0)) for key in after)
        assert own.knowledge.acceptance.keys()
        control.save()
        assert own.costs.curve() != costs
    with Runtime.open(options(files, adapted, draft_max=None)) as runtime:
        found = runtime.pair.control.policy_for(runtime.pair.target.blend(uses))
        assert isinstance(found, Controller)
        assert found.knowledge.acceptance.keys() == own.knowledge.acceptance.keys()


def test_adapters_are_loaded_exchanged_and_unloaded_while_others_run(
    files: Files, adapted: Adapted, tmp_path: Path
) -> None:
    path = tmp_path / "later.gguf"
    gguf_tools.write_lora(path, MATRICES, seed=7)
    uses = (AdapterUse(str(path), 0.5),)
    with Runtime.open(options(files, adapted)) as runtime:
        with pytest.raises(UsageError, match=r"later\.gguf is not loaded"):
            runtime.answer(asked(uses, 0.0, draft=True))
        running = runtime.submit(asked(None, 0.0, draft=True, tokens=300), Interrupt())
        runtime.load_adapter(path)
        first = runtime.answer(asked(uses, 0.0, draft=True))
        *_, last = running
        gguf_tools.write_lora(path, MATRICES, seed=8)
        runtime.load_adapter(path)
        second = runtime.answer(asked(uses, 0.0, draft=True))
        assert second.tokens != first.tokens
        assert second.stats.cached_tokens == 0  # read with the file before
        gguf_tools.write_lora(path, MATRICES, seed=7)
        runtime.load_adapter(path)
        assert runtime.answer(asked(uses, 0.0, draft=True)).tokens == first.tokens
        runtime.unload_adapter(path)
        runtime.unload_adapter(path)
        with pytest.raises(UsageError, match="is not loaded"):
            runtime.answer(asked(uses, 0.0, draft=True))
        alone = runtime.answer(asked(None, 0.0, draft=True, tokens=300))
        assert alone.tokens == last.reply.tokens  # type: ignore[union-attr]


def test_an_adapter_is_unloaded_once_the_replies_that_use_it_have_ended(
    files: Files, adapted: Adapted, tmp_path: Path
) -> None:
    path = tmp_path / "later.gguf"
    gguf_tools.write_lora(path, MATRICES, seed=7)
    with Runtime.open(options(files, adapted)) as runtime:
        runtime.load_adapter(path)
        running = runtime.submit(asked((AdapterUse(str(path)),), 0.0, draft=True, tokens=400))
        events: Iterator[object] = iter(running)
        next(events)
        unloading = threading.Thread(target=runtime.unload_adapter, args=(path,))
        unloading.start()
        *_, last = events
        unloading.join()
        assert last.reply.finish_reason == "length"  # type: ignore[attr-defined]


def test_what_cannot_be_loaded_later_is_refused_in_a_line(
    files: Files, adapted: Adapted, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.gguf"
    gguf_tools.write_lora(wrong, {"blk.0.attn_q.weight": (64, 32)})
    with Runtime.open(options(files, adapted)) as runtime:
        with pytest.raises(ModelNotFoundError, match="no model file"):
            runtime.load_adapter(tmp_path / "missing.gguf")
        with pytest.raises(UsageError, match="it is of another model"):
            runtime.load_adapter(wrong)
        with pytest.raises(UsageError, match="was loaded with the model and stays"):
            runtime.unload_adapter(adapted.one)
        twice = (AdapterUse(str(adapted.one)), AdapterUse(str(adapted.one), 0.5))
        with pytest.raises(UsageError, match="named twice"):
            runtime.answer(asked(twice, 0.0, draft=True))
    strict = options(files, adapted, strict=True)
    said = "strict mode tests adapters when it loads"
    with Runtime.open(strict) as runtime, pytest.raises(UsageError, match=said):
        runtime.load_adapter(wrong)
    for scale in (float("nan"), float("inf"), 101.0):
        with pytest.raises(UsageError, match="between -100 and 100"):
            AdapterUse("a.gguf", scale)


def test_a_model_without_adapters_never_sets_any(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime.open(
        Options(model=str(files.target), draft=str(files.draft), draft_max=3, parallel=4)
    ) as runtime:
        sets: list[Blend | None] = []
        monkeypatch.setattr(Adapters, "use", lambda _self, _context, blend: sets.append(blend))
        together(runtime, [asked(None, 0.9, draft=True)] * 4)
        assert sets == []
