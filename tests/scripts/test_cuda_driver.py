"""A CUDA build is not linked to NVIDIA's driver, and finds it where it is. CUDA is played here."""

import os
import shutil
import subprocess
import sys

import llama_backend
import pytest

OPTIONS, SOURCE = llama_backend.CUDA_FILES

HEADER = """\
#include <stddef.h>
#define CUDAAPI
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_INITIALIZED = 3 } CUresult;
typedef int CUdevice, CUdevice_attribute, CUmemAllocationGranularity_flags;
typedef int CUmemAllocationProp, CUmemAccessDesc;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice);
CUresult cuMemGetAllocationGranularity(size_t *, const CUmemAllocationProp *,
                                       CUmemAllocationGranularity_flags);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemCreate(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
"""
CALLER = """\
#include <cuda.h>
int cublas(void);
int probe(void) { CUdevice device = -1; return cublas() * cuDeviceGet(&device, 4) + device; }
"""
CUBLAS = "int cublas(void) { return 10; }\n"
DRIVER = "int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 1; return 2; }\n"
PROJECT = """\
cmake_minimum_required(VERSION 3.19)
project(ggml C)
set(CMAKE_SKIP_BUILD_RPATH ON) # as for a folder that nvcc links from by itself
add_library(CUDA::cublas SHARED IMPORTED)
set_target_properties(CUDA::cublas PROPERTIES IMPORTED_LOCATION "${CUBLAS}")
add_library(ggml-cuda SHARED caller.c)
target_include_directories(ggml-cuda PRIVATE .)
# The second is no target where the toolkit comes without a stub of libcuda.
target_link_libraries(ggml-cuda PRIVATE CUDA::cublas CUDA::cuda_driver)
"""


def compiled(folder, name, text):
    folder.mkdir()
    source, library = folder / f"{name}.c", folder / f"lib{name}.so.1"
    source.write_text(text)
    line = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", source, "-o", library]
    subprocess.run(line, check=True)
    return library


def probe(library, **environ):
    """What `CALLER` of a library says, and whether the library has functions of the driver."""
    program = (
        f"import ctypes; loaded = ctypes.CDLL({str(library)!r}); "
        "print(loaded.probe(), hasattr(loaded, 'cuDeviceGet'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("cc"), reason="needs CMake and C")
def test_a_cuda_build_links_and_loads_without_the_driver_and_calls_it_where_it_is(tmp_path):
    (tmp_path / "cuda.h").write_text(HEADER)
    (tmp_path / "caller.c").write_text(CALLER)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    build = tmp_path / "build"
    toolkit = compiled(tmp_path / "toolkit", "cublas", CUBLAS)
    settings = [f"-DCMAKE_PROJECT_ggml_INCLUDE={OPTIONS}", f"-DCUBLAS={toolkit}"]
    for line in (
        ["cmake", "-S", tmp_path, "-B", build, *settings],
        ["cmake", "--build", build],
    ):
        subprocess.run(line, check=True, capture_output=True)
    library = build / "libggml-cuda.so"
    empty, driver = tmp_path / "empty", tmp_path / "driver"
    empty.mkdir()
    compiled(driver, "cuda", DRIVER)
    # NOT_INITIALIZED, and the device as it was; then what the driver answers to the arguments.
    if not driver_of_this_machine():
        assert probe(library, LD_LIBRARY_PATH=str(empty)) == "29 False"
    assert probe(library, LD_LIBRARY_PATH=str(driver)) == "25 False"


def driver_of_this_machine():
    return shutil.which("nvidia-smi") is not None


def test_only_a_cuda_build_on_linux_has_the_files_among_its_options():
    linux = llama_backend.Machine("Linux", "x86_64", "", nvcc=None, cuda_version="", gpus="")
    assert f"-DCMAKE_PROJECT_ggml_INCLUDE={OPTIONS}" in llama_backend.cmake_options("cuda", linux)
    assert not any(str(OPTIONS) in o for o in llama_backend.cmake_options("cpu", linux))
    assert SOURCE.is_file()
