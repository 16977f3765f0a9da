# CMake reads this right after project(ggml) of a CUDA build on Linux. A libggml-cuda that is linked to
# libcuda, which comes with NVIDIA's driver, neither links nor loads where there is none.
function(localspec_find_driver_when_called)
  get_target_property(libraries ggml-cuda LINK_LIBRARIES)
  list(REMOVE_ITEM libraries CUDA::cuda_driver)
  set_property(TARGET ggml-cuda PROPERTY LINK_LIBRARIES ${libraries} ${CMAKE_DL_LIBS})
  # CMake leaves the folder out that nvcc links from by itself; the loader need not know it.
  target_link_options(ggml-cuda PRIVATE "LINKER:-rpath,$<TARGET_FILE_DIR:CUDA::cublas>")
  target_sources(ggml-cuda PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/llama_cuda_driver.c)
endfunction()
# Called when all targets are there.
cmake_language(DEFER CALL localspec_find_driver_when_called)
