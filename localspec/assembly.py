"""From options to a loaded pair: models, contexts, drafter, verifier, policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localspec import config
from localspec.drafters import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.model import ModelDrafter
from localspec.drafters.ngram import NGram
from localspec.errors import DraftIncompatibleError, Interrupted, LocalspecError
from localspec.events import Loading, ModelInfo, Speculation
from localspec.llama import library
from localspec.llama.calibrate import Watchdog, choose_threads, pass_seconds, sweep
from localspec.llama.context import Context
from localspec.llama.devices import backend, physical_cores
from localspec.llama.model import Model
from localspec.llama.runners import LlamaDraftModel, LlamaTarget
from localspec.llama.stop import StopFlag
from localspec.options import AUTO, Options
from localspec.pairs.check import vocabulary_mismatch
from localspec.pairs.fit import require_kv_memory, require_memory
from localspec.pairs.resolve import Resolved, resolve
from localspec.policy import Fixed, Plain, Policy
from localspec.policy.auto import Auto
from localspec.verifiers import Verifier, verifier

_DEFAULT_DRAFTERS = ("ngram", "model")
_MAX_CONTEXT = 8192
"""Tokens of context unless asked for more: a KV cache costs memory from the start."""
_BATCH = 512
_CASCADE_MIN_MATCH = 4
"""Where a draft model waits, an n-gram must be longer to be preferred."""

Progress = Callable[[Loading], None]


@dataclass(frozen=True, slots=True)
class Pairing:
    """A loaded pair, ready for the loop."""

    info: ModelInfo
    target_model: Model
    target: LlamaTarget
    drafter: Drafter
    verifier: Verifier
    policy: Policy
    stop: StopFlag
    """Set, it aborts the running pass."""
    watchdog: Watchdog | None
    parts: tuple[Context | Model, ...]
    """To be closed, in this order."""

    def close(self) -> None:
        """Free everything."""
        for part in self.parts:
            part.close()


def load(
    options: Options, on_event: Progress | None, cancelled: Callable[[], bool] | None
) -> Pairing:
    """Load what the options name.

    Raises:
        LocalspecError: see `localspec.errors`; nothing stays loaded.
    """
    library.log_to(config.make(config.state_dir()) / "llama.log")
    assembly = _Assembly(options, resolve(options.model, options.draft), on_event, cancelled)
    try:
        return assembly.pairing()
    except BaseException:
        for part in assembly.parts:
            part.close()
        raise


@dataclass(slots=True)
class _Assembly:
    """A pair while it is being put together."""

    options: Options
    files: Resolved
    on_event: Progress | None
    cancelled: Callable[[], bool] | None
    parts: list[Context | Model] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    stop: StopFlag = field(default_factory=StopFlag)
    draft_seconds: float | None = None
    """For one token of the draft model."""

    def pairing(self) -> Pairing:
        options = self.options
        model = self.model(self.files.target, options.gpu_layers)
        context = self.context(model, self.context_tokens(model), options.kv_type or "f16")
        judge = verifier(options.verifier)
        draft = self.draft_model(model)
        drafters = self.drafters(model, draft, context, judge)
        off = self.why_off(model, drafters)
        on_cpu = options.threads is None and backend() == "cpu"
        target, drafts = self.files.target, self.files.draft
        return Pairing(
            info=ModelInfo(
                target=str(target),
                draft=str(drafts) if draft is not None else None,
                backend=backend(),
                context=context.capacity,
                name=self.files.name,
                target_bytes=target.stat().st_size,
                draft_bytes=drafts.stat().st_size if drafts and draft else 0,
                threads=context.threads,
                speculation=Speculation("off", off) if off else Speculation("on"),
                notices=tuple(self.notices),
            ),
            target_model=model,
            target=LlamaTarget(context),
            drafter=_combined(drafters),
            verifier=judge,
            policy=self.policy(context, off),
            stop=self.stop,
            watchdog=Watchdog(context) if on_cpu else None,
            parts=tuple(self.parts),
        )

    def model(self, path: Path, layers: int | None) -> Model:
        require_memory(path)

        def progress(fraction: float) -> None:
            if self.on_event is not None:
                self.on_event(Loading(path.name, fraction))

        loaded = Model(path, gpu_layers=layers, on_progress=progress, cancelled=self.cancelled)
        self.parts.append(loaded)
        return loaded

    def context_tokens(self, model: Model) -> int:
        trained, name = model.n_ctx_train, self.files.target.name
        wanted = self.options.context or min(trained, _MAX_CONTEXT)
        if wanted > trained:
            self.notices.append(
                f"a context of {wanted} tokens is more than the {trained} that {name} was trained "
                "for; long chats may turn to nonsense"
            )
        if model.template is None:
            self.notices.append(f"{name} has no chat template: a plain User/Assistant one is used")
        return wanted

    def context(self, model: Model, n_ctx: int, kv_type: str) -> Context:
        require_kv_memory(model, n_ctx)
        threads = self.options.threads or physical_cores()
        made = Context(
            model, n_ctx=n_ctx, n_batch=_BATCH, threads=threads, kv_type=kv_type, stop=self.stop
        )
        self.parts.insert(0, made)  # contexts are freed before the models they use
        if self.options.threads is None and backend() == "cpu":
            choose_threads(made)
        return made

    @property
    def wanted(self) -> tuple[str, ...]:
        if self.options.draft_max == 0:
            return ("off",)
        return self.options.drafter or _DEFAULT_DRAFTERS

    def draft_model(self, target: Model) -> Model | None:
        """The draft model, or None with a notice; n-grams then draft alone.

        Raises:
            DraftIncompatibleError: it cannot be used, and the options insist on it.
            LocalspecError: a draft that the person named is not there or damaged.
        """
        options, path = self.options, self.files.draft
        if "model" not in self.wanted or not target.partial_removal:
            refusal = None if not options.require_draft else "drafting is off"
        elif path is None:
            refusal = "there is no draft model"
        else:
            try:
                draft = self.model(path, options.draft_gpu_layers)
            except Interrupted:
                raise
            except LocalspecError as error:
                if options.draft is not None or options.require_draft:
                    raise
                refusal = str(error)
            else:
                mismatch = vocabulary_mismatch(target, draft)
                if mismatch is None:
                    return draft
                refusal = f"draft {path.name} cannot draft for {target.path.name}: {mismatch}"
            self.notices.append(f"{refusal}; drafting from n-grams instead")
        if options.require_draft:
            raise DraftIncompatibleError(refusal or "there is no draft model")
        return None

    def drafters(
        self, target: Model, draft: Model | None, context: Context, judge: Verifier
    ) -> list[Drafter]:
        """Those asked for that can be had, in order."""
        if not target.partial_removal:
            return []
        found: list[Drafter] = []
        for name in self.wanted:
            if name == "ngram" or (name == "model" and draft is None and self.falls_back):
                found.append(NGram() if draft is None else NGram(min_match=_CASCADE_MIN_MATCH))
            elif name == "model" and draft is not None:
                kv_type = _at_least_q8(self.options.kv_type or "f16")
                drafting = self.context(draft, context.capacity, kv_type)
                self.draft_seconds = pass_seconds(drafting, 1)
                runner = LlamaDraftModel(drafting, target.n_vocab)
                found.append(ModelDrafter(runner, judge.favours))
        return found

    @property
    def falls_back(self) -> bool:
        """Whether n-grams stand in for a draft model: where one was expected, and not asked too."""
        return self.files.draft is not None and "ngram" not in self.wanted

    def why_off(self, target: Model, drafters: list[Drafter]) -> str | None:
        if drafters:
            return None
        if not target.partial_removal:
            name = self.files.target.name
            return f"{name} keeps a recurrent state that cannot forget rejected tokens"
        return "switched off" if "off" in self.wanted else "there is no draft model"

    def policy(self, context: Context, off: str | None) -> Policy:
        if off is not None:
            return Plain(off)
        k = self.options.draft_max
        if k is None:
            k = self.files.always_draft
        return Auto(sweep(context), self.draft_seconds) if k is None or k == AUTO else Fixed(k)


def _combined(drafters: list[Drafter]) -> Drafter:
    if not drafters:
        return Off()
    return drafters[0] if len(drafters) == 1 else Cascade(drafters)


def _at_least_q8(kv_type: str) -> str:
    """A draft's KV cache below q8_0 costs more acceptance than it saves memory."""
    return kv_type if kv_type in {"f32", "f16", "bf16", "q8_0"} else "q8_0"
