# CMake reads this right after project(llama_cpp). llama-cpp-python's CMakeLists.txt forces some cache
# entries; a plain variable set here wins over them (policies CMP0077 and CMP0126).

# The Python package loads libllama alone. llama.cpp's programs use its common library, which is a good
# third of the build.
set(LLAMA_BUILD_COMMON OFF)

# Forced on for every Mac, also when the processor was asked for.
if(DEFINED LOCALSPEC_METAL)
  set(GGML_METAL ${LOCALSPEC_METAL})
endif()
