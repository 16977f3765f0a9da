"""The logits processing of a request: sampling, grammar and noise, with DRY's texts as tokens."""

from __future__ import annotations

from localspec.core.constraint import Constraint
from localspec.core.events import Notice
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.repetition import NO_BREAKERS, Breakers, breakers_of
from localspec.core.sampling_params import Sampling
from localspec.generation.runnable import RunnableModel

_MOST_KNOWN = 64
"""Lists of texts whose tokens are remembered."""


class Processing:
    """Makes the processors of requests for one model."""

    def __init__(self, model: RunnableModel) -> None:
        self._model = model
        self._known: dict[tuple[str, ...], Breakers] = {}

    def processor(
        self, sampling: Sampling, noise: Noise, constraint: Constraint | None
    ) -> LogitsProcessor:
        """The processor of the first token of a reply.

        Raises:
            UsageError: a parameter does not fit the vocabulary.
        """
        breakers = self._breakers(sampling) if _dries(sampling) else NO_BREAKERS
        n_vocab = self._model.n_vocab
        return LogitsProcessor(sampling, n_vocab, constraint, noise=noise, breakers=breakers)

    def takes_long(self, sampling: Sampling) -> bool:
        """Whether the texts of all tokens have to be searched first."""
        return _dries(sampling) and sampling.breakers not in self._known

    def _breakers(self, sampling: Sampling) -> Breakers:
        texts, model = sampling.breakers, self._model
        found = self._known.get(texts)
        if found is None:
            pieces = [model.piece(t) or model.marker(t).encode() for t in range(model.n_vocab)]
            found = breakers_of(
                texts, pieces, lambda text: model.tokenize(text, special=False, bos=False)
            )
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[texts] = found
        return found


def _dries(sampling: Sampling) -> bool:
    return sampling.dries and not sampling.mirostat and "dry" in sampling.order


def notices_of(sampling: Sampling) -> list[Notice]:
    """What a reply says of settings that were given and have no effect."""
    if not sampling.mirostat:
        return []
    given = {
        "penalties": sampling.penalises,
        "dry": sampling.dries,
        "top_n_sigma": sampling.top_n_sigma > 0,
        "typ_p": sampling.typical_p < 1,
        "xtc": sampling.excludes,
        "dynatemp_range": sampling.dynatemp_range > 0,
    }
    names = ", ".join(name for name, on in given.items() if on)
    return [Notice(f"Mirostat takes the place of {names}, as in llama.cpp")] if names else []
