"""Devices of other machines by llama.cpp's RPC: their addresses, the handshake, the plugin.

Without llama.cpp itself: `localspec.llama.remote` loads the plugin, and `docs/scale.md` describes
the whole.
"""
