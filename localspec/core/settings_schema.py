"""The settings: one row for each, with name, kind, range, default and help text.

Flags, ``LOCALSPEC_*`` variables, config.toml, presets and the settings panel are made from these
rows, and `Sampling`, `Options` and `ReplyRequest` take their ranges and defaults from them. So a
value is read and refused in the same way wherever it comes from.

Those of the scope SAMPLING are in `localspec.core.sampler_settings`. Without numpy: an interface
starts sooner that way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from localspec.core import adapter_list, drafter_registry, sampler_settings
from localspec.core.setting_spec import Kind, Scope, SettingSpec

VERIFIERS = ("match", "rejection")
"""Names that ``--verifier`` takes: those of `localspec.decode.verifiers`, which needs numpy."""
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""Names that ``--kv-type`` takes: the ggml types that a KV cache can have."""
MAX_K: Final = 62
"""With the pending token a pass has 63 tokens; from 64 on llama.cpp computes attention with another
kernel, whose logits differ."""
_LARGEST: Final = 1 << 30


def _switch(name: str, about: str, **more: Any) -> SettingSpec[bool]:
    """A switch of loading that is off by default; ``more`` are further fields."""
    return SettingSpec(name, Kind.SWITCH, Scope.LOAD, default=False, help=about, **more)


def _layers(name: str, about: str) -> SettingSpec[int | None]:
    """A number of layers, or as many as suit this machine."""
    return SettingSpec(name, Kind.WHOLE, Scope.LOAD, None, about, 0, _LARGEST, auto=True)


def _files(name: str, what: str, reads: Callable[[str | Sequence[str]], str]) -> SettingSpec[str]:
    """Files that the target is computed with, each at a scale; by default none."""
    return SettingSpec(
        name,
        Kind.LIST,
        Scope.LOAD,
        default="[]",
        help=f"{what} in a .gguf file, at a scale (1); may be given several times",
        metavar="FILE[:SCALE]",
        reads=reads,
        repeated=True,
    )


def _word(name: str, about: str, *choices: str) -> SettingSpec[str]:
    """A word for the interface, by default the first of its ``choices``."""
    return SettingSpec(
        name, Kind.CHOICE, Scope.INTERFACE, choices[0], about, choices=choices, in_presets=False
    )


def _text(
    name: str, about: str, metavar: str, *, in_presets: bool = False
) -> SettingSpec[str | None]:
    """A text for the interface, by default none."""
    return SettingSpec(
        name, Kind.TEXT, Scope.INTERFACE, None, about, metavar=metavar, in_presets=in_presets
    )


