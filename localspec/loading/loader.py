"""Loads a pair as its options say: models, contexts, drafter, verifier, policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.compiling import own_build
from localspec.core import drafter_registry
from localspec.core.adapter_file import AdapterFile, digest_of, stamp_of
from localspec.core.errors import LocalspecError, OutOfMemoryError, UsageError
from localspec.core.events import Loading, ModelInfo, Speculation
from localspec.core.files import native, paths
from localspec.core.interrupt import Cancelled, never
from localspec.core.options import Options
from localspec.decode.verifiers import Verifier, verifier
from localspec.drafters.base import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.prediction import PredictionDrafter
from localspec.generation.chat_template import has_switch
from localspec.llama import library
from localspec.llama.batch import StopFlag
from localspec.llama.context import Context
from localspec.llama.devices import backend, physical_cores
from localspec.llama.load_file import check_file
from localspec.llama.model import Model
from localspec.llama.pass_shapes import pads_alone
from localspec.llama.remote import RemoteDevices
from localspec.llama.target import LlamaTarget
from localspec.llama.threads import Watchdog
from localspec.loading import own_kernels, policy
from localspec.loading.drafting import NO_TEXTS, Drafters, Drafting, EarlierTexts
from localspec.loading.planning import Planning
from localspec.loading.policy import Control
from localspec.loading.resources import Parts, Progress, unheard
from localspec.loading.selection import Selection, read_headers, select
from localspec.loading.sight import ModelSight
from localspec.loading.soundness import required
from localspec.loading.target import CacheOnHostError, LoadedTarget, TargetLoading, connected
from localspec.models.catalog.links import is_offline
from localspec.models.catalog.resolve import Resolved, resolve
from localspec.models.compat.adapters import require_fitting, require_fitting_vector
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.planner import Fit, step_down
from localspec.models.memory.report import needs
from localspec.prefix_cache.memory import MB, default_limit


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A loaded pair, ready to answer."""

    info: ModelInfo
    target_model: Model
    target: LlamaTarget
    drafter: Drafter
    verifier: Verifier
    control: Control
    identity: str
    """A digest of all that a saved state of the target's KV cache depends on."""
    cache_bytes: int
    """Most memory for saved states of prompts that were read before."""
    draft_memory: int
    """Most bytes for earlier requests to draft from."""
    sight: ModelSight
    """How the target sees pictures, if it can."""
    stop: StopFlag
    """Aborts the running pass when it is set."""
    watchdog: Watchdog | None
    parts: Parts
    """All loaded models, contexts and heads."""
    remote: RemoteDevices | None = None
    """The workers that they are on."""

    def adapter_file(self, path: Path) -> AdapterFile:
        """Read the file of an adapter of the target.

        Raises:
            LocalspecError: none can be loaded later, or see `localspec.models.compat.adapters`.
        """
        if self.info.strict:
            raise UsageError(
                "strict mode tests adapters when it loads the model; name this one with --lora, "
                "at the scale 0 if single requests are to use it"
            )
        if self.remote is not None:
            raise UsageError("adapters are not sent to workers; leave out --rpc")
        check_file(path)
        stamp = stamp_of(path)  # before it is looked at: it is that file which is loaded, or none
        require_fitting(ModelFile(path), ModelFile(self.target_model.path))
        return AdapterFile(path, digest_of(path), stamp)

    def close(self) -> None:
        """Free everything; a reply that is being made ends before its next pass."""
        self.stop.set()
        self.parts.close()
        if self.remote is not None:
            self.remote.close()


