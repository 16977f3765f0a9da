"""The weights of Medusa heads, as they lie in files."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.llama.heads.tensors import Weight, mapped
from localspec.models.compat import medusa
from localspec.models.gguf.model_file import ModelFile


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """The weights of the heads."""

    blocks: tuple[tuple[tuple[Weight, Weight], ...], ...]
    """Matrix and bias of each residual block of each head."""
    outputs: tuple[Weight, ...]
    """H of every head; one and the same object where heads share it."""

    @property
    def width(self) -> int:
        """Width of a hidden state."""
        return self.outputs[0].shape[0]

    @property
    def vocabulary(self) -> int:
        """Ids that they guess among."""
        return self.outputs[0].shape[1]

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All of them, each once."""
        found = {w.name: w for head in self.blocks for pair in head for w in pair}
        return tuple((found | {w.name: w for w in self.outputs}).values())


def parts(head: ModelFile, target: ModelFile) -> MedusaWeights:
    """The weights in a file that was checked for this target, see `localspec.models.compat.heads`.

    Raises:
        ModelNotFoundError, ModelFileError: a file is not there, damaged or cut short.
    """
    count, blocks = medusa.shape(head.header)
    pairs = [
        [(medusa.matrix(k, j), medusa.bias(k, j)) for j in range(blocks)] for k in range(count)
    ]
    outputs = [medusa.output(k) for k in range(count)]
    found = mapped(
        head, {*outputs, *(name for blocks in pairs for pair in blocks for name in pair)}
    )
    if not found.keys() >= {*outputs}:
        name = medusa.borrowed(target.header)
        found["borrowed"] = mapped(target, {name})[name]
    return MedusaWeights(
        tuple(tuple((found[w], found[b]) for w, b in blocks) for blocks in pairs),
        tuple(found[name if name in found else "borrowed"] for name in outputs),
    )
