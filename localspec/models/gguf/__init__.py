"""GGUF and safetensors files, read without llama.cpp."""
