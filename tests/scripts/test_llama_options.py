"""The options of a build reach ggml's code for the processor, of which a build can have several."""

import json
import shutil
import subprocess

import llama_backend
import pytest

PROJECT = """\
cmake_minimum_required(VERSION 3.21)
project(llama_cpp CXX)
add_subdirectory(ggml/src)
"""
GGML = """\
add_library(ggml-base SHARED base.cpp)
foreach(name {names})
  add_library(${{name}} MODULE base.cpp ggml-cpu/amx/mmq.cpp)
endforeach()
"""


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("g++"), reason="needs CMake, GCC")
@pytest.mark.parametrize(
    ("names", "options"),
    [(["ggml-cpu"], ["-mno-amx-tile"]), (["ggml-cpu-old", "ggml-cpu-amx"], [])],
)
def test_stores_before_amx_are_kept_in_every_level(tmp_path, names, options):
    source = tmp_path / "ggml" / "src"
    (source / "ggml-cpu" / "amx").mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (source / "CMakeLists.txt").write_text(GGML.format(names=" ".join(names)))
    for name in ("base.cpp", "ggml-cpu/amx/mmq.cpp"):
        (source / name).touch()
    settings = [f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={llama_backend.OPTIONS_FILE}"]
    settings += ["-DLOCALSPEC_KEEP_STORES=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    settings += ["-DCMAKE_CXX_COMPILER=g++"]
    settings += [f"-DLOCALSPEC_KERNEL_OPTIONS={';'.join(options)}"]
    line = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", *settings]
    subprocess.run(line, check=True, capture_output=True)
    commands = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    kept = [c["command"] for c in commands if c["file"].endswith("mmq.cpp")]
    others = [c["command"] for c in commands if not c["file"].endswith("mmq.cpp")]
    assert len(kept) == len(names)
    assert all("-fno-tree-dse -fno-dse" in command for command in kept)
    assert not any("-fno-dse" in command for command in others)
    for option in options:
        assert all(option in command for command in kept)
