"""Connecting to the workers that the options name."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.core.endpoint import endpoints
from localspec.core.events import Loading
from localspec.core.options import Options
from localspec.llama import remote
from localspec.llama.devices import backend
from localspec.llama.model import Model
from localspec.llama.remote import RemoteDevices
from localspec.llama.rpc import handshake, plugin
from localspec.loading.resources import Progress

SOURCE = "LOCALSPEC_LLAMA_SOURCE"
"""Variable with a folder or archive of llama-cpp-python's source, to compile the plugin from."""


def connected(options: Options, on_event: Progress | None) -> RemoteDevices | None:
    """The devices of the workers; None where the options name none.

    Raises:
        WorkerError: one of them cannot be used, or there is no plugin.
    """
    wanted = endpoints(options.rpc)
    if not wanted:
        return None

    def tell() -> None:
        if on_event is not None:
            on_event(Loading("compiling the plugin for other machines, once", None))

    given = os.environ.get(SOURCE)
    made = plugin.obtain(Path(given) if given else None, offline=options.offline, on_start=tell)
    workers = [handshake.ask(endpoint, version=made.version) for endpoint in wanted]
    return remote.connect(made.path, workers, options.rpc_timeout)


def where(model: Model, devices: RemoteDevices) -> str:
    """A notice: how much of a model the workers, and GPUs if there are any, have."""
    place = f"on {devices}" if backend() == "cpu" else f"on {devices} and this machine's GPUs"
    return f"{model.gpu_layers} of {model.n_layer + 1} layers of {model.path.name} are {place}"
