"""Kernels of our own: products of weights and attention, in a library that llama.cpp computes by.

``source/`` is the C++, `build` compiles it for each instruction set, `library` calls it, and
`prove` compares it with numpy. Which kernels a model gets is decided in
`localspec.loading.own_kernels`. Nothing here imports llama_cpp.
"""
