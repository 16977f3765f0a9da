"""The options that a pair is loaded with."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core import settings_schema as schema
from localspec.core.adapter_list import Adapter, adapters
from localspec.core.endpoint import endpoints
from localspec.core.errors import UsageError
from localspec.core.setting_spec import Scope, names_of

_SPECS = schema.of(Scope.LOAD)
NO_DRAFT = NO_PROJECTOR = "none"
"""What leaves out a draft or a projector that would be found otherwise."""
STRICT_KV_TYPES = ("f16", "bf16", "f32")
"""Types of KV cache that strict mode takes."""


@dataclass(frozen=True, slots=True)
class Options:
    """Load-time choices; None leaves one to localspec.

    Ranges, defaults and meanings are those of the rows of `localspec.core.settings_schema`.
    """

    model: str = schema.MODEL.default
    draft: str | None = schema.DRAFT.default
    """None is the one that the catalogue pairs with the model; "none" leaves it out."""
    context: int | None = schema.CTX.default
    gpu_layers: int | None = schema.GPU_LAYERS.default
    draft_gpu_layers: int | None = schema.DRAFT_GPU_LAYERS.default
    cpu_experts: int | None = schema.CPU_EXPERTS.default
    mmproj: str | None = schema.MMPROJ.default
    """File of the projector, with which the target sees; None: the one beside it, "none": none."""
    lora: str = schema.LORA.default
    """Adapters of the target, see `localspec.core.adapter_list`."""
    control_vector: str = schema.CONTROL_VECTOR.default
    """Control vectors of the target, in such a list."""
    rpc: str | None = schema.RPC.default
    """Addresses of workers, see `localspec.core.endpoint`."""
    rpc_timeout: float | None = schema.RPC_TIMEOUT.default
    threads: int | None = schema.THREADS.default
    kernels: str | None = schema.KERNELS.default
    """"own" or "llama"; None is ours where they are proved, see `localspec.loading.own_kernels`."""
    kv_type: str | None = schema.KV_TYPE.default
    verifier: str = schema.VERIFIER.default
    drafter: tuple[str, ...] | None = None
    """Names in order of preference; None is the default cascade. The text that ``--drafter`` takes
    is accepted too, and kept as its names."""
    draft_max: int | None = schema.DRAFT_MAX.default
    """K of every round; None lets the policy choose it, round by round."""
    require_draft: bool = schema.REQUIRE_DRAFT.default
    """Fail where the draft model cannot be used, rather than draft from the text alone."""
    parallel: int = schema.JOBS.default
    """Requests at a time. More than one have a sequence each, which draft trees exclude."""
    strict: bool = schema.STRICT.default
    """Compute the same bits however a text is cut into passes, see `localspec.loading.strict`."""
    cache_memory: int | None = schema.CACHE_MEMORY.default
    """Megabytes of memory for saved states of prompts that were read before."""
    draft_memory: int = schema.DRAFT_MEMORY.default
    """Megabytes of memory for earlier requests to draft from, see `ReplyRequest.draft_memory`."""
    remember: bool = schema.REMEMBER.default
    """Draft from the saved chats too, not only from the running one."""
    offline: bool = schema.OFFLINE.default
    save_states: bool = False
    """Keep states of long prompts, which contain their text, in the cache folder, see
    `Runtime.keep_states`. The engine process alone does it."""
    sees: bool = False
    """Load the projector with the model, not with the first picture."""
    remeasure: bool = False
    """Use no earlier measurements: compare kernels again, repeat the self-test of strict mode."""
    smaller: int = 0
    """Steps by which the plan of memory is made smaller, after a device ran out of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafter", _names(self.drafter))
        for spec in _SPECS:
            spec.require(getattr(self, spec.python_name))
        if self.drafter == ():
            raise UsageError("drafter is empty; name drafters, or 'off' for plain decoding")
        if adapters(self.lora) and endpoints(self.rpc):
            raise UsageError("adapters are not sent to workers; leave out lora or rpc")
        if self.control_vectors and endpoints(self.rpc):
            raise UsageError("control vectors are not sent to workers; leave out one of the two")
        if endpoints(self.rpc) and self.gpu_layers == 0:
            raise UsageError(
                "rpc puts layers of the target on workers, and gpu_layers 0 leaves none for them"
            )
        if self.strict and self.verifier != "match":
            raise UsageError(
                "strict mode promises the same text with any draft, which only --verifier match "
                "keeps: what rejection sampling emits depends on the drafts"
            )
        if self.strict and self.kv_type not in {None, *STRICT_KV_TYPES}:
            raise UsageError(
                f"strict mode computes without flash attention, which a {self.kv_type} KV cache "
                f"needs; use --kv-type {' or '.join(STRICT_KV_TYPES)}"
            )

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters of the target."""
        return adapters(self.lora)

    @property
    def control_vectors(self) -> tuple[Adapter, ...]:
        """The control vectors of the target."""
        return adapters(self.control_vector, "control_vector")


def _names(drafter: object) -> object:
    """The names of a text or a list; anything else as it is, to be checked."""
    if isinstance(drafter, str):
        names = schema.DRAFTER.parse(drafter)
        return names_of(names) if isinstance(names, str) else None
    return tuple(drafter) if isinstance(drafter, list) else drafter
