"""Shared fixtures: a home of our own, and a random pair small enough to load in a blink."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import pytest
from head_pairs import Pair, write_pairs
from hypothesis import settings

from localspec.config import settings as config
from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.core.processes import garbage
from localspec.kernels import build
from localspec.llama import devices, mtmd_library, threads
from localspec.loading import loader, machine_speed, own_kernels
from localspec.models.catalog import catalog

# Shared machines stall; a slow example is no failure. The examples are the same at every run: new
# ones are looked for with --hypothesis-profile=search.
settings.register_profile("localspec", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=500)
settings.load_profile("localspec")
# The programs that tests start, and the processes of xdist, find our modules compiled, whatever the
# environment says: else each compiles them anew, which is up to half of its processor time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests make folders of a user as most systems have them; where groups may write by default, as on
# Debian 13, our code would rightly refuse those.
os.umask(0o022)


@dataclass(frozen=True)
class Files:
    """A target, a draft that resembles it, and a folder for more."""

    target: Path
    draft: Path
    folder: Path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests leave no garbage when collected: looking for it takes a quarter longer."""
    before = gc.get_threshold()
    garbage.collect_rarely()
    try:
        return (yield)
    finally:
        gc.set_threshold(*before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the library for pictures compiles it, and others wait for that: on
    a busy machine longer than a test may take. Ended there, the next one would begin anew.
    """
    for item in items:
        if (
            "mtmd" in getattr(item, "fixturenames", ())
            and item.get_closest_marker("timeout") is None
        ):
            item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> Iterator[None]:
    """Our kernels compute all models of the process, or none with LOCALSPEC_KERNELS=llama:
    llama.cpp takes them only before its first model, which some tests load themselves.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("LOCALSPEC_KERNELS") == own_kernels.LLAMA:
            patch.setattr(build, "impossible", lambda: "LOCALSPEC_KERNELS is llama")
        own_kernels.engage(None, make=False)
        yield


_MTMD = mtmd_library.place()
"""Where the user has the library for pictures, which takes minutes to compile."""


@pytest.fixture
def mtmd(request: pytest.FixtureRequest, _own_home: None) -> None:
    """The library for pictures in the test's own cache: compiled now in a run of all tests, else
    only used.
    """
    if not native.is_stored(_MTMD / mtmd_library.NAME):
        if request.config.getoption("-m"):
            pytest.skip(
                "the library for pictures is not compiled: python -m localspec.llama.mtmd_library"
            )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mtmd_library, "place", lambda: _MTMD)
            mtmd_library.obtain()
    here = mtmd_library.place().parent
    here.parent.mkdir(parents=True, exist_ok=True)
    here.symlink_to(_MTMD.parent)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor write files of the user."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):  # of the terminal they run in
        monkeypatch.delenv(name, raising=False)
    for cached in (config.settings, catalog.catalog):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may keep the cores busy: no runtime of a test says so in between, and each has
    one thread, since threads of llama.cpp wait for each other at spinning barriers.
    """
    monkeypatch.setattr(loader, "Watchdog", lambda *_: None)
    for module in (devices, loader, threads):
        monkeypatch.setattr(module, "physical_cores", lambda: 1)


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expected speeds are unknown, unless a test says what this machine does: it takes seconds to
    measure.
    """

    def unknown(*_: str) -> object:
        raise LocalspecError("not measured in tests")

    async def unknown_too(*_: str) -> object:
        return unknown()

    monkeypatch.setattr(machine_speed, "ask", unknown)
    monkeypatch.setattr(machine_speed, "ask_async", unknown_too)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("models")
    # Equal seeds share the embedding and the first layer, so the draft is right now and then.
    target = gguf_tools.write_llama(folder / "target.gguf", layers=2, seed=3)
    draft = gguf_tools.write_llama(folder / "draft.gguf", layers=1, seed=3)
    return Files(target, draft, folder)


@pytest.fixture(scope="session")
def head_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Targets with heads, of random weights."""
    return write_pairs(tmp_path_factory.mktemp("heads"))
