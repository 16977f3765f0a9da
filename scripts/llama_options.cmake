# CMake reads this right after project(llama_cpp). llama-cpp-python's CMakeLists.txt forces some cache
# entries; a plain variable set here wins over them (policies CMP0077 and CMP0126).

# The Python package loads libllama alone. llama.cpp's programs use its common library, which is a good
# third of the build.
set(LLAMA_BUILD_COMMON OFF)

# Forced on for every Mac, also when the processor was asked for.
if(DEFINED LOCALSPEC_METAL)
  set(GGML_METAL ${LOCALSPEC_METAL})
endif()

# Called when all targets are there: what is added to them then comes after -march=native.
function(localspec_adjust_kernels)
  if(NOT TARGET ggml-base)
    return()
  endif()
  # Before GCC 14, _tile_loadconfig says that it reads 8 bytes where the instruction reads 64. The
  # optimizer then drops the stores of all others as dead, and the processor faults at ldtilecfg.
  # Both flags are needed. LOCALSPEC_KEEP_STORES is for a later GCC that turns out to have the defect.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND (CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14 OR LOCALSPEC_KEEP_STORES))
    # All targets of ggml are of one folder: those of the levels of a build that has several too.
    get_target_property(folder ggml-base SOURCE_DIR)
    set_property(
      SOURCE ${folder}/ggml-cpu/amx/mmq.cpp
      TARGET_DIRECTORY ggml-base
      APPEND PROPERTY COMPILE_OPTIONS -fno-tree-dse -fno-dse)
  endif()
  # Such as -mno-amx-tile, where the build proved unsound with AMX (scripts/llama_ladder.py).
  if(TARGET ggml-cpu)
    target_compile_options(ggml-cpu PRIVATE ${LOCALSPEC_KERNEL_OPTIONS})
  endif()
endfunction()
cmake_language(DEFER CALL localspec_adjust_kernels)
