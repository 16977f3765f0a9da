"""One recommendation of a model, also where the toy names another one."""

from __future__ import annotations

import pytest

from localspec.core.files.paths import DEMO_DIR
from localspec.loading import offers


class Found:
    sentence = "The best model for this machine is small-4b (2 GB, fits): 9 tok/s."


def test_the_toy_is_corrected_and_no_other_model(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = str(DEMO_DIR / "target.gguf")
    monkeypatch.setattr(offers, "recommended", lambda: None)
    assert "`localspec models` lists all" in offers.after_the_toy(toy)
    monkeypatch.setattr(offers, "recommended", Found)
    assert offers.after_the_toy(toy).endswith(Found.sentence)
    assert offers.after_the_toy("/models/other.gguf") == ""