MODEL = SettingSpec(
    name="model",
    kind=Kind.TEXT,
    scope=Scope.LOAD,
    default="demo",
    help="pair of `localspec models`, path to a .gguf file, or user/repo[:QUANT]",
    metavar="MODEL",
    flags=("-m",),
)
DRAFT: SettingSpec[str | None] = SettingSpec(
    name="draft",
    kind=Kind.TEXT,
    scope=Scope.LOAD,
    default=None,
    help="draft model; none = no draft model, auto = the one that belongs to MODEL",
    auto=True,
    metavar="MODEL",
    flags=("-d",),
)
MMPROJ: SettingSpec[str | None] = SettingSpec(
    name="mmproj",
    kind=Kind.TEXT,
    scope=Scope.LOAD,
    default=None,
    help="projector with which MODEL sees; none = no pictures, auto = the one beside MODEL",
    auto=True,
    metavar="FILE",
)
LORA = _files("lora", "LoRA adapter", adapter_list.read)
CONTROL_VECTOR = _files("control_vector", "control vector", adapter_list.read_vectors)
REQUIRE_DRAFT = _switch("require_draft", "fail if the draft model cannot be used", in_presets=False)
VERIFIER = SettingSpec(
    name="verifier",
    kind=Kind.CHOICE,
    scope=Scope.LOAD,
    default="match",
    help="verification; match = same text, rejection = same distribution",
    choices=VERIFIERS,
    metavar="NAME",
    in_panel=True,
)
DRAFTER: SettingSpec[str | None] = SettingSpec(
    name="drafter",
    kind=Kind.NAMES,
    scope=Scope.LOAD,
    default=None,
    help="drafters by preference, with commas; off = plain decoding",
    choices=drafter_registry.NAMES,
    alone=drafter_registry.OFF,
    auto=True,
    metavar="NAMES",
    in_panel=True,
)
DRAFT_MAX: SettingSpec[int | None] = SettingSpec(
    name="draft_max",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=None,
    help="draft length K; auto = chosen by measurement",
    low=0,
    high=MAX_K,
    auto=True,
    in_panel=True,
)
CTX: SettingSpec[int | None] = SettingSpec(
    name="ctx",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=None,
    help="context size in tokens; auto = up to 8192, as memory allows",
    low=16,
    high=1 << 21,
    auto=True,
    field="context",
    in_panel=True,
)
GPU_LAYERS = _layers("gpu_layers", "layers of the target on the GPU; auto = as many as fit")
DRAFT_GPU_LAYERS = _layers(
    "draft_gpu_layers", "layers of the draft model on the GPU; auto = as many as fit"
)
CPU_EXPERTS = _layers(
    "cpu_experts", "layers on the GPU whose experts stay on the CPU; auto = as few as fit"
)
RPC: SettingSpec[str | None] = SettingSpec(
    name="rpc",
    kind=Kind.TEXT,
    scope=Scope.LOAD,
    default=None,
    help="workers that compute the target, HOST:PORT separated by commas; auto = none",
    auto=True,
    metavar="HOST:PORT",
)
RPC_TIMEOUT: SettingSpec[float | None] = SettingSpec(
    name="rpc_timeout",
    kind=Kind.NUMBER,
    scope=Scope.LOAD,
    default=None,
    help="seconds that a worker may take for an answer; auto = by measured passes",
    low=0.5,
    high=1 << 20,
    auto=True,
)
THREADS: SettingSpec[int | None] = SettingSpec(
    name="threads",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=None,
    help="CPU threads; auto = measured",
    low=1,
    high=1024,
    auto=True,
    in_panel=True,
)
KERNELS: SettingSpec[str | None] = SettingSpec(
    name="kernels",
    kind=Kind.CHOICE,
    scope=Scope.LOAD,
    default=None,
    help="kernels of the processor; own = ours, llama = llama.cpp's, auto = ours where proved",
    choices=("own", "llama"),
    auto=True,
    metavar="NAME",
)
KV_TYPE: SettingSpec[str | None] = SettingSpec(
    name="kv_type",
    kind=Kind.CHOICE,
    scope=Scope.LOAD,
    default=None,
    help="type of the KV cache; auto = f16, q8_0 if memory is short",
    choices=KV_TYPES,
    auto=True,
    metavar="TYPE",
)
SPARE_JOBS = 0
"""Value of JOBS: several replies at a time, if nothing else gets smaller for them."""
JOBS = SettingSpec(
    name="jobs",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=1,
    help="replies at a time, each with the memory of a whole context; 0 = what fits easily",
    low=0,
    high=32,
    field="parallel",
    in_presets=False,
)
STRICT = _switch(
    "strict",
    "bit-identical replies in any batch; refused where a self-test fails",
    in_panel=True,
)
CACHE_MEMORY: SettingSpec[int | None] = SettingSpec(
    name="cache_memory",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=None,
    help="memory for prompts read before, in MB; 0 = none; auto = up to a quarter of what is free",
    low=0,
    high=1 << 24,
    auto=True,
    in_presets=False,
)
DRAFT_MEMORY = SettingSpec(
    name="draft_memory",
    kind=Kind.WHOLE,
    scope=Scope.LOAD,
    default=24,
    help="memory for earlier requests to draft from in chat and serve, in MB; 0 = none",
    low=0,
    high=4096,
    in_presets=False,
)
REMEMBER = _switch("remember", "draft from earlier saved chats too", in_presets=False)
OFFLINE = _switch("offline", "never use the network", in_presets=False)
SEED: SettingSpec[int | None] = SettingSpec(
    name="seed",
    kind=Kind.WHOLE,
    scope=Scope.REQUEST,
    default=None,
    help="same seed, same text; auto = a new one for each reply",
    low=-(1 << 63),
    high=(1 << 64) - 1,
    auto=True,
    in_panel=True,
)
MAX_TOKENS: SettingSpec[int | None] = SettingSpec(
    name="max_tokens",
    kind=Kind.WHOLE,
    scope=Scope.REQUEST,
    default=None,
    help="maximum tokens per reply; auto = as many as the context holds",
    low=1,
    high=(1 << 63) - 1,
    auto=True,
    flags=("-n",),
    in_panel=True,
)
SYSTEM: SettingSpec[str | None] = SettingSpec(
    name="system",
    kind=Kind.TEXT,
    scope=Scope.REQUEST,
    default=None,
    help="system message",
    metavar="TEXT",
    flags=("-s",),
    in_config=False,
)
THEME = _text("theme", "colour theme of the chat", "NAME")
FIGURES = _word("figures", "figures in the bottom line of the chat", "few", "all")
NOTIFY = _word(
    "notify",
    "bell and notification when a long reply ends unseen; bell = no notification",
    *("auto", "bell", "off"),
)
TITLES = _word(
    "titles", "idle model names chats; auto = a model of 1 GB or more here", "auto", "on", "off"
)
ALLOW_TOOLS = _text(
    "allow_tools",
    "tools that run without being asked for, separated by commas: server/tool, server/*",
    "NAMES",
)
TOOLS = _text(
    "tools",
    "tools of servers that the chat offers: all, none, or server/tool, server/*",
    "NAMES",
    in_presets=True,
)
API_KEY_COMMAND = _text(
    "api_key_command",
    "command that prints the API key of a remote server, such as one of a key ring",
    "COMMAND",
)

SETTINGS: tuple[SettingSpec[Any], ...] = (
    *(MODEL, DRAFT, MMPROJ, LORA, CONTROL_VECTOR, REQUIRE_DRAFT, VERIFIER, DRAFTER, DRAFT_MAX),
    *(CTX, GPU_LAYERS, DRAFT_GPU_LAYERS, CPU_EXPERTS, RPC, RPC_TIMEOUT, THREADS, KERNELS, KV_TYPE),
    *(JOBS, STRICT, CACHE_MEMORY, DRAFT_MEMORY, REMEMBER, OFFLINE),
    *(*sampler_settings.USUAL, *sampler_settings.FURTHER),
    *(SEED, MAX_TOKENS, SYSTEM, THEME, FIGURES, NOTIFY, TITLES),
    *(TOOLS, ALLOW_TOOLS, API_KEY_COMMAND),
)
"""In the order of the help text."""
BY_NAME = {spec.name: spec for spec in SETTINGS}


def of(scope: Scope) -> tuple[SettingSpec[Any], ...]:
    """The settings of a scope."""
    return tuple(spec for spec in SETTINGS if spec.scope is scope)
