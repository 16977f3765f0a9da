"""Options of loading a pair."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core import drafter_registry
from localspec.errors import UsageError

DRAFTERS = drafter_registry.NAMES
"""Names that ``--drafter`` takes."""
VERIFIERS = ("match", "rejection")
"""Names that ``--verifier`` takes: those of `localspec.verifiers`, which needs numpy."""
MAX_K = 62
"""With the pending token a pass has 63 tokens; from 64 on llama.cpp computes attention with another
kernel, whose logits differ."""
_MAX_THREADS = 1024
_MAX_CONTEXT = 1 << 21


@dataclass(frozen=True, slots=True)
class Options:
    """Load-time choices; None leaves one to localspec."""

    model: str = "demo"
    draft: str | None = None
    """Draft model; None: the one of the catalogue; "none": no draft model."""
    context: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    threads: int | None = None
    kv_type: str | None = None
    verifier: str = "match"
    drafter: tuple[str, ...] | None = None
    """Names in order of preference; None: text first, then the best drafter of the pair."""
    draft_max: int | None = None
    """K of every round; None: the controller chooses it round by round."""
    require_draft: bool = False
    """Fail rather than draft from the text alone where the draft model cannot be used."""
    remember: bool = False
    """Draft from the saved chats as well as from the current one."""
    offline: bool = False

    def __post_init__(self) -> None:
        _within("context", self.context, 16, _MAX_CONTEXT)
        _within("threads", self.threads, 1, _MAX_THREADS)
        _within("gpu layers", self.gpu_layers, 0, 1 << 30)
        _within("draft gpu layers", self.draft_gpu_layers, 0, 1 << 30)
        _within("draft max", self.draft_max, 0, MAX_K)
        if self.verifier not in VERIFIERS:
            known = ", ".join(VERIFIERS)
            raise UsageError(f"no verifier called {self.verifier!r}; there are: {known}")
        for name in self.drafter or ():
            if name not in DRAFTERS:
                raise UsageError(f"no drafter called {name!r}; there are: {', '.join(DRAFTERS)}")
        if self.drafter and drafter_registry.OFF in self.drafter and len(self.drafter) > 1:
            raise UsageError("drafter off cannot be combined with others")


def _within(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise UsageError(f"{name} must be between {low} and {high}, not {value}")
