"""One recommendation of a model, also where the toy names another one."""

from __future__ import annotations

import pytest

from localspec.demo import FOLDER
from localspec.loading import recommended


class Found:
    sentence = "The best model for this machine is small-4b (2 GB, fits): 9 tok/s."


def test_the_toy_is_corrected_and_no_other_model(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = str(FOLDER / "target.gguf")
    monkeypatch.setattr(recommended, "recommended", lambda: None)
    assert "`localspec models` lists all" in recommended.after_the_toy(toy)
    monkeypatch.setattr(recommended, "recommended", Found)
    assert recommended.after_the_toy(toy).endswith(Found.sentence)
    assert recommended.after_the_toy("/models/other.gguf") == ""
