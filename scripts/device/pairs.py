"""The pairs of the checks: the embedded one, its trained heads, and random ones of other kinds."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.core.files.paths import DEMO_DIR
from localspec.core.options import Options
from localspec.models.gguf.growth import SmallModel

ROOT = Path(__file__).resolve().parent.parent.parent
_HEADS = ROOT / "tests" / "data" / "heads"
_TARGET_PARTLY, _DRAFT_PARTLY = 3, 2
_ALL = 99


@dataclass(frozen=True, slots=True)
class Placement:
    """Which layers are on the device."""

    target: int
    draft: int

    @property
    def name(self) -> str:
        """Name in a row of the report."""
        words = {0: "none", _ALL: "all"}
        return f"target {words.get(self.target, 'partly')}, draft {words.get(self.draft, 'partly')}"


ALL = Placement(_ALL, _ALL)
PARTLY = Placement(_TARGET_PARTLY, _DRAFT_PARTLY)
NONE = Placement(0, 0)
PLACEMENTS = tuple(
    Placement(target, draft)
    for target in (_ALL, _TARGET_PARTLY, 0)
    for draft in (_ALL, _DRAFT_PARTLY, 0)
)


@dataclass(frozen=True, slots=True)
class Case:
    """A target and one drafter for it."""

    name: str
    drafter: str
    target: Path
    draft: Path | None
    accepts: bool
    """Whether tokens must be accepted: the drafter was trained for the target."""

    def options(self, placement: Placement, **changes: object) -> Options:
        made = Options(
            model=str(self.target),
            draft=None if self.draft is None else str(self.draft),
            drafter=(self.drafter,),
            draft_max=4,
            gpu_layers=placement.target,
            draft_gpu_layers=placement.draft,
            offline=True,
        )
        return replace(made, **changes)  # type: ignore[arg-type]


def grown(case: Case, folder: Path) -> Case:
    """The same pair padded to 4 and 0.25 GB: its text stays, its cost is that of large models."""
    target, draft = folder / "grown-target.gguf", folder / "grown-draft.gguf"
    assert case.draft is not None
    for small, large, n_bytes in ((case.target, target, 4e9), (case.draft, draft, 0.25e9)):
        if not large.is_file():
            model = SmallModel(small)
            model.grow(model.shape_for(int(n_bytes)), large)
    return replace(case, target=target, draft=draft)


def trained(folder: Path) -> dict[str, Case]:
    """The embedded pair and the trained heads of its target; ``folder`` takes the composed file."""
    target, draft = DEMO_DIR / "target.gguf", DEMO_DIR / "draft.gguf"
    sys.path.insert(0, str(ROOT / "scripts" / "training"))
    from heads.compose import compose_mtp

    whole = folder / "target-mtp.gguf"
    if not whole.is_file():
        compose_mtp(target, _HEADS / "mtp-block.gguf", whole)
    cases = [
        Case("draft model", "model", target, draft, accepts=True),
        Case("draft model, trees", "tree", target, draft, accepts=True),
        Case("EAGLE-3", "eagle3", target, _HEADS / "eagle3.gguf", accepts=True),
        Case("multi-token prediction", "mtp", whole, None, accepts=True),
        Case("Medusa", "medusa", target, _HEADS / "medusa.gguf", accepts=True),
        Case("suffix", "suffix", target, None, accepts=False),
        Case("n-gram", "ngram", target, None, accepts=False),
        Case("lookahead", "lookahead", target, None, accepts=False),
    ]
    return {case.name: case for case in cases}


def mixture(folder: Path, layers: int = 4, width: int = 128) -> Path:
    """A target of random weights with 16 experts in each layer, two of which read a token."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from moe_files import Size, write_moe

    path = folder / f"mixture-{layers}-{width}.gguf"
    size = Size(layers=layers, width=width, hidden=2 * width)
    return path if path.is_file() else write_moe(path, "qwen3moe", size)


def random(folder: Path) -> dict[str, Case]:
    """Targets of random weights with heads of every kind: states, windows, shared caches."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import gguf_tools
    import head_files

    dense = gguf_tools.write_llama(folder / "dense.gguf", layers=4, seed=3, context=1024)
    gemma = head_files.write_gemma(folder / "gemma.gguf")
    files = {
        "DFlash, random": ("dflash", dense, head_files.write_dflash(folder / "dflash.gguf")),
        "assistant, random": (
            "mtp",
            gemma,
            head_files.write_assistant(folder / "assistant.gguf"),
        ),
        "prediction on a recurrent hybrid, random": (
            "mtp",
            head_files.write_hybrid(folder / "hybrid.gguf"),
            None,
        ),
        "EAGLE-3 with few words, random": (
            "eagle3",
            dense,
            head_files.write_eagle(folder / "few.gguf", ids=[*range(3, 120)]),
        ),
    }
    files["suffix on a mixture, random"] = ("suffix", mixture(folder), None)
    return {
        name: Case(name, drafter, target, draft, accepts=False)
        for name, (drafter, target, draft) in files.items()
    }
