"""From options to a loaded pair: models, contexts, drafter, verifier, policy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec import config
from localspec.drafters import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.model import ModelDrafter
from localspec.drafters.ngram import NGram
from localspec.errors import (
    DraftIncompatibleError,
    LocalspecError,
    OutOfMemoryError,
    UsageError,
)
from localspec.events import Loading, ModelInfo, Speculation
from localspec.llama import library
from localspec.llama.calibrate import Watchdog, choose_threads, sweep
from localspec.llama.context import Context
from localspec.llama.devices import backend, physical_cores
from localspec.llama.model import Model
from localspec.llama.runners import LlamaDraftModel, LlamaTarget
from localspec.pairs.check import vocabulary_mismatch
from localspec.pairs.resolve import resolve
from localspec.policy import Fixed, Plain, Policy
from localspec.policy.auto import Auto
from localspec.verifiers import Verifier, verifier

DRAFTERS = ("ngram", "model", "off")
"""Names that ``--drafter`` takes."""
DEFAULT_DRAFTERS = ("ngram", "model")
_MAX_CONTEXT = 8192
"""Tokens of context unless asked for more: a KV cache costs memory from the start."""
_MAX_K = 63
_BATCH = 512
_CASCADE_MIN_MATCH = 4
"""Before a draft model an n-gram must be longer to be preferred."""

Progress = Callable[[Loading], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What is chosen when a pair is loaded."""

    model: str = "demo"
    draft: str | None = None
    """None is the catalogue's; "none" leaves it out."""
    context: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    threads: int | None = None
    kv_type: str | None = None
    verifier: str = "match"
    drafter: tuple[str, ...] | None = None
    """Names in order of preference; None is the default cascade."""
    draft_max: int | None = None
    """K; None lets localspec choose."""
    require_draft: bool = False
    """Fail rather than fall back to n-grams where the draft model cannot be used."""
    offline: bool = False

    def __post_init__(self) -> None:
        _at_least("context", self.context, 16)
        _at_least("threads", self.threads, 1)
        _at_least("gpu layers", self.gpu_layers, 0)
        _at_least("draft gpu layers", self.draft_gpu_layers, 0)
        _at_least("draft max", self.draft_max, 0)
        if self.draft_max is not None and self.draft_max > _MAX_K:
            raise UsageError(f"draft max must be at most {_MAX_K}, not {self.draft_max}")
        if self.threads is not None and self.threads > 1024:  # noqa: PLR2004 - far over any machine
            raise UsageError(f"threads must be at most 1024, not {self.threads}")
        verifier(self.verifier)
        for name in self.drafter or ():
            if name not in DRAFTERS:
                raise UsageError(f"no drafter called {name!r}; there are: {', '.join(DRAFTERS)}")
        if self.drafter and "off" in self.drafter and len(self.drafter) > 1:
            raise UsageError("drafter off cannot be combined with others")


def _at_least(name: str, value: int | None, low: int) -> None:
    if value is not None and value < low:
        raise UsageError(f"{name} must be at least {low}, not {value}")


@dataclass(frozen=True, slots=True)
class Pairing:
    """A loaded pair, ready for the loop."""

    info: ModelInfo
    target_model: Model
    target: LlamaTarget
    drafter: Drafter
    verifier: Verifier
    policy: Policy
    stop: threading.Event
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
    parts: list[Context | Model] = []
    try:
        return _load(options, on_event, cancelled, parts)
    except BaseException:
        for part in parts:
            part.close()
        raise


