"""Tools that a model may call: servers by MCP, reading below one folder, and permission.

No model and no interface. A server speaks with `localspec.tools.host`, a process of its own, which
alone imports the package ``mcp``.
"""
