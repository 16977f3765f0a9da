"""Greetings, small talk, and questions about localspec and about the model itself."""

from random import Random

from .phrase import Talk, ask, single, tell
from .words import TEXTS

_TEXTS = TEXTS["about"]
_INTENTS = _TEXTS["intents"]
"""What people say, what is answered, and how often; without an answer it is that of a command."""
_WEIGHTS = [one["weight"] for one in _INTENTS]


def about(rng: Random) -> Talk:
    (intent,) = rng.choices(_INTENTS, _WEIGHTS)
    if not intent["answer"]:
        name = rng.choice(list(_TEXTS["commands"]))
        shown = rng.choice((f"localspec {name}", f"`localspec {name}`", f"localspec {name}"))
        return single(ask(rng, intent["asked"], cmd=shown), _TEXTS["commands"][name])
    lead = rng.choice(_TEXTS["leads"])
    if "greeting" in intent:
        lead = ""
    return single(ask(rng, lead + intent["asked"]), tell(rng, intent["answer"]))