def _load(
    options: Options,
    on_event: Progress | None,
    cancelled: Callable[[], bool] | None,
    parts: list[Context | Model],
) -> Pairing:
    library.log_to(config.make(config.state_dir()) / "llama.log")
    files = resolve(options.model, options.draft)
    wanted = options.drafter or DEFAULT_DRAFTERS
    stop = threading.Event()
    notices: list[str] = []

    def model(path: Path, layers: int | None) -> Model:
        _require_memory(path)

        def progress(fraction: float) -> None:
            if on_event is not None:
                on_event(Loading(path.name, fraction))

        loaded = Model(path, gpu_layers=layers, on_progress=progress, cancelled=cancelled)
        parts.append(loaded)
        return loaded

    def context(of: Model, n_ctx: int, threads: int, kv_type: str) -> Context:
        _require_kv_memory(of, n_ctx)
        made = Context(
            of, n_ctx=n_ctx, n_batch=_BATCH, threads=threads, kv_type=kv_type, stop=stop
        )
        parts.insert(0, made)  # contexts are freed before the models they use
        return made

    target_model = model(files.target, options.gpu_layers)
    n_ctx = options.context or min(target_model.n_ctx_train, _MAX_CONTEXT)
    if n_ctx > target_model.n_ctx_train:
        notices.append(
            f"a context of {n_ctx} tokens is more than the {target_model.n_ctx_train} that "
            f"{files.target.name} was trained for; long chats may turn to nonsense"
        )
    if target_model.template is None:
        notices.append(
            f"{files.target.name} has no chat template: a plain User/Assistant one is used"
        )
    threads = options.threads or physical_cores()
    kv_type = options.kv_type or "f16"
    target_context = context(target_model, n_ctx, threads, kv_type)
    watchdog = None
    if options.threads is None and backend() == "cpu":
        threads = choose_threads(target_context)
        watchdog = Watchdog(target_context)

    drafters: list[Drafter] = []
    off: str | None = None
    draft_model: Model | None = None
    judge = verifier(options.verifier)
    if wanted == ("off",) or options.draft_max == 0:
        off = "switched off"
    elif not target_model.partial_removal:
        off = f"{files.target.name} keeps a recurrent state that cannot forget rejected tokens"
    else:
        if "model" in wanted and files.draft is not None:
            draft_model, refused = _draft_model(model, files.draft, target_model, options)
            if refused:
                notices.append(refused)
        for name in wanted:
            if name == "ngram":
                alone = draft_model is None
                drafters.append(NGram() if alone else NGram(min_match=_CASCADE_MIN_MATCH))
            elif draft_model is not None:
                draft_context = context(
                    draft_model, target_context.capacity, threads, _at_least_q8(kv_type)
                )
                if options.threads is None and backend() == "cpu":
                    choose_threads(draft_context)
                runner = LlamaDraftModel(draft_context, target_model.n_vocab)
                drafters.append(ModelDrafter(runner, judge.favours))
        if not drafters:
            off = notices[-1] if notices else "there is no draft model"
    if options.require_draft and "model" in wanted and draft_model is None:
        raise DraftIncompatibleError(off or "there is no draft model")

    policy: Policy
    if off is not None:
        policy = Plain(off)
    elif options.draft_max is not None:
        policy = Fixed(options.draft_max)
    else:
        policy = Auto(sweep(target_context))
    drafter = Off() if not drafters else drafters[0] if len(drafters) == 1 else Cascade(drafters)
    info = ModelInfo(
        target=str(files.target),
        draft=str(files.draft) if draft_model is not None else None,
        backend=backend(),
        context=target_context.capacity,
        name=files.name,
        target_bytes=files.target.stat().st_size,
        draft_bytes=files.draft.stat().st_size if files.draft and draft_model else 0,
        threads=target_context.threads,
        speculation=Speculation("off", off) if off else Speculation("on"),
        notices=tuple(notices),
    )
    return Pairing(
        info=info,
        target_model=target_model,
        target=LlamaTarget(target_context),
        drafter=drafter,
        verifier=judge,
        policy=policy,
        stop=stop,
        watchdog=watchdog,
        parts=tuple(parts),
    )


def _draft_model(
    load_model: Callable[[Path, int | None], Model],
    path: Path,
    target: Model,
    options: Options,
) -> tuple[Model | None, str | None]:
    """The draft model, or why it cannot be used; n-grams then draft alone."""
    try:
        draft = load_model(path, options.draft_gpu_layers)
    except LocalspecError as error:
        # A draft that the person named must at least be there and whole.
        if options.draft is not None or options.require_draft:
            raise
        return None, f"no draft model: {error}"
    mismatch = vocabulary_mismatch(target, draft)
    if mismatch is None:
        return draft, None
    message = f"draft {path.name} cannot draft for {target.path.name}: {mismatch}"
    if options.require_draft:
        raise DraftIncompatibleError(message)
    return None, f"{message}; drafting from n-grams instead"


def _at_least_q8(kv_type: str) -> str:
    """A draft's KV cache below q8_0 costs more acceptance than it saves memory."""
    return kv_type if kv_type in {"f32", "f16", "bf16", "q8_0"} else "q8_0"


def _require_memory(path: Path) -> None:
    if not path.is_file():
        return  # loading says it better
    size, total = path.stat().st_size, psutil.virtual_memory().total
    if size > total and backend() == "cpu":
        raise OutOfMemoryError(
            f"{path.name} has {size / 1e9:.1f} GB, and this machine {total / 1e9:.1f} GB of "
            "memory in all; choose a smaller model or a smaller quantization"
        )


def _require_kv_memory(model: Model, n_ctx: int) -> None:
    """Refuse a KV cache that cannot fit before the system kills us for asking."""
    arch, meta = model.architecture, model.metadata
    heads = int(meta.get(f"{arch}.attention.head_count", "1").strip("[]").split(",")[0])
    kv_heads = meta.get(f"{arch}.attention.head_count_kv", str(heads)).strip("[]").split(",")[0]
    width = int(meta.get(f"{arch}.embedding_length", "0"))
    key = int(meta.get(f"{arch}.attention.key_length", str(width // max(heads, 1))))
    needed = 2 * 2 * n_ctx * model.n_layer * int(kv_heads) * key
    available = psutil.virtual_memory().available
    if needed > available and backend() == "cpu":
        raise OutOfMemoryError(
            f"a context of {n_ctx} tokens needs about {needed / 1e9:.1f} GB for its KV cache, and "
            f"{available / 1e9:.1f} GB of memory are free; use a smaller --ctx"
        )