def load(
    options: Options,
    on_event: Progress | None,
    cancelled: Cancelled | None,
    *,
    earlier: EarlierTexts = NO_TEXTS,
) -> LoadedPair:
    """Load the pair that the options name. Drafters that copy from text also read ``earlier``
    texts.

    Raises:
        LocalspecError: see `localspec.core.errors`; nothing stays loaded.
    """
    on_event, cancelled = on_event or unheard, cancelled or never

    def tell(what: str) -> None:
        on_event(Loading(what, None))

    options = dataclasses.replace(options, offline=options.offline or is_offline())
    library.log_to(paths.make(paths.state_dir()) / paths.LLAMA_LOG)
    files = resolve(options.model, options.draft)
    build = required(on_start=lambda: tell("checking llama.cpp on this processor, once"))
    own = own_kernels.engage(options.kernels, tell, offline=options.offline)
    check_file(files.target.path)  # its message is the clearest for what is no model
    for adapter in options.adapters:
        check_file(adapter.path)
        require_fitting(ModelFile(adapter.path), files.target)
    for vector in options.control_vectors:
        check_file(vector.path)
        require_fitting_vector(ModelFile(vector.path), files.target)
    selection = select(options, read_headers(files.target, files.draft))
    remote = connected(options, tell, cancelled)
    try:
        return _Loader(
            files=files,
            selection=selection,
            earlier=earlier,
            on_event=on_event,
            cancelled=cancelled,
            extra_buffers=build.extra_buffers,
            own=own,
            remote=remote,
        ).load()
    except BaseException:
        if remote is not None:
            remote.close()
        raise


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads one pair."""

    files: Resolved
    selection: Selection
    earlier: EarlierTexts
    on_event: Progress
    cancelled: Cancelled
    own: own_kernels.Choice
    extra_buffers: bool
    """Whether llama.cpp's extra buffers are valid on this machine."""
    remote: RemoteDevices | None = None
    """Devices of workers, for the target."""
    stop: StopFlag = field(default_factory=StopFlag)

    def load(self) -> LoadedPair:
        """Load as planned; if memory is refused all the same, once more with a smaller plan.

        Raises:
            OutOfMemoryError: nothing fits; with the numbers.
            LocalspecError: as `load`.
        """
        options = self.selection.options
        notices = (*self.files.notices, *self.earlier.notices, *_adapted(options))
        notices = (*filter(None, (own_build.passed_over(), _open_cache())), *notices)
        if options.strict:
            return self._load_planned(options.kv_type or "f16", notices)
        try:
            return self._load_planned(options.kv_type, notices)
        except CacheOnHostError as error:
            return self._load_planned("f16", (*notices, str(error)))

    def _load_planned(self, kv_type: str | None, notices: tuple[str, ...]) -> LoadedPair:
        """Plan and load with a KV cache of that type, None for any; see `load`."""
        fit = Planning(self.files, self.selection, self.remote).plan(kv_type)
        for _ in range(self.selection.options.smaller):
            fit = step_down(fit) or fit
        if self.selection.options.smaller:
            notices = (*notices, f"loaded with less memory than before: {needs(fit)}")
        try:
            return self._load_as(fit, notices)
        except OutOfMemoryError as error:
            smaller = step_down(fit)
            if smaller is None:
                raise OutOfMemoryError(f"{error} ({needs(fit)})") from None
            what = str(error).split(";")[0]
        refused = f"memory was refused ({what}); loaded with less: {needs(smaller)}"
        try:
            return self._load_as(smaller, (*notices, refused))
        except OutOfMemoryError as error:
            raise OutOfMemoryError(f"{error} ({needs(smaller)})") from None

    def _load_as(self, fit: Fit, notices: tuple[str, ...]) -> LoadedPair:
        """Load by this plan, after earlier ``notices``; if that fails, nothing stays loaded."""
        parts = Parts(
            fit,
            self.selection.options.threads,
            self.stop,
            self.on_event,
            self.cancelled,
            own=self.own,
            extra_buffers=self.extra_buffers,
            remote=self.remote,
            adapters=self.selection.options.adapters,
            vectors=self.selection.options.control_vectors,
        )
        try:
            return self._assemble(parts, (*notices, *fit.notes))
        except BaseException:
            parts.close()
            raise

    def _assemble(self, parts: Parts, notices: tuple[str, ...]) -> LoadedPair:
        """The target, then its drafters, then the policy that decides about them."""
        options = self.selection.options
        target = TargetLoading(self.files.target, self.selection, parts, self.remote).load()
        context = target.context
        model = context.model
        model.vectors.require_effect(context, f"{model.path.name} ({model.architecture})")
        judge = verifier(options.verifier)
        drafting = Drafters(
            selection=self.selection,
            target_file=self.files.target,
            draft_file=self.files.draft,
            target=context,
            parts=parts,
            favoured=judge.favours,
            earlier=self.earlier.texts,
        ).open()
        drafters = drafting.drafters
        off = None if drafters else self._why_off()
        control = policy.off(off) if off is not None else self._control(context, drafting)
        watched = options.threads is None and context.model.on_host
        owner = LlamaTarget(context, drafting.stored, control.times)
        sight = ModelSight(self.files.target, owner, parts, options)
        if options.sees:
            sight.encoder(lambda what: self.on_event(Loading(what, None)), self.cancelled)
        return LoadedPair(
            info=dataclasses.replace(
                self._info(target, drafting, off, (*notices, *target.notices, *drafting.notices)),
                sees=sight.senses.sees,
                hears=sight.senses.hears,
            ),
            target_model=context.model,
            target=owner,
            sight=sight,
            drafter=Cascade(_with_prediction(drafters)) if drafters else Off(),
            verifier=judge,
            control=control,
            identity=policy.state_identity(context),
            cache_bytes=self._cache_bytes(),
            draft_memory=self.selection.options.draft_memory * MB,
            stop=self.stop,
            watchdog=Watchdog(context, physical_cores()) if watched else None,
            parts=parts,
            remote=self.remote,
        )

    def _cache_bytes(self) -> int:
        wanted = self.selection.options.cache_memory
        return default_limit() if wanted is None else wanted * MB

    def _info(
        self, target: LoadedTarget, drafting: Drafting, off: str | None, notices: tuple[str, ...]
    ) -> ModelInfo:
        """Facts for callers; ``off`` is the reason if nothing drafts."""
        context, file, draft = target.context, self.files.target, drafting.file
        special = context.model.special_ids
        return ModelInfo(
            target=str(file.path),
            draft=str(draft.path) if draft else None,
            backend=backend() if self.remote is None else f"rpc ({self.remote})",
            context=context.capacity,
            name=self.files.name,
            target_bytes=file.n_bytes,
            draft_bytes=draft.n_bytes if draft else 0,
            threads=context.threads,
            speculation=Speculation("off", off) if off else Speculation("on"),
            parallel=context.sequences,
            notices=notices,
            drafters=tuple(drafter.name for drafter in drafting.drafters),
            strict=target.strict,
            kernels=target.kernels.describe(context.model),
            bos=context.model.marker(special["bos"]) if context.model.adds_bos else "",
            eos=context.model.marker(special["eos"]),
            switches_thinking=has_switch(context.model.template),
        )

    def _why_off(self) -> str:
        """Why nothing drafts."""
        if self.selection.off:
            return "switched off"
        if any(drafter_registry.get(name).needs_branching for name in self.selection.names):
            if self.selection.options.strict:
                return "strict mode has no draft trees"
            if self.selection.options.parallel != 1:
                return "there are no draft trees with several requests at a time"
            return f"{self.files.target.name} keeps a cache that cannot branch"
        return "there is no draft model"

    def _control(self, context: Context, drafting: Drafting) -> Control:
        """The policy: a fixed length where one was asked for, else what pays."""
        names = [drafter.name for drafter in _with_prediction(drafting.drafters)]
        branching = self.selection.branching(names, context.branches)
        length = self.selection.options.draft_max
        if length is not None:
            return policy.fixed_length(length, context, branching)
        return policy.automatic(
            context,
            drafting.timed,
            sources=names,
            branching=branching,
            pads=pads_alone(context, hidden=drafting.stored is not None),
        )


def _open_cache() -> str:
    """That others could exchange what is kept in the cache, as a sentence; "" if they could not."""
    try:
        native.require_closed(paths.cache_dir(), missing=True)
    except LocalspecError as error:
        return f"kernels and states kept in {paths.cache_dir()} are not used: {error}"
    return ""


def _adapted(options: Options) -> tuple[str, ...]:
    """What users are told of adapters and control vectors."""
    told = []
    for what, chosen in (
        ("adapter", options.adapters),
        ("control vector", options.control_vectors),
    ):
        used = ", ".join(f"{one.path.name} at {one.scale:g}" for one in chosen if one.scale)
        if used:
            told.append(f"{what} {used}; drafts are made by models without it")
    return tuple(told)


def _with_prediction(drafters: Sequence[Drafter]) -> Sequence[Drafter]:
    """The drafters of a pair, and the one for requests that bring a prediction."""
    if any(drafter.name == drafter_registry.PREDICTION for drafter in drafters):
        return drafters
    return (PredictionDrafter(), *drafters)
