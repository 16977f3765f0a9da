"""A build of llama.cpp with a library for each level of a processor."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from localspec.compiling import variants
from localspec.core.errors import LocalspecError

_GGML = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
static size_t count;
size_t ggml_backend_reg_count(void) { return count; }
void ggml_backend_load_all_from_path(const char * folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libggml-cpu-best.so", folder);
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL)) count++;
    const char * another = getenv("GGML_BACKEND_PATH");  // as ggml has it
    if (another && dlopen(another, RTLD_NOW | RTLD_LOCAL)) count++;
}
"""
_LEVEL = "int localspec_test_level(void) { return 7; }\n"
_PLUGIN = """
int localspec_test_level(void);
int answer(void) { return 6 * localspec_test_level(); }
"""

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not hasattr(os, "RTLD_NOLOAD"),
    reason="needs a C compiler, and a loader that tells what is loaded",
)


def compiled(folder: Path, name: str, text: str) -> Path:
    source, made = folder / f"{name}.c", folder / name
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    for name in ("libggml-cpu-best.so", "libggml-cpu-other.so"):
        compiled(tmp_path, name, _LEVEL)
    return tmp_path


def test_what_llama_cpp_chose_is_shared_with_what_is_loaded_later(folder):
    ggml = ctypes.CDLL(str(compiled(folder, "libggml.so", _GGML)))
    plugin = compiled(folder, "plugin.so", _PLUGIN)
    with pytest.raises(LocalspecError, match="has loaded no library"):
        variants.share(folder)
    variants.choose(ggml, folder)
    variants.choose(ggml, folder)
    assert ggml.ggml_backend_reg_count() == 1  # once
    with pytest.raises(OSError, match="localspec_test_level"):
        ctypes.CDLL(str(plugin))
    assert variants.share(folder).name == "libggml-cpu-best.so"
    assert ctypes.CDLL(str(plugin)).answer() == 42


def test_a_library_that_only_the_environment_names_is_not_loaded(folder, tmp_path, monkeypatch):
    another = tmp_path / "elsewhere"
    another.mkdir()
    monkeypatch.setenv("GGML_BACKEND_PATH", str(compiled(another, "libother.so", _LEVEL)))
    ggml = ctypes.CDLL(str(compiled(folder, "libggml.so", _GGML)))
    variants.choose(ggml, folder)
    assert ggml.ggml_backend_reg_count() == 1


def test_a_processor_that_none_of_them_suits_is_an_error(folder):
    (folder / "libggml-cpu-best.so").unlink()
    ggml = ctypes.CDLL(str(compiled(folder, "libggml.so", _GGML)))
    with pytest.raises(LocalspecError, match="suits this processor; build llama"):
        variants.choose(ggml, folder)


def test_libraries_that_others_may_write_to_are_not_loaded(folder):
    ggml = ctypes.CDLL(str(compiled(folder, "libggml.so", _GGML)))
    (folder / "libggml-cpu-other.so").chmod(0o666)
    with pytest.raises(LocalspecError, match="others may write"):
        variants.choose(ggml, folder)
    assert ggml.ggml_backend_reg_count() == 0


def test_a_usual_build_is_left_alone(tmp_path):
    (tmp_path / "libggml-cpu.so").touch()
    assert variants.variants(tmp_path) == []
    variants.choose(ctypes.CDLL(None), tmp_path)  # which has none of ggml's functions
