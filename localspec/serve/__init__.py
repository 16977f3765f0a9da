"""``localspec serve``: the HTTP server of one loaded pair, in the shapes of OpenAI's API.

The engine runs in a process of its own (`localspec.engine`), so an abort of native code costs the
running replies and a restart, not the address. `localspec.serve.app` lists the routes.
"""
