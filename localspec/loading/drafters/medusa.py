"""Opening Medusa heads, which are computed without llama.cpp's graphs."""

from __future__ import annotations

from localspec.drafters.heads.medusa import MedusaDrafter, MedusaModel
from localspec.llama.heads.hidden_states import Features, FinalStates
from localspec.llama.timing import TimedMedusa
from localspec.loading.drafters.opening import Opened, Opening


def open_drafter(opening: Opening) -> Opened:
    """Open the heads in the draft file, whose header was checked.

    Raises:
        ModelFileError, OutOfMemoryError
    """
    file, target = opening.head_file, opening.target
    heads = opening.parts.medusa(file, opening.target_file, target)
    placed = opening.parts.fit.draft
    tap = FinalStates(opening.target_header.n_embd)
    features = Features(tap)
    model = MedusaModel(heads, features, target.model.n_vocab)
    timed = TimedMedusa(
        heads,
        width=tap.width,
        path=file.path,
        layers=0 if placed is None else placed.gpu_layers,
        threads=opening.parts.medusa_threads(target),
    )
    return Opened(MedusaDrafter(model, opening.favoured), timed, features, uses_file=True)
